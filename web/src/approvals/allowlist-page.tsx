/** The patterns that run unasked: whose, since when, last used for what; and how to take one back. */
import { type SyntheticEvent, useId, useState } from "react";

import { getPage, post, remove } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { AllowedCommand } from "../api/types";
import { useChanges } from "../live/hooks";
import { useLoaded } from "../live/loaded";
import { Loading, Nothing, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Exact } from "../parts/verbatim";
import { useLoggedIn } from "../shell/login-state";
import { Heading, useModes } from "./heading";

export default function AllowlistPage() {
  const { scope } = useLoggedIn();
  const loaded = useLoaded("allowlist", (signal) => getPage<AllowedCommand>("/api/allowlist", { limit: 499 }, signal));
  const [problem, setProblem] = useState<Problem>();
  useChanges("approval.", loaded.reload);
  useChanges("config.", loaded.reload);

  async function takeBack(row: AllowedCommand): Promise<void> {
    try {
      await remove("/api/allowlist", { agentId: row.agentId, pattern: row.pattern });
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
    loaded.reload();
  }

  const trouble = problem ?? loaded.problem;
  return (
    <>
      <Heading />
      {trouble !== undefined && <Trouble problem={trouble} />}
      {loaded.value === undefined ? (
        trouble === undefined && <Loading what="the allowlist" />
      ) : loaded.value.rows.length === 0 ? (
        <Nothing>No pattern yet. “Always allow” on an approval adds one.</Nothing>
      ) : (
        <Patterns rows={loaded.value.rows} mayChange={scope === "admin"} takeBack={(row) => void takeBack(row)} />
      )}
      {loaded.value?.next != null && <p className="quiet">Only the first 499 are shown.</p>}
      {scope === "admin" && <Adding />}
    </>
  );
}

interface PatternsProps {
  rows: AllowedCommand[];
  mayChange: boolean;
  takeBack: (row: AllowedCommand) => void;
}

function Patterns({ rows, mayChange, takeBack }: PatternsProps) {
  const columns: readonly Column<AllowedCommand>[] = [
    { name: "Agent", named: true, cell: (row) => row.agentId },
    { name: "Pattern", as: "code", cell: (row) => <Exact text={row.pattern} /> },
    {
      name: "Added",
      named: true,
      cell: (row) => (
        <>
          {row.source === "config" ? "in the config" : <>{row.createdBy} </>}
          {row.source === "person" && row.createdAt !== null && <Ago at={row.createdAt} />}
        </>
      ),
    },
    { name: "Last used", named: true, cell: (row) => (row.lastUsedAt === null ? "never" : <Ago at={row.lastUsedAt} />) },
    { name: "With", as: "code", cell: (row) => row.lastUsedCommand !== null && <Exact text={row.lastUsedCommand} /> },
    {
      name: "Do",
      as: "does",
      cell: (row) =>
        mayChange &&
        row.source === "person" && (
          <button type="button" aria-label={`Remove ${row.pattern}`} onClick={() => takeBack(row)}>
            Remove
          </button>
        ),
    },
  ];
  return <Table rows={rows} keyOf={(row) => `${row.agentId} ${row.pattern}`} columns={columns} />;
}

function Adding() {
  const agents = useModes().map((mode) => mode.agentId);
  const [agentId, setAgentId] = useState("");
  const [pattern, setPattern] = useState("");
  const [problem, setProblem] = useState<Problem>();
  const [agentField, patternField] = [useId(), useId()];

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    try {
      await post("/api/allowlist", { agentId: agentId || agents[0], pattern: pattern.trim() });
      setPattern("");
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  return (
    <form onSubmit={(event) => void submit(event)} className="adding">
      <h2>Add a pattern</h2>
      <div className="row">
        <label htmlFor={agentField}>Agent</label>
        <select id={agentField} value={agentId} onChange={(event) => setAgentId(event.target.value)}>
          {agents.map((id) => (
            <option key={id}>{id}</option>
          ))}
        </select>
        <label htmlFor={patternField}>Pattern</label>
        <input
          id={patternField}
          type="text"
          className="code grow"
          spellCheck={false}
          autoCapitalize="off"
          placeholder="git diff *"
          required
          value={pattern}
          onChange={(event) => setPattern(event.target.value)}
        />
        <button type="submit">Add</button>
      </div>
      {problem !== undefined && <Trouble problem={problem} />}
    </form>
  );
}
