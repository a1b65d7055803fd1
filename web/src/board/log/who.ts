import type { Entry } from "../types";

/** Who an entry is of, as people say it. */
export function whoOf(entry: Pick<Entry, "agentId" | "agentLabel" | "type">): string {
  if (entry.agentLabel !== null && entry.agentLabel !== "") return entry.agentLabel;
  if (entry.agentId === "user") return "User";
  return entry.agentId ?? (entry.type === "system" ? "System" : "Unknown");
}
