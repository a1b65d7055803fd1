/** The name of the page in the tab, with how much waits for a person; and a word from the browser when more does. */
import { useEffect, useRef } from "react";

import { usePending } from "../approvals/pending";
import { go } from "../router/router";

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
  useEffect(() => {
    count = waiting.length;
    show();
  }, [waiting.length]);
  useEffect(() => {
    const now = rows.filter((row) => row.status === "pending");
    const fresh = known.current === undefined ? [] : now.filter((row) => known.current?.has(row.id) === false);
    if (loaded) known.current = new Set(now.map((row) => row.id));
    for (const row of fresh) notify(row.id, `${row.agentId} asks for ${row.tool}`);
  }, [rows, loaded]);
}

export function mayOfferNotices(): boolean {
  return "Notification" in window && Notification.permission === "default";
}

/** Only for who looks elsewhere; what would run is read on the page, not on a locked screen. */
function notify(id: string, text: string): void {
  if (!("Notification" in window) || Notification.permission !== "granted" || !document.hidden) return;
  const notice = new Notification("Holdfast needs you", { body: text, tag: id, icon: "/icon-192.png" });
  notice.onclick = () => {
    window.focus();
    go("/approvals");
    notice.close();
  };
}
