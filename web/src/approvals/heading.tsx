/** What stands above each page of approvals: how agents are set, and the ways on. */
import { get } from "../api/client";
import type { ExecMode } from "../api/types";
import { useChanges } from "../live/hooks";
import { useLoaded } from "../live/loaded";
import { useAgentNames } from "../parts/agents";
import { Tabs } from "../parts/tabs";

const TABS = [
  { to: "/approvals", name: "Waiting" },
  { to: "/approvals/allowlist", name: "Allowlist" },
  { to: "/approvals/audit", name: "Decisions" },
];

const SECURITY: Record<ExecMode["security"], string> = {
  deny: "no command runs",
  allowlist: "the allowlist runs",
  full: "every command runs",
};

const ASK: Record<ExecMode["ask"], string> = {
  off: "the rest is refused",
  "on-miss": "the rest is asked for",
  always: "all is asked for",
};

export function Heading() {
  const modes = useModes();
  const nameOf = useAgentNames();
  return (
    <>
      <div className="head">
        <h1>Approvals</h1>
        <ul className="row quiet" aria-label="How commands are approved">
          {grouped(modes, nameOf).map(([mode, agents]) => (
            <li key={agents} title={`tools.exec: security ${mode.security}, ask ${mode.ask}`}>
              {agents}{" "}
              <span className={mode.security === "full" ? "tag bad" : "tag"}>{saying(mode)}</span>
            </li>
          ))}
        </ul>
      </div>
      <Tabs label="Approvals" tabs={TABS} />
    </>
  );
}

/** How each agent's commands are approved, as the config has it now. */
export function useModes(): ExecMode[] {
  const loaded = useLoaded("modes", (signal) => get<ExecMode[]>("/api/approvals/modes", {}, signal));
  useChanges("config.", loaded.reload);
  return loaded.value ?? [];
}

/** Agents that are set alike stand together. */
function grouped(modes: ExecMode[], nameOf: (id: string) => string): [ExecMode, string][] {
  const alike = Map.groupBy(modes, (mode) => saying(mode));
  return [...alike.values()].flatMap((same): [ExecMode, string][] => {
    const [first] = same;
    return first === undefined ? [] : [[first, same.map((mode) => nameOf(mode.agentId)).join(", ")]];
  });
}

function saying(mode: ExecMode): string {
  if (mode.security === "deny") return SECURITY.deny;
  if (mode.security === "full" && mode.ask !== "always") return SECURITY.full;
  if (mode.ask === "always") return ASK.always;
  return `${SECURITY[mode.security]}, ${ASK[mode.ask]}`;
}
