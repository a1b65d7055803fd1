import { useState } from "react";

import { Choice } from "../../parts/choice";
import { useSpaces, useTopics } from "../places";
import { CLASSIFICATIONS, ENTRY_TYPES, wordFor } from "../statuses";
import type { Entry } from "../types";
import type { LogFilter } from "./matches";

interface LogFiltersProps {
  filter: LogFilter;
  /** Their agents and sessions are offered. */
  rows: readonly Entry[];
  onChange: (filter: LogFilter) => void;
}

export function LogFilters({ filter, rows, onChange }: LogFiltersProps) {
  const spaces = useSpaces().rows.toSorted((a, b) => a.name.localeCompare(b.name));
  const topics = useTopics().rows.toSorted((a, b) => a.name.localeCompare(b.name));
  const agents = some(rows.map((entry) => entry.agentId));
  const sessions = some(rows.map((entry) => entry.source?.sessionKey));
  const words = (names: readonly string[]) => names.map((name) => [name, wordFor(name)] as const);
  return (
    <div className="row filter" role="search" aria-label="Filter the log">
      <Choice
        label="Space"
        value={filter.spaceId}
        options={[["", "All spaces"], ...spaces.map((space) => [space.id, space.name] as const)]}
        onChange={(spaceId) => onChange({ ...filter, spaceId })}
      />
      <Choice
        label="Topic"
        value={filter.topicId}
        options={[["", "All topics"], ...topics.map((topic) => [topic.id, topic.name] as const)]}
        onChange={(topicId) => onChange({ ...filter, topicId })}
      />
      <Choice
        label="Type"
        value={filter.type}
        options={[["", "All types"], ...words(ENTRY_TYPES)]}
        onChange={(type) => onChange({ ...filter, type })}
      />
      <Choice
        label="How it was sorted"
        value={filter.status}
        options={[["", "Sorted or not"], ...words(CLASSIFICATIONS)]}
        onChange={(status) => onChange({ ...filter, status })}
      />
      <Typed
        key={`a${filter.agentId}`}
        label="Agent"
        value={filter.agentId}
        offered={agents}
        onChange={(agentId) => onChange({ ...filter, agentId })}
      />
      <Typed
        key={`s${filter.sessionKey}`}
        label="Session"
        value={filter.sessionKey}
        offered={sessions}
        onChange={(sessionKey) => onChange({ ...filter, sessionKey })}
      />
    </div>
  );
}

interface TypedProps {
  label: string;
  value: string;
  offered: readonly string[];
  onChange: (value: string) => void;
}

/** A name that may be typed or chosen; it counts once one is done with it. */
function Typed({ label, value, offered, onChange }: TypedProps) {
  const [text, setText] = useState(value);
  const list = `log-${label.toLowerCase()}`;
  return (
    <form
      className="typed"
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text.trim());
      }}
    >
      <input
        type="search"
        aria-label={label}
        placeholder={`${label}…`}
        list={list}
        value={text}
        onChange={(event) => {
          setText(event.target.value);
          if (event.target.value === "" || offered.includes(event.target.value)) onChange(event.target.value);
        }}
      />
      <datalist id={list}>
        {offered.map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
    </form>
  );
}

function some(names: readonly (string | null | undefined)[]): string[] {
  return [...new Set(names.filter((name): name is string => typeof name === "string" && name !== ""))].toSorted();
}
