import { AgentChoice } from "../parts/agent-choice";
import { Tabs } from "../parts/tabs";
import { useLocation } from "../router/router";

/** What stands above each page of memory. The agent goes along from one to the next. */
export function MemoryHead() {
  const agent = useLocation().searchParams.get("agent");
  const more = agent === null ? "" : `?agent=${encodeURIComponent(agent)}`;
  return (
    <>
      <div className="head">
        <h1>Memory</h1>
        <AgentChoice />
      </div>
      <Tabs
        label="Memory"
        tabs={[
          { to: `/memory${more}`, name: "Search" },
          { to: `/memory/files${more}`, name: "Files" },
          { to: `/memory/index${more}`, name: "Index" },
        ]}
      />
    </>
  );
}
