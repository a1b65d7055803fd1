/** The whole log, newest first; what arrives is shown without moving what is being read. */
import "./entries.css";

import { useMemo } from "react";

import { Loading, Nothing, Trouble } from "../../parts/states";
import { go, type PageProps } from "../../router/router";
import { useNames } from "../places";
import { useEntries, useOlder } from "./entries";
import { EntryRow } from "./entry-row";
import { LogFilters } from "./log-filters";
import { EVERYTHING, type LogFilter } from "./matches";
import { useHeldBack } from "./held-back";
import { newestFirst } from "./order";

const NAMES = { spaceId: "space", topicId: "topic", taskId: "task", agentId: "agent", sessionKey: "session", type: "type", status: "status" };

export default function LogPage({ query }: PageProps) {
  const filter = filterOf(query);
  const { entries, held } = useEntries(filter);
  const rows = useMemo(() => held.rows.toSorted(newestFirst), [held.rows]);
  const { shown, waiting, show, onOpen } = useHeldBack(rows);
  const older = useOlder(entries);
  const names = useNames();

  return (
    <>
      <div className="head">
        <h1>Log</h1>
      </div>
      <LogFilters filter={filter} rows={rows} onChange={(next) => go(addressOf(next), { replace: true })} />
      <div className="arrived" role="status">
        {waiting > 0 && (
          <button type="button" className="primary" onClick={show}>
            {waiting === 1 ? "1 new entry" : `${waiting} new entries`}
          </button>
        )}
      </div>
      {held.problem !== undefined && <Trouble problem={held.problem} again={entries.reload} />}
      {!held.loaded && held.problem === undefined && <Loading what="the log" />}
      {held.loaded && rows.length === 0 && <Nothing>Nothing was logged that fits.</Nothing>}
      <ol className="entries">
        {shown.map((entry) => (
          <EntryRow
            key={entry.id}
            entry={entry}
            entries={entries}
            refused={held.refused.get(entry.id)}
            topic={entry.topicId === null ? undefined : names.topic.get(entry.topicId)}
            onOpen={onOpen}
          />
        ))}
      </ol>
      {held.more && (
        <p className="older">
          <button type="button" disabled={older.reading} onClick={() => void older.read()}>
            {older.reading ? "Reading…" : "Older entries"}
          </button>
        </p>
      )}
    </>
  );
}

function filterOf(query: URLSearchParams): LogFilter {
  const found = Object.entries(NAMES).map(([field, name]) => [field, query.get(name) ?? ""]);
  return { ...EVERYTHING, ...(Object.fromEntries(found) as Partial<LogFilter>) };
}

function addressOf(filter: LogFilter): string {
  const query = new URLSearchParams();
  for (const [field, name] of Object.entries(NAMES)) {
    const value = filter[field as keyof LogFilter];
    if (value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text === "" ? "/log" : `/log?${text}`;
}
