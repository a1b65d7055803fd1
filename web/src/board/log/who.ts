import { useAgentNames } from "../../parts/agents";
import type { Entry } from "../types";

/** Who an entry is of, as the conversation says it. */
export function useWho(): (entry: Pick<Entry, "agentId" | "agentLabel" | "type">) => string {
  const nameOf = useAgentNames();
  return ({ agentId, agentLabel, type }) => {
    if (agentLabel !== null && agentLabel !== "") return agentLabel;
    if (agentId === "user") return "You";
    return agentId === null ? (type === "system" ? "Holdfast" : "Unknown") : nameOf(agentId);
  };
}
