/** One topic on the board: what it is, how it stands, and what can be done about it in place. */
import { type KeyboardEvent, useState } from "react";

import { Choice } from "../../parts/choice";
import { focusSoon } from "../../parts/focus";
import { gist } from "../../parts/gist";
import { Icon } from "../../parts/icon";
import { Refused } from "../../parts/refused";
import { toast } from "../../parts/toast";
import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { useMayWrite } from "../may";
import { topics } from "../places";
import { COLUMNS, TOPIC_STATUSES, wordFor } from "../statuses";
import type { Problem } from "../../api/problem";
import type { Task, Topic, TopicStatus } from "../types";
import { TopicFacts } from "./topic-facts";
import { TopicForm } from "./topic-form";

interface TopicRowProps {
  topic: Topic;
  tasks: readonly Task[];
  /** Named where topics of several spaces stand together. */
  spaceName: string | undefined;
  refused: Problem | undefined;
  /** Up and down among its neighbours; missing where there is no way. */
  onUp: (() => void) | undefined;
  onDown: (() => void) | undefined;
}

const CHOICES = TOPIC_STATUSES.map((status) => [status, wordFor(status)] as const);

export function TopicRow({ topic, tasks, spaceName, refused, onUp, onDown }: TopicRowProps) {
  const [open, setOpen] = useState(false);
  const may = useMayWrite();

  /** With Alt, the arrow keys move it: to the next column, or among its neighbours. */
  function pressed(event: KeyboardEvent): void {
    if (!event.altKey || !may) return;
    const side = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const at = COLUMNS.indexOf(topic.status);
    const status = side === 0 || at === -1 ? undefined : COLUMNS[at + side];
    if (status !== undefined) void moveTopic([topic], topic.id, statusChange(status), `to ${wordFor(status)}`);
    else if (event.key === "ArrowUp") onUp?.();
    else if (event.key === "ArrowDown") onDown?.();
    else return;
    event.preventDefault();
    focusSoon(`[data-topic="${CSS.escape(topic.id)}"] h3 a`);
  }

  return (
    <div
      className="topic"
      data-topic={topic.id}
      draggable={may && !open}
      onDragStart={(event) => event.dataTransfer.setData(DRAGGED_TOPIC, topic.id)}
      onKeyDown={pressed}
    >
      <div className="topic-line">
        <span className="dot" style={topic.color === null ? undefined : { background: topic.color }} />
        <div className="topic-what">
          <h3>
            <Link to={`/board/topics/${encodeURIComponent(topic.id)}`}>
              <Told text={topic.name} />
            </Link>
          </h3>
          <TopicFacts topic={topic}>
            <TaskCounts tasks={tasks} />
            {spaceName !== undefined && (
              <span className="quiet">
                <Told text={spaceName} />
              </span>
            )}
          </TopicFacts>
          {topic.digest !== null && (
            <p className="digest" title={topic.digest}>
              <Told text={gist(topic.digest)} />
            </p>
          )}
        </div>
        <div className="topic-tools">
          <Choice
            className="quiet-choice"
            label={`Status of ${topic.name}`}
            value={topic.status}
            options={CHOICES}
            disabled={!may}
            onChange={(status) => {
              void topics.edit(topic.id, statusChange(status));
              focusSoon(`[data-topic="${CSS.escape(topic.id)}"] select`);
            }}
          />
          <button
            type="button"
            className="tool"
            aria-pressed={topic.pinned}
            aria-label={`Pin ${topic.name}`}
            title={topic.pinned ? "Pinned" : "Pin"}
            disabled={!may}
            onClick={() => void topics.edit(topic.id, { pinned: !topic.pinned })}
          >
            <Icon name="pin" filled={topic.pinned} />
          </button>
          <button
            type="button"
            className="tool"
            aria-expanded={open}
            aria-label={`Edit ${topic.name}`}
            title="Edit"
            disabled={!may}
            onClick={() => setOpen(!open)}
          >
            <Icon name={open ? "close" : "edit"} />
          </button>
        </div>
      </div>
      <Refused problem={refused} excuse={() => topics.excuse(topic.id)} />
      {open && <TopicForm topic={topic} close={() => setOpen(false)} onUp={onUp} onDown={onDown} />}
    </div>
  );
}

export const DRAGGED_TOPIC = "text/x-holdfast-topic";

/** Move a topic, and offer the way back. */
export async function moveTopic(
  known: readonly Topic[],
  id: string,
  change: Partial<Topic>,
  where: string,
): Promise<void> {
  const topic = known.find((one) => one.id === id);
  if (topic === undefined || Object.entries(change).every(([name, value]) => topic[name as keyof Topic] === value)) return;
  const before = Object.fromEntries(Object.keys(change).map((name) => [name, topic[name as keyof Topic]]));
  if (await topics.edit(id, change)) {
    toast(`${topic.name} moved ${where}.`, { undo: () => void topics.edit(id, before) });
  }
}

/** Any status but that of a snooze ends one: it is shown so before the gateway says so. */
export function statusChange(status: TopicStatus): Partial<Topic> {
  return status === "snoozed" ? { status } : { status, snoozedUntil: null };
}

function TaskCounts({ tasks }: { tasks: readonly Task[] }) {
  const open = tasks.filter((task) => task.status !== "done");
  const blocked = open.filter((task) => task.status === "blocked").length;
  if (open.length === 0) return null;
  return (
    <span className="nowrap">
      {open.length} {open.length === 1 ? "task" : "tasks"}
      {blocked > 0 && <span className="soon">, {blocked} blocked</span>}
    </span>
  );
}
