/** The spaces and topics of the board: one list of each, for every page. */
import { useMemo, useSyncExternalStore } from "react";

import { Collection, type Held } from "../live/collection";
import type { Space, Task, Topic } from "./types";

export const spaces = new Collection<Space>({ path: "/api/spaces", prefix: "space.", linked: true });

export const topics = new Collection<Topic>({
  path: "/api/topics",
  query: { limit: 500 },
  prefix: "topic.",
  pages: 4,
});

export function useSpaces(): Held<Space> {
  return useSyncExternalStore(spaces.watch, spaces.current);
}

export function useTopics(): Held<Topic> {
  return useSyncExternalStore(topics.watch, topics.current);
}

/** What names the topics and spaces have, by their ids. */
export function useNames(): { topic: Map<string, Topic>; space: Map<string, Space> } {
  const known = useTopics().rows;
  const places = useSpaces().rows;
  return useMemo(
    () => ({
      topic: new Map(known.map((one) => [one.id, one])),
      space: new Map(places.map((one) => [one.id, one])),
    }),
    [known, places],
  );
}

/** The tasks of a topic; of all topics, as far as they changed lately, for null. */
export function useTasks(topicId: string | null): { tasks: Collection<Task>; held: Held<Task> } {
  const tasks = useMemo(() => tasksOf(topicId), [topicId]);
  return { tasks, held: useSyncExternalStore(tasks.watch, tasks.current) };
}

function tasksOf(topicId: string | null): Collection<Task> {
  if (topicId === null) return allTasks;
  return new Collection<Task>({
    path: "/api/tasks",
    query: { topicId, limit: 500 },
    prefix: "task.",
    pages: 4,
    holds: (task) => task.topicId === topicId,
  });
}

const allTasks = new Collection<Task>({ path: "/api/tasks", query: { limit: 500 }, prefix: "task.", pages: 2 });
