/** One task: moved on with a button, a select, Alt and an arrow key, or by dragging it. */
import { type KeyboardEvent, useState } from "react";

import type { Problem } from "../../api/problem";
import type { Collection } from "../../live/collection";
import { Due } from "../../parts/day";
import { focusSoon } from "../../parts/focus";
import { Icon } from "../../parts/icon";
import { Refused } from "../../parts/refused";
import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { useMayWrite } from "../may";
import { TASK_STATUSES, wordFor } from "../statuses";
import { PriorityMark } from "../topics/priority-mark";
import type { Task } from "../types";
import { TaskForm } from "./task-form";

interface TaskCardProps {
  task: Task;
  tasks: Collection<Task>;
  refused: Problem | undefined;
  /** Its thread is the one that is shown. */
  chosen: boolean;
}

export const DRAGGED = "text/x-holdfast-task";

export function TaskCard({ task, tasks, refused, chosen }: TaskCardProps) {
  const [open, setOpen] = useState(false);
  const may = useMayWrite();
  const at = TASK_STATUSES.indexOf(task.status);

  function move(by: -1 | 1, focus: string): void {
    const status = TASK_STATUSES[at + by];
    if (status === undefined || !may) return;
    void tasks.edit(task.id, { status });
    focusSoon(`[data-task="${CSS.escape(task.id)}"] ${focus}`);
  }

  function pressed(event: KeyboardEvent): void {
    if (!event.altKey || (event.key !== "ArrowRight" && event.key !== "ArrowLeft")) return;
    event.preventDefault();
    move(event.key === "ArrowRight" ? 1 : -1, "a");
  }

  const back = TASK_STATUSES[at - 1];
  const next = TASK_STATUSES[at + 1];
  return (
    <li
      className="task"
      data-task={task.id}
      aria-current={chosen ? "true" : undefined}
      draggable={may && !open}
      onDragStart={(event) => event.dataTransfer.setData(DRAGGED, task.id)}
      onKeyDown={pressed}
    >
      <div className="task-line">
        <div className="grow">
          <Link
            to={`/board/topics/${encodeURIComponent(task.topicId)}${chosen ? "" : `?task=${encodeURIComponent(task.id)}`}`}
            aria-keyshortcuts="Alt+ArrowLeft Alt+ArrowRight"
            draggable={false}
          >
            <Told text={task.title} />
          </Link>
          <p className="topic-facts">
            {task.pinned && <span className="quiet">Pinned</span>}
            <PriorityMark priority={task.priority} />
            {task.dueDate !== null && <Due at={task.dueDate} done={task.status === "done"} />}
          </p>
        </div>
        {may && (
          <div className="task-tools">
            <Step to={back} title={task.title} sign="back" onClick={() => move(-1, ".step-back")} />
            <Step to={next} title={task.title} sign="next" onClick={() => move(1, ".step-next")} />
            <button
              type="button"
              className="tool"
              aria-expanded={open}
              aria-label={`Edit ${task.title}`}
              title="Edit"
              onClick={() => setOpen(!open)}
            >
              <Icon name={open ? "close" : "edit"} />
            </button>
          </div>
        )}
      </div>
      <Refused problem={refused} excuse={() => tasks.excuse(task.id)} />
      {open && <TaskForm task={task} tasks={tasks} close={() => setOpen(false)} />}
    </li>
  );
}

interface StepProps {
  to: Task["status"] | undefined;
  title: string;
  sign: "back" | "next";
  onClick: () => void;
}

function Step({ to, title, sign, onClick }: StepProps) {
  const word = to === undefined ? "" : wordFor(to);
  return (
    <button
      type="button"
      className={`tool step-${sign}`}
      disabled={to === undefined}
      aria-label={to === undefined ? `${title} is at the end` : `Move ${title} to ${word}`}
      title={to === undefined ? undefined : `Move to ${word}`}
      onClick={onClick}
    >
      <Icon name={sign} />
    </button>
  );
}
