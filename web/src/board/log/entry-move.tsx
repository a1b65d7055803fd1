import { type SyntheticEvent, useState } from "react";

import type { Collection } from "../../live/collection";
import { Choice } from "../../parts/choice";
import { useTasks, useTopics } from "../places";
import type { Entry } from "../types";

/** Puts an entry under another topic or task; it then counts as sorted. */
export function EntryMove({ entry, entries }: { entry: Entry; entries: Collection<Entry> }) {
  const [topicId, setTopicId] = useState(entry.topicId ?? "");
  const [taskId, setTaskId] = useState(entry.taskId ?? "");
  const { rows } = useTopics();
  const topics = rows.toSorted((a, b) => a.name.localeCompare(b.name));
  const { held } = useTasks(topicId === "" ? null : topicId);
  const tasks = topicId === "" ? [] : held.rows.toSorted((a, b) => a.title.localeCompare(b.title));
  const isMoved = topicId !== (entry.topicId ?? "") || taskId !== (entry.taskId ?? "");

  function submit(event: SyntheticEvent): void {
    event.preventDefault();
    void entries.edit(entry.id, {
      topicId: topicId === "" ? null : topicId,
      taskId: taskId === "" ? null : taskId,
      classificationStatus: "classified",
    });
  }

  return (
    <form className="row" aria-label="Move this entry" onSubmit={submit}>
      <Choice
        label="Topic"
        value={topicId}
        options={[["", "No topic"], ...topics.map((topic) => [topic.id, topic.name] as const)]}
        onChange={(id) => {
          setTopicId(id);
          setTaskId("");
        }}
      />
      <Choice
        label="Task"
        value={taskId}
        disabled={tasks.length === 0}
        options={[["", "No task"], ...tasks.map((task) => [task.id, task.title] as const)]}
        onChange={setTaskId}
      />
      <button type="submit" disabled={!isMoved}>
        Move
      </button>
    </form>
  );
}
