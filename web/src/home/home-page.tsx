/** What needs a person, what happened since, what it costs; and for a new home, the way to the first answer. */
import "./home.css";

import { useEffect, useState } from "react";

import { type Turn } from "../api/types";
import { usePending } from "../approvals/pending";
import { nameOf } from "../chat/names";
import { useAgentNames } from "../parts/agents";
import { live } from "../live/live";
import { useApi } from "../live/query";
import { Due, inDays } from "../parts/day";
import { Figures } from "../parts/facts";
import { gist } from "../parts/gist";
import { Icon } from "../parts/icon";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago, Left, useNow } from "../parts/time";
import { Exact, Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { spent } from "../usage/sums";
import { FirstRun } from "./first-run";

const VISITED = "holdfast.visited";
const DAY_MS = 24 * 3600 * 1000;

export default function HomePage() {
  const who = useLoggedIn();
  const unlimited = who.spaces === null && who.agents === null;
  const chats = useApi("/api/chats", { query: { limit: 50 } }, { live: ["session.", "turn."] });
  const isNew = chats.data?.every((chat) => chat.turnCount === 0) ?? false;
  return (
    <div className="home">
      <div className="head">
        <h1>{isNew ? "Welcome to Holdfast" : "Home"}</h1>
        {!isNew && who.scope !== "read" && who.spaces === null && (
          <Link className="button primary" to="/chat?new=1">
            <Icon name="plus" /> New chat
          </Link>
        )}
      </div>
      {chats.error !== null && <Trouble problem={chats.error} again={() => void chats.refetch()} />}
      {chats.data === undefined && chats.error === null && <Skeleton rows={6} what="home" />}
      {unlimited && chats.data !== undefined && <FirstRun isNew={isNew} chats={chats.data} />}
      {chats.data !== undefined && !isNew && (
        <div className="home-columns">
          <div className="home-main">
            <NeedsYou />
            <Since chats={chats.data} />
          </div>
          <div className="home-side">
            {unlimited && <Today />}
            {unlimited && <GoesOn />}
          </div>
        </div>
      )}
    </div>
  );
}

function NeedsYou() {
  const pending = usePending();
  const due = useDue();
  const nameOfAgent = useAgentNames();
  const { data: failed = [] } = useApi("/api/turns", { query: { status: "failed", limit: 20 } }, { live: ["turn."] });
  const waiting = pending.rows.filter((row) => row.status === "pending");
  const now = useNow();
  const recent = failed.filter((turn) => now - Date.parse(turn.acceptedAt) < DAY_MS).slice(0, 5);
  return (
    <section aria-labelledby="needs">
      <h2 id="needs">Needs you</h2>
      {waiting.length === 0 && recent.length === 0 && due.length === 0 && (
        <Nothing>Nothing waits for you. Approvals, failures and what is due appear here.</Nothing>
      )}
      <ul className="rows">
        {waiting.map((approval) => (
          <li key={approval.id}>
            <Link to={approval.sessionKey === null ? "/approvals" : `/chat?session=${encodeURIComponent(approval.sessionKey)}`}>
              <span className="row-sign warn">
                <Icon name="shield" />
              </span>
              <span className="row-words">
                <strong>
                  {nameOfAgent(approval.agentId)} asks to run {approval.tool}
                </strong>
                <code>
                  <Exact text={approval.command.split("\n", 1)[0]?.slice(0, 120) ?? ""} />
                </code>
              </span>
              <span className="quiet">
                <Left until={approval.expiresAt} />
              </span>
            </Link>
          </li>
        ))}
        {recent.map((turn) => (
          <Failed key={turn.turnId} turn={turn} />
        ))}
        {due.map(({ id, name, at, to }) => (
          <li key={id}>
            <Link to={to}>
              <span className="row-sign">
                <Icon name="clock" />
              </span>
              <span className="row-words">
                <strong>
                  <Told text={name} />
                </strong>
              </span>
              <Due at={at} />
            </Link>
          </li>
        ))}
      </ul>
    </section>
  );
}

interface DueThing {
  id: string;
  name: string;
  at: string;
  to: string;
}

/** Topics and tasks that are due by the end of tomorrow, the most urgent first. */
function useDue(): DueThing[] {
  const [until] = useState(() => inDays(live.now(), 2, 0));
  const asked = { query: { dueBefore: until, limit: 20 } };
  const { data: topics = [] } = useApi("/api/topics", asked, { live: ["topic."] });
  const { data: tasks = [] } = useApi("/api/tasks", asked, { live: ["task."] });
  const topicAt = (id: string): string => `/board/topics/${encodeURIComponent(id)}`;
  return [
    ...topics.map((topic) => ({ id: topic.id, name: topic.name, at: topic.dueDate ?? "", to: topicAt(topic.id) })),
    ...tasks.map((task) => ({ id: task.id, name: task.title, at: task.dueDate ?? "", to: `${topicAt(task.topicId)}?task=${encodeURIComponent(task.id)}` })),
  ]
    .sort((a, b) => a.at.localeCompare(b.at))
    .slice(0, 8);
}

function Failed({ turn }: { turn: Turn }) {
  const nameOfAgent = useAgentNames();
  return (
    <li>
      <Link to={`/chat?session=${encodeURIComponent(turn.sessionKey)}`}>
        <span className="row-sign bad">
          <Icon name="warn" />
        </span>
        <span className="row-words">
          <strong>{nameOfAgent(turn.agentId)} gave no answer</strong>
          <span className="quiet">
            <Told text={turn.error ?? "No reason was told."} />
          </span>
        </span>
        <span className="quiet">
          <Ago at={turn.endedAt ?? turn.acceptedAt} />
        </span>
      </Link>
    </li>
  );
}

interface Chatted {
  sessionId: string;
  sessionKey: string;
  title: string | null;
  preview: string | null;
  updatedAt: string;
  running: boolean;
}

function Since({ chats }: { chats: readonly Chatted[] }) {
  const [since] = useState(() => localStorage.getItem(VISITED) ?? "");
  useEffect(() => {
    const leave = (): void => localStorage.setItem(VISITED, new Date().toISOString());
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      leave();
    };
  }, []);
  const fresh = chats.filter((chat) => chat.updatedAt > since);
  const shown = (fresh.length > 0 ? fresh : chats).slice(0, 8);
  return (
    <section aria-labelledby="since">
      <h2 id="since">{fresh.length > 0 && since !== "" ? "Since you were here" : "Recent chats"}</h2>
      <ul className="rows">
        {shown.map((chat) => (
          <li key={chat.sessionId}>
            <Link to={`/chat?session=${encodeURIComponent(chat.sessionKey)}`}>
              <span className="row-sign">{chat.running ? <span className="pulse" /> : <Icon name="chat" />}</span>
              <span className="row-words">
                <strong>
                  <Told text={nameOf(chat)} />
                </strong>
                <span className="quiet">
                  <Told text={chat.preview === chat.title ? (chat.running ? "Working on it" : "No answer came") : gist(chat.preview ?? "Nothing was said yet")} />
                </span>
              </span>
              <span className="quiet">
                <Ago at={chat.updatedAt} />
              </span>
            </Link>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Today() {
  const { data } = useApi("/api/usage", { query: { days: 1 } }, { live: ["turn."] });
  const rows = data?.rows ?? [];
  return (
    <section className="panel" aria-labelledby="today">
      <h2 id="today">Today</h2>
      {data === undefined ? (
        <Skeleton rows={3} what="what was used today" />
      ) : (
        <Figures of={spent(rows)} />
      )}
    </section>
  );
}

/** What agents do next by themselves. */
function GoesOn() {
  const { data: chains = [] } = useApi("/api/chains", { query: { live: true, limit: 20 } }, { live: ["chain.", "turn."] });
  const { data: tasks = [] } = useApi("/api/cron", {}, { live: ["cron."] });
  const going = chains.filter((chain) => chain.steps + chain.sent > 0 || chain.nextDueAt !== null);
  const due = tasks
    .flatMap((task) => (task.nextDue === null || !task.enabled ? [] : [{ id: task.id, name: task.name, at: task.nextDue }]))
    .sort((a, b) => a.at.localeCompare(b.at))
    .slice(0, 5);
  return (
    <section className="panel" aria-labelledby="due">
      <h2 id="due">Goes on by itself</h2>
      {going.length === 0 && due.length === 0 && <p className="quiet">Nothing is under way or scheduled.</p>}
      <ul className="plain-list">
        {going.map((chain) => (
          <li key={chain.id}>
            <span className="pulse" aria-hidden="true" /> <Told text={chain.origin.text ?? chain.origin.sessionKey} />{" "}
            <span className="quiet">
              {chain.steps} of {chain.maxSteps} steps
            </span>
          </li>
        ))}
        {due.map((task) => (
          <li key={task.id}>
            <Icon name="clock" /> <Told text={task.name} /> <span className="quiet">{when(task.at)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function when(at: string): string {
  return new Date(at).toLocaleString(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
}
