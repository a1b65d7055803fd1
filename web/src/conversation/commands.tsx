/** Slash commands: what can be typed behind a `/` at the beginning of a message. */
import { type KeyboardEvent, useState } from "react";

import type { CommandOut } from "../api/schema";
import { useApi } from "../live/query";

export interface Commands {
  at: number;
  shown: (text: string) => readonly CommandOut[];
  /** Whether a key was for the list. */
  pressed: (event: KeyboardEvent, text: string, write: (text: string) => void) => boolean;
}

const MOST = 8;

/** The commands that the beginning of a message may become. */
export function matching(commands: readonly CommandOut[], text: string): readonly CommandOut[] {
  const found = /^\/([\w-]*)$/.exec(text);
  if (found === null) return [];
  const typed = (found[1] ?? "").toLowerCase();
  return commands.filter((command) => command.name.startsWith(typed)).slice(0, MOST);
}

export function useCommands(mayAsk: boolean): Commands {
  const { data = [] } = useApi("/api/commands", {}, { enabled: mayAsk });
  const [at, setAt] = useState(0);
  const [closed, setClosed] = useState("");
  const shown = (text: string): readonly CommandOut[] => (text === closed ? [] : matching(data, text));
  return {
    at,
    shown,
    pressed: (event, text, write) => {
      const found = shown(text);
      if (found.length === 0) return false;
      const chosen = found[Math.min(at, found.length - 1)];
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        const step = event.key === "ArrowDown" ? 1 : -1;
        setAt((Math.min(at, found.length - 1) + step + found.length) % found.length);
      } else if (event.key === "Tab" || (event.key === "Enter" && text !== `/${chosen?.name ?? ""}`)) {
        write(`/${chosen?.name ?? ""} `);
        setAt(0);
      } else if (event.key === "Escape") setClosed(text);
      else return false;
      event.preventDefault();
      return true;
    },
  };
}

interface CommandListProps {
  id: string;
  shown: readonly CommandOut[];
  at: number;
  onChoose: (name: string) => void;
}

export function CommandList({ id, shown, at, onChoose }: CommandListProps) {
  const chosen = Math.min(at, shown.length - 1);
  return (
    <ul className="commands" role="listbox" id={id} aria-label="Commands">
      {shown.map((command, index) => (
        <li
          key={command.name}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === chosen}
          onMouseDown={(event) => {
            event.preventDefault();
            onChoose(command.name);
          }}
        >
          <code>/{command.name}</code> <span className="quiet">{command.usage}</span>
          <span className="command-help">{command.help}</span>
        </li>
      ))}
    </ul>
  );
}
