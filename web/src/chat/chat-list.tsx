/** All sessions: by agent, by channel, unread or running; and a new one. */
import { useId, useState, useSyncExternalStore } from "react";
import { Virtualizer } from "virtua";

import type { AgentOut } from "../api/schema";
import type { Chat } from "../api/types";
import { usePending } from "../approvals/pending";
import { gist } from "../parts/gist";
import { Icon } from "../parts/icon";
import { Rows } from "../parts/rows";
import { Skeleton } from "../parts/states";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { go, Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { freshKey, nameOf } from "./names";

interface ChatListProps {
  chats: readonly Chat[] | undefined;
  agents: readonly AgentOut[];
  chosen: string | null;
}

type Show = "all" | "unread" | "running";

export function ChatList({ chats, agents, chosen }: ChatListProps) {
  const [words, setWords] = useState("");
  const [show, setShow] = useState<Show>("all");
  const [agentId, setAgentId] = useState("");
  const [channel, setChannel] = useState("");
  const seen = useSeen();
  const pending = usePending();
  const waiting = new Set(pending.rows.filter((row) => row.status === "pending").map((row) => row.sessionKey));
  const channels = [...new Set(chats?.map((chat) => chat.channel ?? "") ?? [])].filter((name) => name !== "");
  const shown = (chats ?? []).filter(
    (chat) =>
      (agentId === "" || chat.agentId === agentId) &&
      (channel === "" || chat.channel === channel) &&
      (show !== "running" || chat.running) &&
      (show !== "unread" || isUnread(chat, seen, chosen)) &&
      `${nameOf(chat)} ${chat.preview ?? ""} ${chat.sessionKey}`.toLowerCase().includes(words.trim().toLowerCase()),
  );
  return (
    <nav className="chat-list" aria-label="Chats">
      <div className="chat-list-head">
        <NewChat agents={agents} />
        <input
          type="search"
          aria-label="Filter chats"
          placeholder="Filter chats"
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <div className="chat-list-filters">
          <div className="segmented" role="group" aria-label="Which chats">
            {(["all", "unread", "running"] as const).map((one) => (
              <button key={one} type="button" aria-pressed={show === one} onClick={() => setShow(one)}>
                {{ all: "All", unread: "Unread", running: "Running" }[one]}
              </button>
            ))}
          </div>
          {agents.length > 1 && (
            <select aria-label="Agent" value={agentId} onChange={(event) => setAgentId(event.target.value)}>
              <option value="">Every agent</option>
              {agents.map((agent) => (
                <option key={agent.id} value={agent.id}>
                  {agent.name}
                </option>
              ))}
            </select>
          )}
          {channels.length > 1 && (
            <select aria-label="Channel" value={channel} onChange={(event) => setChannel(event.target.value)}>
              <option value="">Every channel</option>
              {channels.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          )}
        </div>
      </div>
      {chats === undefined && <Skeleton rows={6} what="chats" />}
      {chats !== undefined && shown.length === 0 && (
        <p className="quiet chat-none">{chats.length === 0 ? "No chats yet. Start one above." : "No chat matches."}</p>
      )}
      <div className="chat-rows">
        <Virtualizer as={Rows}>
          {shown.map((chat) => (
            <ChatRow
              key={chat.sessionId}
              chat={chat}
              chosen={chat.sessionKey === chosen}
              unread={isUnread(chat, seen, chosen)}
              waits={waiting.has(chat.sessionKey)}
            />
          ))}
        </Virtualizer>
      </div>
    </nav>
  );
}

interface ChatRowProps {
  chat: Chat;
  chosen: boolean;
  unread: boolean;
  waits: boolean;
}

function ChatRow({ chat, chosen, unread, waits }: ChatRowProps) {
  return (
    <Link
      className={unread ? "chat-row unread" : "chat-row"}
      to={`/chat?session=${encodeURIComponent(chat.sessionKey)}`}
      aria-current={chosen ? "page" : undefined}
    >
      <span className="chat-name">
        <Told text={nameOf(chat)} />
      </span>
      <span className="chat-when">
        {chat.running ? (
          <span className="good">
            <span className="pulse" aria-hidden="true" /> running
          </span>
        ) : (
          <Ago at={chat.updatedAt} />
        )}
      </span>
      <span className="chat-preview">
        <Told text={chat.preview === null ? "Nothing was said yet" : chat.preview === chat.title ? (chat.running ? "" : "No answer came") : gist(chat.preview)} />
      </span>
      {waits && <span className="tag warn-tag">needs you</span>}
      {unread && <span className="unread-dot" role="img" aria-label="unread" />}
    </Link>
  );
}

function NewChat({ agents }: { agents: readonly AgentOut[] }) {
  const [open, setOpen] = useState(false);
  const list = useId();
  const { scope, spaces } = useLoggedIn();
  const first = agents.find((agent) => agent.default) ?? agents[0];
  if (scope === "read" || spaces !== null || first === undefined) return null;
  const begin = (agentId: string): void => {
    setOpen(false);
    go(`/chat?session=${encodeURIComponent(freshKey(agentId))}`);
  };
  return (
    <div className="new-chat">
      <button
        type="button"
        className="primary"
        aria-expanded={agents.length > 1 ? open : undefined}
        aria-controls={agents.length > 1 ? list : undefined}
        onClick={() => (agents.length === 1 ? begin(first.id) : setOpen(!open))}
      >
        <Icon name="plus" /> New chat
      </button>
      {open && (
        <ul id={list} className="menu" aria-label="With whom">
          {agents.map((agent) => (
            <li key={agent.id}>
              <button type="button" onClick={() => begin(agent.id)}>
                {agent.emoji} {agent.name} <span className="quiet">{agent.models[0]}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

const SEEN = "holdfast.seen";
const watchers = new Set<() => void>();
let seenAt: Readonly<Record<string, string>> = read();

/** Until when each chat was read in this browser. */
function useSeen(): Readonly<Record<string, string>> {
  return useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => seenAt,
  );
}

function isUnread(chat: Chat, seen: Readonly<Record<string, string>>, chosen: string | null): boolean {
  if (chat.sessionKey === chosen) return false;
  const at = seen[chat.sessionKey] ?? seen[""] ?? "";
  return at !== "" && chat.updatedAt > at;
}

export function markRead(chat: Chat): void {
  if ((seenAt[chat.sessionKey] ?? "") >= chat.updatedAt) return;
  queueMicrotask(() => {
    // What was there before this browser first looked counts as read.
    seenAt = { "": chat.updatedAt, ...seenAt, [chat.sessionKey]: chat.updatedAt };
    try {
      localStorage.setItem(SEEN, JSON.stringify(seenAt));
    } catch {
      // It is then unread again after a reload.
    }
    for (const watcher of [...watchers]) watcher();
  });
}

function read(): Readonly<Record<string, string>> {
  try {
    return JSON.parse(localStorage.getItem(SEEN) ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
}
