/** One topic: its thread, its tasks, and what is known about it. */
import "./topic-page.css";

import { type ReactNode, useState } from "react";

import { get } from "../../api/client";
import { useLoaded } from "../../live/loaded";
import { Choice } from "../../parts/choice";
import { useMoment } from "../../parts/day";
import { Icon } from "../../parts/icon";
import { Refused } from "../../parts/refused";
import { ConversationView } from "../../conversation/conversation";
import { FindButton } from "../../conversation/finder";
import { Prose } from "../../parts/prose";
import { Loading, Nothing, Trouble } from "../../parts/states";
import { useTitle } from "../../parts/title";
import { Told } from "../../parts/verbatim";
import { go, Link, type PageProps } from "../../router/router";
import { asOf } from "../group";
import { useMayAsk, useMayWrite, useSeesRuns } from "../may";
import { topics, useNames, useTasks, useTopics } from "../places";
import { TOPIC_STATUSES, wordFor } from "../statuses";
import { TaskList } from "../tasks/task-list";
import type { Topic } from "../types";
import { TopicFacts } from "./topic-facts";
import { TopicForm } from "./topic-form";
import { statusChange } from "./topic-row";

export default function TopicPage({ params, query }: PageProps) {
  const id = params.id ?? "";
  const held = useTopics();
  const known = held.rows.find((one) => one.id === id);
  // One that lies behind the pages that the board reads is asked for by itself, and heard of from then on.
  const missing = held.loaded && known === undefined;
  const asked = useLoaded(missing ? id : "", async (signal) => {
    if (!missing) return;
    topics.take(await get<Topic>(`/api/topics/${encodeURIComponent(id)}`, {}, signal));
  });
  const problem = known === undefined ? (asked.problem ?? held.problem) : undefined;

  if (problem !== undefined) {
    return (
      <>
        <h1>Topic</h1>
        <Trouble problem={problem}>
          <Link to="/board">To the board</Link>
        </Trouble>
      </>
    );
  }
  if (known === undefined) return <Loading what="the topic" />;
  return <TopicView key={id} topic={known} taskId={query.get("task")} />;
}

function TopicView({ topic: told, taskId }: { topic: Topic; taskId: string | null }) {
  const topic = asOf(told, useMoment());
  useTitle(topic.name);
  const { tasks, held } = useTasks(topic.id);
  const task = held.rows.find((one) => one.id === taskId);
  const [finding, setFinding] = useState(false);
  return (
    <div className="topic-page">
      <div className="topic-first">
        <div className="topic-top">
          <p className="trail">
            <SpaceTrail topic={topic} />
          </p>
          <TopicHead topic={topic}>
            <FindButton where={taskId === null ? "topic" : "task"} finding={finding} onFind={setFinding} />
          </TopicHead>
        </div>
        <div className="topic-thread">
          {taskId !== null && (
            <p className="note thread-of">
              <span>
                About the task <strong>{task === undefined ? taskId : <Told text={task.title} />}</strong>
              </span>
              <Link to={`/board/topics/${encodeURIComponent(topic.id)}`}>Whole topic</Link>
            </p>
          )}
          <TopicThread key={taskId ?? ""} topic={topic} taskId={taskId} finding={finding} onFound={() => setFinding(false)} />
        </div>
      </div>
      <div className="topic-side">
        <TaskList topicId={topic.id} tasks={tasks} held={held} chosen={taskId} />
        {topic.digest !== null && (
          <section aria-label="Digest">
            <h2>In short</h2>
            <div className="digest whole">
              <Prose text={topic.digest} />
            </div>
          </section>
        )}
      </div>
    </div>
  );
}

interface ThreadProps {
  topic: Topic;
  taskId: string | null;
  finding: boolean;
  onFound: () => void;
}

/** What was said about a topic anywhere; what is written here goes to the topic's own session. */
function TopicThread({ topic, taskId, finding, onFound }: ThreadProps) {
  const mayWrite = useMayWrite();
  const mayAsk = useMayAsk();
  const unlimited = useSeesRuns();
  const sessionKey = taskId === null ? `clawboard:topic:${topic.id}` : `clawboard:task:${topic.id}:${taskId}`;
  return (
    <ConversationView
      place={{ topicId: topic.id, ...(taskId === null ? {} : { taskId }) }}
      sessionKey={sessionKey}
      agentId={null}
      {...(mayWrite ? { note: { topicId: topic.id, taskId } } : {})}
      mayAsk={mayAsk}
      inspect={
        unlimited
          ? (turn) => `/chat?session=${encodeURIComponent(turn.sessionKey)}&turn=${turn.number}&view=context`
          : null
      }
      finding={finding}
      onFound={onFound}
      empty={<Nothing>Nothing was said here yet. Ask the agent, or keep a note.</Nothing>}
    />
  );
}

function SpaceTrail({ topic }: { topic: Topic }) {
  const names = useNames();
  return (
    <>
      <Link to="/board">Board</Link> <span aria-hidden="true">/</span>{" "}
      <Link to={`/board?space=${encodeURIComponent(topic.spaceId)}`}>
        <Told text={names.space.get(topic.spaceId)?.name ?? topic.spaceId} />
      </Link>
    </>
  );
}

function TopicHead({ topic, children }: { topic: Topic; children: ReactNode }) {
  const [open, setOpen] = useState(false);
  const { refused } = useTopics();
  const may = useMayWrite();
  return (
    <header className="topic-head">
      <div className="topic-line">
        <h1>
          <span className="dot" style={topic.color === null ? undefined : { background: topic.color }} />
          <Told text={topic.name} />
        </h1>
        <div className="topic-tools">
          {children}
          <Choice
            label="Status"
            value={topic.status}
            options={TOPIC_STATUSES.map((status) => [status, wordFor(status)] as const)}
            disabled={!may}
            onChange={(status) => void topics.edit(topic.id, statusChange(status))}
          />
          <button
            type="button"
            aria-pressed={topic.pinned}
            disabled={!may}
            onClick={() => void topics.edit(topic.id, { pinned: !topic.pinned })}
          >
            <Icon name="pin" filled={topic.pinned} /> {topic.pinned ? "Pinned" : "Pin"}
          </button>
          <button type="button" aria-expanded={open} disabled={!may} onClick={() => setOpen(!open)}>
            <Icon name={open ? "close" : "edit"} /> Edit
          </button>
        </div>
      </div>
      <TopicFacts topic={topic} />
      {topic.description !== null && (
        <p className="said">
          <Told text={topic.description} />
        </p>
      )}
      <Refused problem={refused.get(topic.id)} excuse={() => topics.excuse(topic.id)} />
      {open && <TopicForm topic={topic} close={() => setOpen(false)} onDeleted={() => go("/board")} />}
    </header>
  );
}
