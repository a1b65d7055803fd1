/** What was said about a topic, or about one task of it: newest at the bottom, older on demand. */
import "./thread.css";

import { useEffect, useLayoutEffect, useMemo, useRef } from "react";

import { Loading, Nothing, Trouble } from "../../parts/states";
import { useEntries, useOlder } from "../log/entries";
import { EntryRow } from "../log/entry-row";
import { EVERYTHING } from "../log/matches";
import { newestFirst } from "../log/order";
import { useSeesRuns } from "../may";
import type { Entry, Task } from "../types";
import { Composer } from "./composer";
import { Reply } from "./reply";
import { useRun } from "./runs";

interface ThreadProps {
  topicId: string;
  taskId: string | null;
  tasks: readonly Task[];
}

const NEAR = 80;

export function Thread({ topicId, taskId, tasks }: ThreadProps) {
  const { entries, held } = useEntries({ ...EVERYTHING, topicId, taskId: taskId ?? "" });
  const rows = useMemo(() => held.rows.toSorted((a, b) => newestFirst(b, a)), [held.rows]);
  const older = useOlder(entries);
  const sessionKey = taskId === null ? `clawboard:topic:${topicId}` : `clawboard:task:${topicId}:${taskId}`;
  const seesRuns = useSeesRuns();
  const isUsed = rows.some((entry) => entry.source?.sessionKey === sessionKey);
  const run = useRun(sessionKey, seesRuns && isUsed);
  const scroller = useSteadyScroll(rows, run?.text ?? "");
  const byId = new Map(tasks.map((task) => [task.id, task]));

  return (
    <section className="thread" aria-label="Thread">
      <div className="thread-rows" ref={scroller} tabIndex={0} role="group" aria-label="Entries, newest last">
        {held.more && (
          <p className="older">
            <button type="button" disabled={older.reading} onClick={() => void older.read()}>
              {older.reading ? "Reading…" : "Older entries"}
            </button>
          </p>
        )}
        {held.problem !== undefined && <Trouble problem={held.problem} again={entries.reload} />}
        {!held.loaded && held.problem === undefined && <Loading what="the thread" />}
        {held.loaded && rows.length === 0 && run === null && <Nothing>Nothing was said here yet.</Nothing>}
        <ol className="entries">
          {rows.map((entry) => (
            <EntryRow
              key={entry.id}
              entry={entry}
              entries={entries}
              refused={held.refused.get(entry.id)}
              task={taskId === null && entry.taskId !== null ? byId.get(entry.taskId) : undefined}
            />
          ))}
        </ol>
        {run !== null && <Reply run={run} />}
      </div>
      <Composer topicId={topicId} taskId={taskId} sessionKey={sessionKey} onNote={(entry) => entries.take(entry)} />
    </section>
  );
}

/** At the bottom one stays at the bottom; what is read further up stays where it is when more comes above it. */
function useSteadyScroll(rows: readonly Entry[], saying: string): React.RefObject<HTMLDivElement | null> {
  const scroller = useRef<HTMLDivElement>(null);
  const before = useRef({ first: "", height: 0, atBottom: true });
  const first = rows[0]?.id ?? "";

  useLayoutEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const was = before.current;
    if (was.atBottom) box.scrollTop = box.scrollHeight;
    else if (first !== was.first) box.scrollTop += box.scrollHeight - was.height;
    before.current = { ...was, first, height: box.scrollHeight };
  }, [rows, first, saying]);

  useEffect(() => {
    const box = scroller.current;
    if (box === null) return;
    const look = (): void => {
      const left = box.scrollHeight - box.scrollTop - box.clientHeight;
      before.current = { ...before.current, atBottom: left < NEAR };
    };
    box.addEventListener("scroll", look, { passive: true });
    return () => box.removeEventListener("scroll", look);
  }, []);

  return scroller;
}
