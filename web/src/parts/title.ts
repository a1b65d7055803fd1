/** The name of the page in the tab, with how much waits for a person; and a word from the browser when more does. */
import { useEffect, useEffectEvent, useRef } from "react";

import { usePending } from "../approvals/pending";
import type { Approval, Turn } from "../api/types";
import { isMine } from "../conversation/outbox";
import { useChanges } from "../live/hooks";
import { notify } from "../shell/installed";
import { useAgentNames } from "./agents";

let own = "";
let count = 0;

function show(): void {
  document.title = `${count > 0 ? `(${count}) ` : ""}${own === "" ? "" : `${own} · `}Holdfast`;
}

/** What this page, or what is open on it, is called. */
export function useTitle(name: string): void {
  useEffect(() => {
    own = name;
    show();
  }, [name]);
}

/** Keeps the count in the title; once, for all pages. */
export function useCountInTitle(): void {
  const { rows, loaded } = usePending();
  const waiting = rows.filter((row) => row.status === "pending");
  const known = useRef<ReadonlySet<string>>(undefined);
  const nameOf = useAgentNames();
  const tell = useEffectEvent(({ id, agentId, tool, sessionKey }: Approval) => {
    const path = sessionKey === null ? "/approvals" : `/chat?session=${encodeURIComponent(sessionKey)}`;
    void notify({ tag: id, title: "Holdfast needs you", body: `${nameOf(agentId)} asks to run ${tool}`, path });
  });
  useEffect(() => {
    count = waiting.length;
    show();
  }, [waiting.length]);
  useEffect(() => {
    const now = rows.filter((row) => row.status === "pending");
    const fresh = known.current === undefined ? [] : now.filter((row) => known.current?.has(row.id) === false);
    if (loaded) known.current = new Set(now.map((row) => row.id));
    for (const row of fresh) tell(row);
  }, [rows, loaded]);
}

/** Tells who looks elsewhere that what they asked here is answered, or will not be. */
export function useNoticeOfAnswers(): void {
  const nameOf = useAgentNames();
  useChanges("turn.", ({ type, data }) => {
    const turn = data as Turn | null;
    if (turn === null || (type !== "turn.committed" && type !== "turn.failed") || !isMine(turn.turnId)) return;
    const title = type === "turn.failed" ? `${nameOf(turn.agentId)} gave no answer` : `${nameOf(turn.agentId)} answered`;
    void notify({ tag: turn.turnId, title, body: "Open the chat to read on.", path: `/chat?session=${encodeURIComponent(turn.sessionKey)}` });
  });
}
