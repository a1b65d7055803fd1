/** Tokens, cost, what came from the cache and how long it took: by day, agent or model; and as a file. */
import "./usage.css";

import { useMemo } from "react";

import type { SpentOut } from "../api/schema";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { Figures } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Told } from "../parts/verbatim";
import { go, type PageProps } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { added, type By, csv, grouped, spent } from "./sums";

const BY: readonly (readonly [By, string])[] = [
  ["day", "Day"],
  ["agentId", "Agent"],
  ["model", "Model"],
];

export default function UsagePage({ query }: PageProps) {
  const days = Number(query.get("days") ?? 30);
  const by = BY.find(([name]) => name === query.get("by"))?.[0] ?? "day";
  const { spaces, agents } = useLoggedIn();
  const may = spaces === null && agents === null;
  const { data, error, refetch } = useApi("/api/usage", { query: { days } }, { live: ["turn."], enabled: may });
  const to = (change: Record<string, string>): void =>
    go(`/usage?${new URLSearchParams({ days: String(days), by, ...change }).toString()}`, { replace: true });
  return (
    <>
      <div className="head">
        <h1>Usage</h1>
        {data !== undefined && data.rows.length > 0 && <Download rows={data.rows} />}
      </div>
      <div className="row usage-tools">
        <div className="segmented" role="group" aria-label="Sum up by">
          {BY.map(([name, word]) => (
            <button key={name} type="button" aria-pressed={by === name} onClick={() => to({ by: name })}>
              {word}
            </button>
          ))}
        </div>
        <select aria-label="Of the last days" value={days} onChange={(event) => to({ days: event.target.value })}>
          {[1, 7, 30, 90].map((count) => (
            <option key={count} value={count}>
              {count === 1 ? "Today" : `The last ${count} days`}
            </option>
          ))}
        </select>
      </div>
      {!may && <Nothing>What was used is shown to a login without limits.</Nothing>}
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {may && data === undefined && error === null && <Skeleton rows={6} what="usage" />}
      {data?.rows.length === 0 && <Nothing>No model was asked in these days.</Nothing>}
      {data !== undefined && data.rows.length > 0 && (
        <section className="panel usage-whole" aria-label="All of it">
          <Figures of={spent(data.rows)} />
        </section>
      )}
      {data !== undefined && data.rows.length > 0 && <Sums rows={data.rows} by={by} />}
      {data?.cut === true && <p className="note">There were too many turns to add up; the newest are counted.</p>}
    </>
  );
}

function Sums({ rows, by }: { rows: readonly SpentOut[]; by: By }) {
  const nameOf = useAgentNames();
  const groups = grouped(rows, by);
  const tokens = ({ sum }: Line): number => sum.inputTokens + sum.outputTokens;
  const lines: readonly Line[] = [...groups.map(([name, sum]) => ({ name, sum, all: false })), { name: "All", sum: added(rows), all: true }];
  const most = Math.max(...lines.map((line) => (line.all ? 0 : tokens(line))), 1);
  const columns: readonly Column<Line>[] = [
    { name: BY.find(([name]) => name === by)?.[1] ?? "", as: "head", cell: ({ name, all }) => <Told text={by === "agentId" && !all ? nameOf(name) : name} /> },
    {
      name: "Tokens",
      named: true,
      as: "number",
      cell: (line) => (
        <>
          {!line.all && (
            <span className="usage-track" aria-hidden="true">
              <span style={{ width: `${(100 * tokens(line)) / most}%` }} />
            </span>
          )}
          {tokens(line).toLocaleString()}
        </>
      ),
    },
    { name: "Answers", named: true, as: "number", cell: ({ sum }) => sum.turns.toLocaleString() },
    { name: "Failed", named: true, as: "number", cell: ({ sum }) => sum.failed.toLocaleString() },
    { name: "From cache", named: true, as: "number", cell: ({ sum }) => (sum.inputTokens === 0 ? "0 %" : `${Math.round((100 * sum.cacheReadTokens) / sum.inputTokens)} %`) },
    { name: "Seconds each", named: true, as: "number", cell: ({ sum }) => (sum.turns === 0 ? "0" : (sum.seconds / sum.turns).toFixed(1)) },
    { name: "Cost", named: true, as: "number", cell: ({ sum }) => (sum.cost === null ? "not known" : `$${sum.cost.toFixed(sum.cost < 1 ? 4 : 2)}`) },
  ];
  return (
    <div role="region" aria-label="Usage">
      <Table rows={lines} keyOf={({ name, all }) => (all ? "all of it" : name)} columns={columns} isSum={({ all }) => all} />
    </div>
  );
}

interface Line {
  name: string;
  sum: ReturnType<typeof added>;
  all: boolean;
}

function Download({ rows }: { rows: readonly SpentOut[] }) {
  const href = useMemo(() => `data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`, [rows]);
  return (
    <a className="quiet-button" href={href} download="holdfast-usage.csv">
      Download as CSV
    </a>
  );
}
