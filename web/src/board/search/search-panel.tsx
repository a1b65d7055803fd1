/** The search itself: a field and what it finds, gone through with the arrow keys and opened with Enter. */
import "./search.css";

import { type KeyboardEvent, useId, useState } from "react";

import { focusSoon } from "../../parts/focus";
import { Trouble } from "../../parts/states";
import { go } from "../../router/router";
import { HitLine } from "./hit-line";
import { type Hit, hitGroups } from "./hits";
import { useSearch } from "./use-search";

interface SearchPanelProps {
  first?: string;
  /** Told of what is looked for, such as to keep it in the address. */
  onText?: (text: string) => void;
  /** Told when a hit was opened. */
  onOpen?: () => void;
}

export function SearchPanel({ first = "", onText, onOpen }: SearchPanelProps) {
  const [text, setText] = useState(first);
  const [at, setAt] = useState(0);
  const { found, searching, problem } = useSearch(text);
  const groups = found === undefined ? [] : hitGroups(found);
  const hits = groups.flatMap((group) => group.hits);
  const chosen = hits[Math.min(at, hits.length - 1)];
  const id = useId();
  const optionId = (hit: Hit): string => `${id}-${hit.id}`;

  function change(next: string): void {
    setText(next);
    setAt(0);
    onText?.(next);
  }

  function open(hit: Hit): void {
    onOpen?.();
    go(hit.to);
    focusSoon("#main");
  }

  function pressed(event: KeyboardEvent): void {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      const next = hits.length === 0 ? 0 : (Math.min(at, hits.length - 1) + step + hits.length) % hits.length;
      setAt(next);
      const hit = hits[next];
      if (hit !== undefined) document.getElementById(optionId(hit))?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter" && chosen !== undefined && !event.nativeEvent.isComposing) {
      event.preventDefault();
      open(chosen);
    }
  }

  return (
    <div className="search-panel">
      <input
        type="search"
        role="combobox"
        aria-label="Search everything"
        aria-expanded={hits.length > 0}
        aria-controls={`${id}-hits`}
        aria-activedescendant={chosen === undefined ? undefined : optionId(chosen)}
        aria-autocomplete="list"
        autoComplete="off"
        spellCheck={false}
        placeholder="Search topics, tasks, notes and entries…"
        autoFocus
        value={text}
        onChange={(event) => change(event.target.value)}
        onKeyDown={pressed}
      />
      {problem !== undefined && <Trouble problem={problem} />}
      <div className="hits" id={`${id}-hits`} role="listbox" aria-label="Found" aria-busy={searching}>
        {groups.map((group) => (
          <div key={group.name} role="group" aria-label={group.name}>
            <div className="hits-name" aria-hidden="true">
              {group.name}
            </div>
            {group.hits.map((hit) => (
              <div
                key={hit.id}
                id={optionId(hit)}
                role="option"
                className="hit"
                aria-selected={hit === chosen}
                onClick={() => open(hit)}
                onMouseMove={() => {
                  if (hit !== chosen) setAt(hits.indexOf(hit));
                }}
              >
                <HitLine hit={hit} query={found?.q ?? ""} />
              </div>
            ))}
          </div>
        ))}
      </div>
      <p className="quiet hits-state" role="status">
        {stateOf(text.trim(), searching, hits.length)}
      </p>
    </div>
  );
}

function stateOf(text: string, searching: boolean, count: number): string {
  if (text === "") return "Up and down choose, Enter opens.";
  if (searching) return "Searching…";
  return count === 0 ? "Nothing was found." : `${count} found.`;
}
