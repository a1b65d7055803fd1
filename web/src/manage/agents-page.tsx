/** Each agent: who it is, what it asks, what it may use and who decided that, what it knows how to do, where it runs. */
import "./manage.css";

import { useState } from "react";

import type { AgentDetailOut, SkillOut, ToolOut } from "../api/schema";
import { useApi } from "../live/query";
import { Facts } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { useTitle } from "../parts/title";
import { Told } from "../parts/verbatim";
import { Link, type PageProps } from "../router/router";
import { SkillVersions } from "./versions";

type AskedBy = "owner" | "others" | "subagent";

const ASKERS: readonly (readonly [AskedBy, string])[] = [
  ["owner", "You"],
  ["others", "Somebody else"],
  ["subagent", "As a subagent"],
];

const LAYERS: Record<ToolOut["layer"], string> = {
  profile: "the profile",
  allow: "an allow list",
  deny: "a deny list",
  owner: "for the owner alone",
  provider: "the model's provider",
  elevated: "who may leave the sandbox",
  session: "the kind of session",
};

export default function AgentsPage({ params }: PageProps) {
  const { data, error, refetch } = useApi("/api/agents", {}, { live: ["config."] });
  const chosen = params.id ?? data?.find((agent) => agent.default)?.id;
  return (
    <>
      <div className="head">
        <h1>Agents</h1>
      </div>
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={6} what="the agents" />}
      {data !== undefined && (
        <div className="split opened">
          <nav className="pick" aria-label="Agents">
            <ul>
              {data.map((agent) => (
                <li key={agent.id}>
                  <Link to={`/agents/${encodeURIComponent(agent.id)}`} aria-current={agent.id === chosen ? "page" : undefined}>
                    <span>
                      {agent.emoji} {agent.name}
                    </span>
                    <small>{agent.models[0]}</small>
                  </Link>
                </li>
              ))}
            </ul>
          </nav>
          {chosen !== undefined && <Agent key={chosen} id={chosen} />}
        </div>
      )}
    </>
  );
}

function Agent({ id }: { id: string }) {
  const [askedBy, setAskedBy] = useState<AskedBy>("owner");
  const { data, error, refetch } = useApi("/api/agents/{id}", { path: { id }, query: { askedBy } }, { live: ["config."] });
  useTitle(data?.name ?? "Agents");
  if (error !== null) return <Trouble problem={error} again={() => void refetch()} />;
  if (data === undefined) return <Skeleton rows={10} what="the agent" />;
  return (
    <div className="agent-parts">
      <Identity agent={data} />
      <section className="panel" aria-labelledby="tools-title">
        <div className="head">
          <h2 id="tools-title">Tools</h2>
          <div className="segmented" role="group" aria-label="Who asks it">
            {ASKERS.map(([value, word]) => (
              <button key={value} type="button" aria-pressed={value === askedBy} onClick={() => setAskedBy(value)}>
                {word}
              </button>
            ))}
          </div>
        </div>
        <Tools tools={data.tools} />
      </section>
      <Skills id={id} />
      <Sandbox agent={data} />
    </div>
  );
}

function Identity({ agent }: { agent: AgentDetailOut }) {
  const own = agent.identity;
  const traits = [own.creature, own.vibe, own.theme].filter((one) => one !== null && one !== "");
  return (
    <section className="panel" aria-labelledby="identity-title">
      <h2 id="identity-title">
        {agent.emoji} {agent.name} {agent.default && <span className="tag">answers where nobody is named</span>}
      </h2>
      <Facts
        rows={[
          ...(traits.length > 0 ? [["Is", <Told key="is" text={traits.join(", ")} />] as const] : []),
          ["Asks", <Models key="models" models={agent.models} />],
          ["Thinking", agent.thinking ?? "as the model has it"],
          ["Commands", commands(agent)],
          [
            "Workspace",
            <span key="workspace">
              <code>{agent.workspace}</code>{" "}
              <Link to={`/memory/files?agent=${encodeURIComponent(agent.id)}`}>Open its files</Link>
            </span>,
          ],
        ]}
      />
      <p className="row">
        <Link to={`/chat?new=1&agent=${encodeURIComponent(agent.id)}`}>Chat with it</Link>
        <Link to="/settings?section=agents">Change its settings</Link>
      </p>
    </section>
  );
}

function Models({ models }: { models: readonly string[] }) {
  return (
    <>
      {models.map((model, index) => (
        <span key={model}>
          {index > 0 && <span className="quiet">, then </span>}
          <code>{model}</code>
        </span>
      ))}
    </>
  );
}

function commands(agent: AgentDetailOut): string {
  if (agent.security === "deny") return "none may run";
  const rest = { off: "the rest is refused", "on-miss": "the rest is asked for", always: "all are asked for" }[agent.ask] ?? agent.ask;
  return agent.security === "full" ? `all may run, ${agent.ask === "always" ? "each asked for" : "unasked"}` : `those on the allowlist run, ${rest}`;
}

function Tools({ tools }: { tools: readonly ToolOut[] }) {
  const [words, setWords] = useState("");
  const fits = (tool: ToolOut): boolean => `${tool.name} ${tool.description}`.toLowerCase().includes(words.trim().toLowerCase());
  const shown = tools.filter(fits);
  const usable = tools.filter((tool) => tool.allowed).length;
  return (
    <>
      <div className="row filter">
        <input type="search" className="typed" aria-label="Find a tool" placeholder="Find a tool" value={words} onChange={(event) => setWords(event.target.value)} />
        <span className="quiet">
          {usable} of {tools.length} may be used
        </span>
      </div>
      <ul className="deciding" aria-label="Tools">
        {shown.map((tool) => (
          <li key={tool.name}>
            <details>
              <summary>
                <code>{tool.name}</code> <span className={tool.allowed ? "tag good" : "tag bad"}>{tool.allowed ? "allowed" : "refused"}</span>{" "}
                <span className="quiet">
                  by {LAYERS[tool.layer]}: {tool.reason}
                </span>
              </summary>
              <p>
                <Told text={tool.description} />
              </p>
              <ol className="layers">
                {tool.steps.map((step) => (
                  <li key={step.layer}>
                    <span className={step.says === null ? "tag" : step.says ? "tag good" : "tag bad"}>
                      {step.says === null ? "no say" : step.says ? "yes" : "no"}
                    </span>{" "}
                    {LAYERS[step.layer]}: <span className="quiet">{step.reason}</span>
                  </li>
                ))}
              </ol>
            </details>
          </li>
        ))}
      </ul>
      {shown.length === 0 && <Nothing>No tool has these words.</Nothing>}
    </>
  );
}

function Skills({ id }: { id: string }) {
  const { data, error, refetch } = useApi("/api/skills", { query: { agentId: id } }, { live: ["config.", "skill"] });
  const usable = data?.filter((skill) => skill.eligible) ?? [];
  const not = data?.filter((skill) => !skill.eligible) ?? [];
  return (
    <section className="panel" aria-labelledby="skills-title">
      <h2 id="skills-title">Skills</h2>
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={4} what="the skills" />}
      {data?.length === 0 && <Nothing>It has no skills yet. `holdfast skills install` adds some.</Nothing>}
      {usable.length > 0 && (
        <ul className="deciding" aria-label="Skills it can use">
          {usable.map((skill) => (
            <Skill key={skill.name} skill={skill} />
          ))}
        </ul>
      )}
      {not.length > 0 && (
        <details className="more">
          <summary>{not.length} more cannot be used here, and why</summary>
          <ul className="deciding" aria-label="Skills it cannot use">
            {not.map((skill) => (
              <Skill key={skill.name} skill={skill} />
            ))}
          </ul>
        </details>
      )}
    </section>
  );
}

function Skill({ skill }: { skill: SkillOut }) {
  return (
    <li className="skill">
      <p>
        <strong>
          {skill.emoji} {skill.name}
        </strong>{" "}
        <span className="tag">{skill.tier}</span> {skill.command !== null && <code>{skill.command}</code>}
      </p>
      <p className="quiet">
        <Told text={skill.description} />
      </p>
      {skill.reasons.map((reason) => (
        <p key={reason.text} className="note">
          <Told text={reason.text} />
        </p>
      ))}
      {skill.tier === "store" && <SkillVersions name={skill.name} />}
    </li>
  );
}

function Sandbox({ agent }: { agent: AgentDetailOut }) {
  const box = agent.sandbox;
  const modes: Record<string, string> = { off: "no session of yours", "non-main": "every session but the main one", all: "every session" };
  const access: Record<string, string> = { none: "does not see it", ro: "reads it", rw: "reads and writes it" };
  return (
    <section className="panel" aria-labelledby="sandbox-title">
      <h2 id="sandbox-title">
        Sandbox <span className={box.sandboxed ? "tag good" : "tag"}>{box.sandboxed ? "in force for this asker" : "not in force for this asker"}</span>
      </h2>
      {box.missing !== null && <p className="note">{box.missing}</p>}
      <Facts
        rows={[
          ["Sandboxed", modes[box.mode] ?? box.mode],
          ["Shared by", { session: "nobody: one for each session", agent: "all sessions of the agent", shared: "all agents" }[box.scope] ?? box.scope],
          ["Workspace", access[box.workspaceAccess] ?? box.workspaceAccess],
          ["Network", box.network ? "reached" : "not reached"],
          ["Made by", box.backend ?? "nothing, commands run on this machine"],
        ]}
      />
    </section>
  );
}
