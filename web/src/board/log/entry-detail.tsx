/** An entry opened: where it came from, why it lies where it does, what it was before it was cleaned; moved, removed. */
import type { ReactNode } from "react";

import { get } from "../../api/client";
import type { Collection } from "../../live/collection";
import { useLoaded } from "../../live/loaded";
import { Confirm } from "../../parts/confirm";
import { Facts } from "../../parts/facts";
import { Loading, Trouble } from "../../parts/states";
import { Told, Verbatim } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { useMayWrite } from "../may";
import { useNames } from "../places";
import type { Decision, Entry, Topic } from "../types";
import { EntryMove } from "./entry-move";
import { Why } from "./why";

interface Account {
  raw: string | null;
  decision: Decision;
}

async function account(id: string, signal: AbortSignal): Promise<Account> {
  const path = encodeURIComponent(id);
  const [entry, decision] = await Promise.all([
    get<Entry>(`/api/log/${path}`, { includeRaw: true }, signal),
    get<Decision>(`/api/classifier/decisions/${path}`, {}, signal),
  ]);
  return { raw: entry.raw ?? null, decision };
}

export function EntryDetail({ entry, entries }: { entry: Entry; entries: Collection<Entry> }) {
  const key = `${entry.id} ${entry.updatedAt}`;
  const { value, problem, loading } = useLoaded(key, (signal) => account(entry.id, signal));
  const names = useNames();
  const may = useMayWrite();
  const topic = entry.topicId === null ? undefined : names.topic.get(entry.topicId);
  return (
    <div className="entry-detail">
      <Facts rows={factsOf(entry, topic)} />
      {loading && <Loading what="why it lies here" />}
      {problem !== undefined && <Trouble problem={problem} />}
      {value !== undefined && <Why entry={entry} decision={value.decision} />}
      <details>
        <summary>Exactly as it is</summary>
        <Verbatim text={entry.content} label="The text, letter by letter" />
      </details>
      {value?.raw != null && (
        <details>
          <summary>As it was sent</summary>
          <Verbatim text={value.raw} label="The text as it was sent" />
        </details>
      )}
      {may && (
        <div className="entry-tools">
          <EntryMove key={`${entry.topicId ?? ""} ${entry.taskId ?? ""}`} entry={entry} entries={entries} />
          <Confirm
            label="Delete entry"
            question="It is hidden everywhere at once."
            onConfirm={() => void entries.delete(entry.id)}
          />
        </div>
      )}
    </div>
  );
}

function factsOf(entry: Entry, topic: Topic | undefined): (readonly [string, ReactNode])[] {
  const session = entry.source?.sessionKey;
  const place = encodeURIComponent(entry.topicId ?? "");
  const rows: (readonly [string, ReactNode] | null)[] = [
    [
      "Topic",
      entry.topicId === null ? (
        <span className="quiet">none</span>
      ) : (
        <Link to={`/board/topics/${place}`}>
          <Told text={topic?.name ?? entry.topicId} />
        </Link>
      ),
    ],
    session === undefined
      ? null
      : [
          "Session",
          <Link key="session" to={`/log?session=${encodeURIComponent(session)}`}>
            <Told text={session} />
          </Link>,
        ],
    entry.relatedLogId === null
      ? null
      : [
          "About",
          <Link key="about" to={`/log/${encodeURIComponent(entry.relatedLogId)}`}>
            an earlier entry
          </Link>,
        ],
    entry.summary === null ? null : ["In short", <Told key="summary" text={entry.summary} />],
    [
      "Id",
      <Link key="id" to={`/log/${encodeURIComponent(entry.id)}`}>
        <code>{entry.id}</code>
      </Link>,
    ],
  ];
  return rows.filter((row) => row !== null);
}
