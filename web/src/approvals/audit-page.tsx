/** Every decision on a tool call, newest first, read on page by page. */
import { getPage } from "../api/client";
import type { AuditRecord } from "../api/types";
import { useChanges } from "../live/hooks";
import { usePaged } from "../parts/paged";
import { Loading, Nothing, Trouble } from "../parts/states";
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
      {trail.rows !== undefined && trail.rows.length > 0 && <Trail rows={trail.rows} />}
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

function Trail({ rows }: { rows: AuditRecord[] }) {
  return (
    <div className="scroll">
      <table className="stack">
        <thead>
          <tr>
            <th>When</th>
            <th>What</th>
            <th>Agent</th>
            <th>Command</th>
            <th>By</th>
            <th>Why</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.seq}>
              <td className="nowrap">
                <Ago at={row.createdAt} />
              </td>
              <td className="nowrap">
                <span className={`tag ${EVENTS[row.event]?.[1] ?? ""}`}>{EVENTS[row.event]?.[0] ?? row.event}</span>
              </td>
              <td data-name="Agent">{row.agentId}</td>
              <td className="code">
                <Exact text={row.tool === "exec" ? row.command : `${row.tool} ${row.command}`} />
              </td>
              <td data-name="By" className="nowrap">{row.actor ?? `rule: ${row.rule}`}</td>
              <td className="quiet">
                <Exact text={row.reason} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
