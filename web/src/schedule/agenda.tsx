/** What is due and what runs, the next first: turns, standing tasks, heartbeats, what agents elected, and the gateway's own work. */
import { useMemo } from "react";

import { api } from "../api/client";
import type { StandingTaskOut } from "../api/schema";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { type Due, dueOf } from "./due";

const MOST = 100;
const CHANGES = ["turn.", "cron.", "heartbeat.", "continuation.", "delivery.", "config."];
const AGAIN = ["/api/agenda", "/api/continuation"];

export function Agenda({ tasks }: { tasks: readonly StandingTaskOut[] }) {
  const items = useApi("/api/agenda", { query: { limit: MOST } }, { live: CHANGES });
  const elected = useApi("/api/continuation", { query: { limit: MOST } }, { live: CHANGES });
  const nameOf = useAgentNames();
  const rows = useMemo(() => dueOf(items.data ?? [], elected.data ?? [], tasks).slice(0, MOST), [items.data, elected.data, tasks]);
  const error = items.error ?? elected.error;
  const columns: Column<Due>[] = [
    { name: "What", as: "head", cell: (row) => <Told text={row.what} /> },
    { name: "Where", cell: (row) => <Where row={row} name={row.agentId === null ? null : nameOf(row.agentId)} /> },
    { name: "Due", as: "nowrap", named: true, cell: (row) => (row.dueAt === null ? "when it is asked for" : <Ago at={row.dueAt} />) },
    { name: "Stands", named: true, cell: (row) => row.status },
    { name: "Attempts", as: "number", named: true, cell: (row) => row.attempts },
    { name: "Cancel", as: "does", cell: (row) => <CancelButton row={row} /> },
  ];
  return (
    <>
      <h2 className="part">Agenda</h2>
      {error !== null && <Trouble problem={error} again={() => void items.refetch()} />}
      {items.data === undefined && error === null && <Skeleton rows={4} what="the agenda" />}
      {items.data !== undefined && rows.length === 0 && <Nothing>Nothing is due and nothing runs.</Nothing>}
      {rows.length > 0 && <Table rows={rows} keyOf={(row) => row.id} columns={columns} />}
      {rows.length === MOST && <p className="quiet">The next {MOST} are shown.</p>}
    </>
  );
}

function Where({ row, name }: { row: Due; name: string | null }) {
  if (row.sessionKey === null) return name === null ? null : <Told text={name} />;
  return (
    <Link to={`/chat?session=${encodeURIComponent(row.sessionKey)}`}>
      <Told text={row.sessionKey} />
    </Link>
  );
}

function CancelButton({ row }: { row: Due }) {
  const { cancel } = row;
  if (cancel === null) return null;
  const act =
    cancel.kind === "turn"
      ? () => api.post("/api/agent/{runId}/cancel", undefined, { path: { runId: cancel.id } })
      : () => api.delete("/api/continuation/{id}", { path: { id: cancel.id } });
  return <Confirm label="Cancel" question="It is taken off the agenda; if it runs, it is stopped." onConfirm={() => void attempt(act, AGAIN, "It is cancelled.")} />;
}
