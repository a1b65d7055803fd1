/** One entry, in the log as in a thread: who said what, when, how it was sorted; more on demand. */
import "./entries.css";

import { memo, useState } from "react";

import type { Problem } from "../../api/problem";
import type { Collection } from "../../live/collection";
import { gist } from "../../parts/gist";
import { Prose } from "../../parts/prose";
import { Refused } from "../../parts/refused";
import { Ago } from "../../parts/time";
import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import type { Entry, Task, Topic } from "../types";
import { EntryDetail } from "./entry-detail";
import { EntryState } from "./entry-state";
import { useWho } from "./who";

interface EntryRowProps {
  entry: Entry;
  entries: Collection<Entry>;
  refused: Problem | undefined;
  /** Named where entries of several topics, or of several tasks, stand together. */
  topic?: Topic | undefined;
  task?: Task | undefined;
  onOpen?: ((id: string, open: boolean) => void) | undefined;
}

const LONG = 900;

/** Drawn anew only when something of its own changes: beside an answer that is being given stand many of them. */
export const EntryRow = memo(function EntryRow({ entry, entries, refused, topic, task, onOpen }: EntryRowProps) {
  const [open, setOpen] = useState(false);
  const [whole, setWhole] = useState(false);
  const whoOf = useWho();
  const isLong = entry.content.length > LONG || entry.content.split("\n").length > 14;

  function toggle(): void {
    setOpen(!open);
    onOpen?.(entry.id, !open);
  }

  return (
    <li className={`entry of-${entry.agentId === "user" ? "user" : "agent"} is-${entry.type}`} data-entry={entry.id}>
      <div className="entry-head">
        <strong className="who-said">
          <Told text={whoOf(entry)} />
        </strong>
        <span className="quiet">
          <Ago at={entry.createdAt} />
        </span>
        <EntryState entry={entry} />
        {topic !== undefined && (
          <Link className="entry-place" to={`/board/topics/${encodeURIComponent(topic.id)}`}>
            <Told text={topic.name} />
          </Link>
        )}
        {task !== undefined && (
          <Link
            className="entry-place"
            to={`/board/topics/${encodeURIComponent(task.topicId)}?task=${encodeURIComponent(task.id)}`}
          >
            <Told text={task.title} />
          </Link>
        )}
        <button type="button" className="plain entry-more" aria-expanded={open} onClick={toggle}>
          {open ? "Less" : "Details"}
        </button>
      </div>
      <div className={isLong && !whole ? "said clipped" : "said"}>
        {entry.type === "action" ? <Told text={gist(entry.content)} /> : <Prose text={entry.content} below={1} />}
      </div>
      {isLong && (
        <button type="button" className="plain" onClick={() => setWhole(!whole)}>
          {whole ? "Show less" : "Show all of it"}
        </button>
      )}
      <Refused problem={refused} excuse={() => entries.excuse(entry.id)} />
      {open && <EntryDetail entry={entry} entries={entries} />}
    </li>
  );
});
