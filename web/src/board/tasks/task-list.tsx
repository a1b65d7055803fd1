/** The tasks of a topic by how they stand. */
import "./tasks.css";

import { useState } from "react";

import type { Problem } from "../../api/problem";
import type { Collection, Held } from "../../live/collection";
import { OneLine } from "../../parts/one-line";
import { Loading, Trouble } from "../../parts/states";
import { type Group, taskGroups } from "../group";
import { useMayWrite } from "../may";
import { wordFor } from "../statuses";
import { MAX_TITLE, type Task, type TaskStatus } from "../types";
import { DRAGGED, TaskCard } from "./task-card";

interface TaskListProps {
  topicId: string;
  tasks: Collection<Task>;
  held: Held<Task>;
  chosen: string | null;
}

export function TaskList({ topicId, tasks, held, chosen }: TaskListProps) {
  const may = useMayWrite();
  return (
    <section className="tasks" aria-label="Tasks">
      <h2>Tasks</h2>
      {may && (
        <OneLine
          label="Title of a new task"
          placeholder="New task…"
          button="Add"
          maxLength={MAX_TITLE}
          onSubmit={(title) => tasks.make({ title, topicId })}
        />
      )}
      {held.problem !== undefined && <Trouble problem={held.problem} />}
      {!held.loaded && held.problem === undefined && <Loading what="the tasks" />}
      {held.loaded && held.rows.length === 0 && <p className="quiet">No tasks yet.</p>}
      {held.rows.length > 0 &&
        taskGroups(held.rows).map((group) => (
          <TaskGroup key={group.status} group={group} tasks={tasks} refused={held.refused} chosen={chosen} />
        ))}
    </section>
  );
}

interface TaskGroupProps {
  group: Group<TaskStatus, Task>;
  tasks: Collection<Task>;
  refused: ReadonlyMap<string, Problem>;
  chosen: string | null;
}

function TaskGroup({ group, tasks, refused, chosen }: TaskGroupProps) {
  const [over, setOver] = useState(false);
  return (
    <div
      className={over ? "task-group over" : "task-group"}
      data-status={group.status}
      onDragOver={(event) => {
        if (!event.dataTransfer.types.includes(DRAGGED)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        setOver(false);
        void tasks.edit(event.dataTransfer.getData(DRAGGED), { status: group.status });
      }}
    >
      <h3>
        {wordFor(group.status)} <span className="count">{group.rows.length}</span>
      </h3>
      <ul>
        {group.rows.map((task) => (
          <TaskCard key={task.id} task={task} tasks={tasks} refused={refused.get(task.id)} chosen={chosen === task.id} />
        ))}
      </ul>
    </div>
  );
}
