/** What the agents are called. */
import { useApi } from "../live/query";

/** A look-up from an agent's id to its name; the id itself where it is not known. */
export function useAgentNames(): (id: string | null) => string {
  const { data } = useApi("/api/agents");
  return (id) => data?.find((agent) => agent.id === id)?.name ?? id ?? "an agent";
}
