/** Search within a conversation, and a jump to a day. */
import { useState } from "react";

import { useApi } from "../live/query";
import { Icon } from "../parts/icon";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import type { Place } from "./store";

const AROUND = 80;

interface FinderProps {
  place: Place;
  onJump: (until: string) => void;
  onClose: () => void;
}

/** Opens and closes the search; `where` tells those who do not see the page what is searched. */
export function FindButton({ where, finding, onFind }: { where: string; finding: boolean; onFind: (finding: boolean) => void }) {
  return (
    <button type="button" className="quiet-button" aria-expanded={finding} onClick={() => onFind(!finding)}>
      <Icon name="search" /> <span className="beside-sign">Find</span>
      <span className="spoken"> in this {where}</span>
    </button>
  );
}

export function Finder({ place, onJump, onClose }: FinderProps) {
  const [text, setText] = useState("");
  const q = text.trim();
  const { data, isFetching } = useApi("/api/conversation", { query: { ...place, q, limit: 30 } }, { enabled: q.length > 1 });
  const found = q.length > 1 ? (data?.entries ?? []) : [];
  return (
    <search className="finder">
      <div className="row">
        <input
          type="search"
          className="grow"
          aria-label="Search in this conversation"
          placeholder="Search in this conversation"
          autoFocus
          value={text}
          onChange={(event) => setText(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Escape") onClose();
          }}
        />
        <input
          type="date"
          aria-label="Jump to a day"
          onChange={(event) => {
            if (event.target.value !== "") onJump(new Date(`${event.target.value}T23:59:59.999`).toISOString());
          }}
        />
        <button type="button" className="quiet-button" aria-label="Close search" onClick={onClose}>
          <Icon name="close" />
        </button>
      </div>
      {q.length > 1 && (
        <p className="quiet" role="status">
          {isFetching ? "Searching…" : `${found.length}${data?.next == null ? "" : "+"} found`}
        </p>
      )}
      {found.length > 0 && (
        <ul className="finder-hits">
          {found.map((entry) => (
            <li key={entry.id}>
              <button type="button" onClick={() => onJump(entry.createdAt)}>
                <span className="quiet">
                  {entry.role === "user" ? "You" : (entry.agentId ?? "Agent")} · <Ago at={entry.createdAt} />
                </span>
                <span>
                  <Told text={excerpt(entry.content, q)} />
                </span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </search>
  );
}

/** The words around a match, on one line. */
export function excerpt(content: string, q: string): string {
  const at = Math.max(0, content.toLowerCase().indexOf(q.toLowerCase()));
  const start = Math.max(0, at - AROUND);
  const cut = content.slice(start, at + q.length + AROUND).replace(/\s+/g, " ");
  return `${start > 0 ? "…" : ""}${cut}${at + q.length + AROUND < content.length ? "…" : ""}`;
}
