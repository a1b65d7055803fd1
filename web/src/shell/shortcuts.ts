/** Keys that work on every page. What somebody is writing has its keys to itself. */
import { useEffect, useEffectEvent } from "react";

import { go } from "../router/router";
import { routes } from "../routes";

export const SHORTCUTS: readonly (readonly [string, string])[] = [
  [isMac() ? "⌘ K" : "Ctrl K", "Go to a page, a chat or a topic; do something"],
  ["/", "Search everything that was said"],
  ["?", "These shortcuts"],
  ["j  k", "The next, the one before"],
  ["n", "New chat"],
  ...routes.flatMap((route) => (route.key === undefined ? [] : [[`g ${route.key}`, route.title] as const])),
  ["Enter", "Send; Shift and Enter begins a line"],
  ["Esc", "Close what is open"],
];

/** What the key beside the space bar is called here. */
export function isMac(): boolean {
  return /Mac|iPhone|iPad/.test(navigator.userAgent);
}

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

/** What one goes through row by row: chats, turns, topics, tasks, files, what needs one, what was found. */
const ROWS = [".chat-row", ".turn", ".card", ".topic h3 a", ".task-line a", ".entry", ".rows a", ".pick a", ".memory-hit", ".alone", "tbody a"];

/** From one row of the page to the next. */
function step(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>(ROWS.map((row) => `main ${row}`).join(", "))].filter((row) => row.checkVisibility());
  const at = rows.findIndex((row) => row === document.activeElement || row.contains(document.activeElement));
  const next = rows[at === -1 ? (by === 1 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))];
  if (next === undefined) return;
  if (next.tabIndex < 0) next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

/** Whether a key belongs to the words that somebody is writing. */
export function isWriting(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  // An editor has its own keys; from outside its shadow only it is seen, not the field within.
  return target.isContentEditable || target.shadowRoot !== null || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}
