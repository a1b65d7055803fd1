/** Tokens, cost, what came from the cache and how long it took: by day, agent or model; and as a file. */
import "./usage.css";

import { useMemo } from "react";

import type { SpentOut } from "../api/schema";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { Figures } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
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
  const whole = added(rows);
  const most = Math.max(...groups.map(([, sum]) => sum.inputTokens + sum.outputTokens), 1);
  return (
    <div className="scroll" role="region" aria-label="Usage" tabIndex={0}>
      <table className="usage stack">
        <thead>
          <tr>
            <th scope="col">{BY.find(([name]) => name === by)?.[1]}</th>
            <th scope="col">Tokens</th>
            <th scope="col">Answers</th>
            <th scope="col">Failed</th>
            <th scope="col">From cache</th>
            <th scope="col">Seconds each</th>
            <th scope="col">Cost</th>
          </tr>
        </thead>
        <tbody>
          {[...groups, ["All", whole] as const].map(([name, sum], index) => (
            <tr key={name} className={index === groups.length ? "whole-row" : undefined}>
              <th scope="row">
                <Told text={by === "agentId" && index < groups.length ? nameOf(name) : name} />
              </th>
              <td data-name="Tokens">
                {index < groups.length && (
                  <span className="usage-track" aria-hidden="true">
                    <span style={{ width: `${(100 * (sum.inputTokens + sum.outputTokens)) / most}%` }} />
                  </span>
                )}
                {(sum.inputTokens + sum.outputTokens).toLocaleString()}
              </td>
              <td data-name="Answers">{sum.turns.toLocaleString()}</td>
              <td data-name="Failed">{sum.failed === 0 ? "0" : sum.failed.toLocaleString()}</td>
              <td data-name="From cache">{sum.inputTokens === 0 ? "0 %" : `${Math.round((100 * sum.cacheReadTokens) / sum.inputTokens)} %`}</td>
              <td data-name="Seconds each">{sum.turns === 0 ? "0" : (sum.seconds / sum.turns).toFixed(1)}</td>
              <td data-name="Cost">{sum.cost === null ? "not known" : `$${sum.cost.toFixed(sum.cost < 1 ? 4 : 2)}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Download({ rows }: { rows: readonly SpentOut[] }) {
  const href = useMemo(() => `data:text/csv;charset=utf-8,${encodeURIComponent(csv(rows))}`, [rows]);
  return (
    <a className="quiet-button" href={href} download="holdfast-usage.csv">
      Download as CSV
    </a>
  );
}
