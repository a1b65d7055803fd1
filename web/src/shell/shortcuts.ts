/** Keys that work on every page. What somebody is writing has its keys to itself. */
import { useEffect, useEffectEvent } from "react";

import { go } from "../router/router";
import { routes } from "../routes";

export const SHORTCUTS: readonly (readonly [string, string])[] = [
  ["Ctrl K", "Go to a page, a chat or a topic; do something"],
  ["/", "Search everything that was said"],
  ["?", "These shortcuts"],
  ["j  k", "The next, the one before"],
  ["n", "New chat"],
  ...routes.flatMap((route) => (route.key === undefined ? [] : [[`g ${route.key}`, route.title] as const])),
  ["Enter", "Send; Shift and Enter begins a line"],
  ["Esc", "Close what is open"],
];

export function useShortcuts(open: (what: "palette" | "help") => void): void {
  const pressed = useEffectEvent((event: KeyboardEvent, going: boolean): boolean => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      open("palette");
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return false;
    if (going) {
      const route = routes.find((one) => one.key === event.key);
      if (route !== undefined) go(route.path);
      return false;
    }
    if (event.key === "?") open("help");
    else if (event.key === "n") go("/chat?new=1");
    else if (event.key === "j" || event.key === "k") step(event.key === "j" ? 1 : -1);
    else return event.key === "g";
    event.preventDefault();
    return false;
  });

  useEffect(() => {
    let going = false;
    const hear = (event: KeyboardEvent): void => {
      going = pressed(event, going);
    };
    addEventListener("keydown", hear);
    return () => removeEventListener("keydown", hear);
  }, []);
}

/** From one row of the page to the next: chats, turns, topics, cards. */
function step(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("main .chat-row, main .turn, main .card, main .topic-row a, main .entry")];
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = rows[at === -1 ? (by === 1 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
  if (next === undefined) return;
  if (next.tabIndex < 0) next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** Whether a key belongs to the words that somebody is writing. */
export function isWriting(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}
