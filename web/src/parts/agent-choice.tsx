import { useApi } from "../live/query";
import { go, useLocation } from "../router/router";
import { Choice } from "./choice";

/** The agent that a page is about, kept in its address as `agent`; the default one where none is named. */
export function useChosenAgent(): string | undefined {
  const named = useLocation().searchParams.get("agent");
  const { data } = useApi("/api/agents");
  return named ?? data?.find((agent) => agent.default)?.id;
}

export function AgentChoice() {
  const here = useLocation();
  const chosen = useChosenAgent();
  const { data = [] } = useApi("/api/agents");
  if (data.length < 2 || chosen === undefined) return null;
  function choose(id: string): void {
    const query = new URLSearchParams(here.searchParams);
    query.set("agent", id);
    query.delete("path");
    go(`${here.pathname}?${query}`);
  }
  return (
    <Choice label="Agent" value={chosen} onChange={choose} options={data.map((agent) => [agent.id, `${agent.emoji ?? ""} ${agent.name}`.trim()] as const)} />
  );
}
