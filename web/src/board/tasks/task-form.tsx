/** What a person may change about a task, beyond where it stands. */
import "../topics/topic-form.css";

import { type SyntheticEvent, useState } from "react";

import type { Collection } from "../../live/collection";
import { Confirm } from "../../parts/confirm";
import { endOfDay, fieldOf } from "../../parts/day";
import { PRIORITIES, wordFor } from "../statuses";
import { MAX_TITLE, type Priority, type Task } from "../types";

export function TaskForm({ task, tasks, close }: { task: Task; tasks: Collection<Task>; close: () => void }) {
  const [title, setTitle] = useState(task.title);
  const [priority, setPriority] = useState(task.priority);
  const [due, setDue] = useState(fieldOf(task.dueDate));

  function submit(event: SyntheticEvent): void {
    event.preventDefault();
    const change = {
      ...(title.trim() !== task.title && { title: title.trim() }),
      ...(priority !== task.priority && { priority }),
      ...(due !== fieldOf(task.dueDate) && { dueDate: endOfDay(due) }),
    };
    close();
    if (Object.keys(change).length > 0) void tasks.edit(task.id, change);
  }

  return (
    <form className="topic-form" aria-label={`Edit ${task.title}`} onSubmit={submit}>
      <label className="wide">
        Title
        <input
          type="text"
          autoFocus
          required
          maxLength={MAX_TITLE}
          value={title}
          onChange={(event) => setTitle(event.target.value)}
        />
      </label>
      <label>
        Priority
        <select value={priority} onChange={(event) => setPriority(event.target.value as Priority)}>
          {PRIORITIES.map((one) => (
            <option key={one} value={one}>
              {wordFor(one)}
            </option>
          ))}
        </select>
      </label>
      <label>
        Due
        <input type="date" value={due} onChange={(event) => setDue(event.target.value)} />
      </label>
      <div className="row wide">
        <button type="submit" className="primary">
          Save
        </button>
        <button type="button" onClick={() => void tasks.edit(task.id, { pinned: !task.pinned })}>
          {task.pinned ? "Unpin" : "Pin"}
        </button>
        <Confirm
          label="Delete"
          question="What was logged under it stays."
          onConfirm={() => void tasks.delete(task.id)}
        />
      </div>
    </form>
  );
}
