/** What a chat is called, for every page: apart from the chat itself, which is loaded when it is looked at. */
import type { Chat } from "../api/types";
import { newId } from "../conversation/outbox";

/** The key of a conversation that nobody began yet: the owner's own, with that agent. */
export function freshKey(agentId: string): string {
  return `agent:${agentId}:web:dm:${newId().slice(0, 12)}`;
}

/** What a chat is called: its title, else what its key tells. */
export function nameOf(chat: Pick<Chat, "title" | "sessionKey">): string {
  if (chat.title !== null) return chat.title;
  const [, agent, ...rest] = chat.sessionKey.split(":");
  if (!chat.sessionKey.startsWith("agent:")) return chat.sessionKey;
  return rest.join(":") === "main" ? `${agent ?? ""} (main)` : rest.join(" ");
}
