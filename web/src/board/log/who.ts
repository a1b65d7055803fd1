import { useAgentNames } from "../../parts/agents";
import type { Entry } from "../types";

/** Written in a person's place by what goes on by itself: schedules, heartbeats, wakes. */
const NOBODYS = new Set(["filtered_control_plane", "filtered_cron_event", "filtered_subagent_scaffold"]);

/** Who an entry is of, as the conversation says it. */
export function useWho(): (entry: Pick<Entry, "agentId" | "agentLabel" | "type"> & Partial<Pick<Entry, "classificationCode">>) => string {
  const nameOf = useAgentNames();
  return ({ agentId, agentLabel, type, classificationCode }) => {
    if (agentLabel !== null && agentLabel !== "") return agentLabel;
    if (agentId === "user" && NOBODYS.has(classificationCode ?? "")) return "Holdfast";
    if (agentId === "user") return "You";
    return agentId === null ? (type === "system" ? "Holdfast" : "Unknown") : nameOf(agentId);
  };
}
