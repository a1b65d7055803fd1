/** What the index holds, how it is embedded, and how fresh it is. */
import "./memory.css";

import type { MemoryStatusOut } from "../api/schema";
import { useApi } from "../live/query";
import { useChosenAgent } from "../parts/agent-choice";
import { Facts } from "../parts/facts";
import { Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { MemoryHead } from "./memory-head";

const NAMES: Record<string, string> = {
  "memory-root": "MEMORY.md",
  "memory-alt": "memory.md",
  "memory-dir": "notes in memory/",
};

export default function IndexPage() {
  const agent = useChosenAgent();
  return (
    <>
      <MemoryHead />
      {agent !== undefined && <Status agent={agent} />}
    </>
  );
}

function Status({ agent }: { agent: string }) {
  const { data, error, refetch } = useApi("/api/memory/status", { query: { agentId: agent } }, { live: ["memory.", "log."] });
  if (error !== null) return <Trouble problem={error} again={() => void refetch()} />;
  if (data === undefined) return <Skeleton rows={6} what="the index" />;
  const health = data.health;
  return (
    <div className="index">
      <section className="panel">
        <h2>What is in it</h2>
        <Facts
          rows={[
            ["Of this agent", `${data.documents.toLocaleString()} pieces`],
            ["Of all", `${data.documentsInAll.toLocaleString()} pieces`],
            ["Files read", data.updatedAt === null ? "never" : <Ago key="at" at={data.updatedAt} />],
            ["Said", `taken in up to entry ${data.position.toLocaleString()}`],
            ["Served by", data.backend === "builtin" ? "the built-in index" : data.backend],
            ["Health", health.healing ? "a damaged part is made again" : health.damaged.length > 0 ? "mended" : "whole"],
          ]}
        />
        {health.damaged.map((one) => (
          <p key={one.part} className="note">
            {one.part}: {one.why}
          </p>
        ))}
      </section>
      <section className="panel">
        <h2>Files</h2>
        <Table rows={data.collections.filter((one) => one.files > 0 || one.name !== "memory-alt")} keyOf={(one) => one.name} columns={COLUMNS} />
      </section>
      <Embedders rows={data.embedders} />
    </div>
  );
}

const COLUMNS: readonly Column<MemoryStatusOut["collections"][number]>[] = [
  { name: "From", cell: (one) => NAMES[one.name] ?? one.name },
  { name: "Files", named: true, as: "number", cell: (one) => one.files.toLocaleString() },
  { name: "Pieces", named: true, as: "number", cell: (one) => one.chunks.toLocaleString() },
];

function Embedders({ rows }: { rows: MemoryStatusOut["embedders"] }) {
  return (
    <section className="panel">
      <h2>Found by meaning with</h2>
      <ul className="embedders">
        {rows.map((one) => (
          <li key={`${one.provider} ${one.model}`}>
            <span>
              {one.model} <span className="quiet">{one.provider}, {one.dims} numbers a piece</span>
            </span>
            <meter min={0} max={1} value={one.covered} aria-label={`Share of pieces embedded by ${one.model}`}>
              {Math.round(one.covered * 100)} %
            </meter>
            <span className="score">{Math.round(one.covered * 100)} %</span>
            {one.trouble !== null && <p className="note">{one.trouble}</p>}
          </li>
        ))}
      </ul>
    </section>
  );
}
