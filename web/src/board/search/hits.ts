/** What a search found, in the groups that it is shown in. */
import type { EntryHit, SearchOut, TaskHit, TopicHit } from "../../api/schema";

/** One line of the results. */
export type Hit =
  | { kind: "topic"; id: string; to: string; topic: TopicHit }
  | { kind: "task"; id: string; to: string; task: TaskHit }
  | { kind: "entry"; id: string; to: string; entry: EntryHit };

export interface HitGroup {
  name: string;
  hits: Hit[];
}

/** Topics, tasks, notes, entries; groups without a hit are left out. */
export function hitGroups(found: SearchOut): HitGroup[] {
  const groups: HitGroup[] = [
    { name: "Topics", hits: found.topics.map(topicHit) },
    { name: "Tasks", hits: found.tasks.map(taskHit) },
    { name: "Notes", hits: found.notes.map(entryHit) },
    { name: "Entries", hits: found.logs.map(entryHit) },
  ];
  return groups.filter((group) => group.hits.length > 0);
}

function topicHit(topic: TopicHit): Hit {
  return { kind: "topic", id: topic.id, to: `/board/topics/${encodeURIComponent(topic.id)}`, topic };
}

function taskHit(task: TaskHit): Hit {
  const to = `/board/topics/${encodeURIComponent(task.topicId)}?task=${encodeURIComponent(task.id)}`;
  return { kind: "task", id: task.id, to, task };
}

function entryHit(entry: EntryHit): Hit {
  return { kind: "entry", id: entry.id, to: `/log/${encodeURIComponent(entry.id)}`, entry };
}
