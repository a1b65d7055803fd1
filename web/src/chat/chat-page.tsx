/** All conversations beside the one that is open, and beside that what its turns were made of. */
import "./chat.css";

import { lazy, Suspense, useEffect, useState } from "react";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { Turn } from "../api/types";
import { ConversationView } from "../conversation/conversation";
import { beginDraft } from "../conversation/draft";
import { FindButton } from "../conversation/finder";
import type { Enclosure } from "../conversation/outbox";
import { useApi } from "../live/query";
import { Icon } from "../parts/icon";
import { Skeleton } from "../parts/states";
import { useTitle } from "../parts/title";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { go, Link, type PageProps } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { ChatList, markRead } from "./chat-list";
import { freshKey, nameOf } from "./names";

const Inspector = lazy(() => import("../inspector/inspector"));

export default function ChatPage({ query }: PageProps) {
  const { data: agents = [] } = useApi("/api/agents", {}, { live: ["config."] });
  const { data: chats } = useApi("/api/chats", { query: { limit: 100 } }, { live: ["session.", "turn."] });
  const asked = query.get("session");
  const who = useLoggedIn();
  const fallback = agents.find((agent) => agent.id === who.agentId)?.id ?? agents[0]?.id ?? "main";
  const key = asked ?? (chats === undefined ? null : (chats[0]?.sessionKey ?? `agent:${fallback}:main`));
  const turn = query.get("turn");
  const fresh = query.get("new") !== null && agents.length > 0;
  useEffect(() => {
    if (fresh) go(place(freshKey(fallback), {}), { replace: true });
  }, [fresh, fallback]);
  // On a phone one of the three fills the screen.
  const showing = turn !== null ? "inspector" : asked !== null ? "conversation" : "list";
  return (
    <div className={`chat showing-${showing}`}>
      <h1 className="spoken">Chat</h1>
      <ChatList chats={chats} agents={agents} chosen={key} />
      {key === null ? <Skeleton rows={6} what="chats" /> : <Open key={key} sessionKey={key} from={query.get("from")} />}
      {turn !== null && key !== null && (
        <Suspense fallback={<Skeleton rows={6} what="the turn" />}>
          <Inspector
            sessionKey={key}
            number={Number(turn)}
            view={query.get("view") ?? "context"}
            to={(change) => place(key, change)}
            onClose={() => go(place(key, {}))}
          />
        </Suspense>
      )}
    </div>
  );
}

/** The address of a session, and of a turn of it with what is looked at. */
function place(key: string, more: Record<string, string>): string {
  return `/chat?${new URLSearchParams({ session: key, ...more }).toString()}`;
}

/** Say something otherwise: in a chat that knows what was said before it, so that this one stays as it is. */
async function forked(text: string, enclosed: readonly Enclosure[], turn: Turn): Promise<void> {
  try {
    const made = await api.post("/api/sessions/{key}/fork", { beforeTurn: turn.number }, { path: { key: turn.sessionKey } });
    beginDraft(made.sessionKey, text, enclosed);
    go(place(made.sessionKey, { from: turn.sessionKey }));
  } catch (error) {
    const problem = asProblem(error);
    toast(`${problem.message}. ${problem.hint}`, { bad: true });
  }
}

const fork = (text: string, enclosed: readonly Enclosure[], turn: Turn): void => void forked(text, enclosed, turn);

function Open({ sessionKey, from }: { sessionKey: string; from: string | null }) {
  const [finding, setFinding] = useState(false);
  const { data: chats = [] } = useApi("/api/chats", { query: { limit: 100 } }, { live: ["session.", "turn."] });
  const { data: agents = [] } = useApi("/api/agents");
  const who = useLoggedIn();
  const chat = chats.find((one) => one.sessionKey === sessionKey);
  const agentId = chat?.agentId ?? /^agent:([^:]+):/.exec(sessionKey)?.[1] ?? null;
  const agent = agents.find((one) => one.id === agentId);
  const name = chat === undefined ? "New chat" : nameOf(chat);
  const unlimited = who.spaces === null && who.agents === null;
  useTitle(name);
  if (chat !== undefined) markRead(chat);
  return (
    <div className="chat-main">
      <header className="chat-head">
        <Link className="quiet-button only-phone" to="/chat" aria-label="All chats">
          <Icon name="back" /> Chats
        </Link>
        <div className="chat-title">
          <h2>
            <Told text={name} />
          </h2>
          <p className="quiet">
            {agent?.emoji} <Told text={agent?.name ?? agentId ?? "no agent"} />
            {chat?.channel != null && <> · {chat.channel}</>}
            {from !== null && (
              <>
                {" · "}
                <Link to={place(from, {})}>goes on from another chat</Link>
              </>
            )}
            {agent?.models[0] !== undefined && <span className="beside-sign"> · {agent.models[0]}</span>}
          </p>
        </div>
        <FindButton where="chat" finding={finding} onFind={setFinding} />
      </header>
      <ConversationView
        place={{ sessionKey }}
        sessionKey={sessionKey}
        agentId={null}
        mayAsk={who.scope !== "read" && who.spaces === null}
        inspect={unlimited ? (turn: Turn) => place(turn.sessionKey, { turn: String(turn.number), view: "context" }) : null}
        {...(unlimited ? { onFork: fork } : {})}
        finding={finding}
        onFound={() => setFinding(false)}
        empty={
          <div className="hello">
            <p className="hello-mark">{agent?.emoji ?? <Icon name="chat" size={32} />}</p>
            <p className="hello-words">
              Talk with <strong>{agent?.name ?? agentId}</strong>
            </p>
            <p className="quiet">
              What you say here is remembered, and found again in other chats. Drop files here, type <kbd>/</kbd> for
              commands.
            </p>
          </div>
        }
      />
    </div>
  );
}
