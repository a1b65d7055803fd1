/** How topics and tasks are arranged. Decisions only. */
import { COLUMNS, TASK_STATUSES, TOPIC_STATUSES } from "./statuses";
import type { Task, TaskStatus, Topic, TopicStatus } from "./types";

export interface Wanted {
  /** Part of a name, description, tag or digest; any case. */
  text: string;
  spaceId: string | null;
  priority: string;
  tag: string;
}

export interface Group<S, T> {
  status: S;
  rows: T[];
}

/** A topic whose snooze is over is active again: nothing needs to happen for that. */
export function asOf(topic: Topic, now: number): Topic {
  if (topic.status !== "snoozed" || topic.snoozedUntil === null) return topic;
  return Date.parse(topic.snoozedUntil) > now ? topic : { ...topic, status: "active", snoozedUntil: null };
}

export function isWanted(topic: Topic, wanted: Wanted): boolean {
  if (wanted.spaceId !== null && !topic.spaceIds.includes(wanted.spaceId)) return false;
  if (wanted.priority !== "" && topic.priority !== wanted.priority) return false;
  if (wanted.tag !== "" && !topic.tags.includes(wanted.tag)) return false;
  const words = wanted.text.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return true;
  const all = [topic.name, topic.description ?? "", topic.digest ?? "", ...topic.tags].join("\n").toLowerCase();
  return words.every((word) => all.includes(word));
}

/** Topics by status, pinned ones first, else in the order that the user gave them; empty groups only as columns. */
export function topicGroups(topics: readonly Topic[], asColumns = false): Group<TopicStatus, Topic>[] {
  const sorted = topics.toSorted(
    (a, b) => Number(b.pinned) - Number(a.pinned) || a.sortIndex - b.sortIndex || (a.id < b.id ? -1 : 1),
  );
  const order = asColumns ? [...COLUMNS, ...TOPIC_STATUSES.filter((status) => !COLUMNS.includes(status))] : TOPIC_STATUSES;
  return order
    .map((status) => ({ status, rows: sorted.filter((topic) => topic.status === status) }))
    .filter((group) => group.rows.length > 0 || (asColumns && COLUMNS.includes(group.status)));
}

const WEIGHT = { high: 0, medium: 1, low: 2 };

/** Tasks by status, every status there: what is pinned, urgent or due first; what is done, newest first. */
export function taskGroups(tasks: readonly Task[]): Group<TaskStatus, Task>[] {
  return TASK_STATUSES.map((status) => ({
    status,
    rows: tasks.filter((task) => task.status === status).toSorted(status === "done" ? byChange : byUrgency),
  }));
}

function byUrgency(a: Task, b: Task): number {
  return (
    Number(b.pinned) - Number(a.pinned) ||
    WEIGHT[a.priority] - WEIGHT[b.priority] ||
    due(a) - due(b) ||
    (a.createdAt < b.createdAt ? -1 : 1)
  );
}

function byChange(a: Task, b: Task): number {
  return a.updatedAt < b.updatedAt ? 1 : -1;
}

function due(task: Task): number {
  return task.dueDate === null ? Number.MAX_SAFE_INTEGER : Date.parse(task.dueDate);
}

/** How many topics lie in each space; those put away are not counted. */
export function countsOfSpaces(topics: readonly Topic[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const topic of topics) {
    if (topic.status === "archived") continue;
    for (const id of topic.spaceIds) counts.set(id, (counts.get(id) ?? 0) + 1);
  }
  return counts;
}

/** Tags that say something to a person: not those of the system, nor those that only name a space. */
export function plainTags(tags: readonly string[]): string[] {
  return tags.filter((tag) => !tag.includes(":"));
}

/** The order of ids after a topic went up or down among its neighbours; null where it cannot. */
export function moved(ids: readonly string[], id: string, by: -1 | 1): string[] | null {
  const from = ids.indexOf(id);
  const to = from + by;
  if (from === -1 || to < 0 || to >= ids.length) return null;
  const order = [...ids];
  order.splice(from, 1);
  order.splice(to, 0, id);
  return order;
}
