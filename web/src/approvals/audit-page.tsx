/** Every decision on a tool call, newest first, read on page by page. */
import { getPage } from "../api/client";
import type { AuditRecord } from "../api/types";
import { useChanges } from "../live/hooks";
import { usePaged } from "../parts/paged";
import { Loading, Nothing, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Exact } from "../parts/verbatim";
import { Heading } from "./heading";

const EVENTS: Record<string, [string, string]> = {
  run: ["ran", "good"],
  block: ["refused", "bad"],
  requested: ["asked for", ""],
  approved: ["approved", "good"],
  denied: ["denied", "bad"],
  expired: ["expired", "bad"],
  used: ["ran, approved", "good"],
  pattern: ["pattern added", ""],
  unpattern: ["pattern removed", ""],
};

export default function AuditPage() {
  const trail = usePaged("audit", (cursor, signal) =>
    getPage<AuditRecord>("/api/audit", { limit: 50, cursor }, signal),
  );
  useChanges("approval.", trail.reload);
  return (
    <>
      <Heading />
      {trail.problem !== undefined && <Trouble problem={trail.problem} />}
      {trail.rows === undefined && trail.problem === undefined && <Loading what="the audit trail" />}
      {trail.rows?.length === 0 && <Nothing>No tool call was decided on yet.</Nothing>}
      {trail.rows !== undefined && trail.rows.length > 0 && <Table rows={trail.rows} keyOf={(row) => row.seq} columns={COLUMNS} />}
      {trail.more && (
        <p className="row more">
          <button type="button" onClick={() => void trail.readOn()}>
            Older
          </button>
        </p>
      )}
    </>
  );
}

const COLUMNS: readonly Column<AuditRecord>[] = [
  { name: "When", as: "nowrap", cell: (row) => <Ago at={row.createdAt} /> },
  { name: "What", as: "nowrap", cell: (row) => <span className={`tag ${EVENTS[row.event]?.[1] ?? ""}`}>{EVENTS[row.event]?.[0] ?? row.event}</span> },
  { name: "Agent", named: true, cell: (row) => row.agentId },
  { name: "Command", as: "code", cell: (row) => <Exact text={row.tool === "exec" ? row.command : `${row.tool} ${row.command}`} /> },
  { name: "By", named: true, as: "nowrap", cell: (row) => row.actor ?? `rule: ${row.rule}` },
  { name: "Why", as: "quiet", cell: (row) => <Exact text={row.reason} /> },
];
