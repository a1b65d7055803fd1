/** Times as people read them; the exact one is a hover away. */
import { useSyncExternalStore } from "react";

import { live } from "../live/live";

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** How long ago, or in how long, kept up to date. */
export function Ago({ at }: { at: string }) {
  // Only a change of the words is a reason to draw anew: a page may have hundreds of them.
  const words = useSyncExternalStore(tick, () => ago(live.now() - Date.parse(at)));
  return (
    <time dateTime={at} title={exact.format(new Date(at))}>
      {words}
    </time>
  );
}

/** The time that is left until a moment: `4:05`, or `over`. */
export function Left({ until }: { until: string }) {
  const left = useLeft(until);
  const seconds = Math.ceil(left / SECOND);
  const text = left <= 0 ? "over" : `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  return (
    <time dateTime={until} title={exact.format(new Date(until))} className={left < MINUTE ? "soon" : undefined}>
      {text}
    </time>
  );
}

/** Milliseconds until a moment of the gateway's clock. */
export function useLeft(until: string): number {
  return Date.parse(until) - useNow();
}

/** The gateway's time, to the second. */
export function useNow(): number {
  return useSyncExternalStore(tick, () => Math.floor(live.now() / SECOND) * SECOND);
}

export function ago(ms: number): string {
  if (ms <= -MINUTE) return `in ${span(-ms)}`;
  if (ms < 5 * SECOND) return "just now";
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s ago`;
  return `${span(ms)} ago`;
}

function span(ms: number): string {
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

const tellers = new Set<() => void>();
let timer: ReturnType<typeof setInterval> | undefined;

/** One timer for all that shows the time. */
function tick(tell: () => void): () => void {
  tellers.add(tell);
  timer ??= setInterval(() => {
    for (const teller of [...tellers]) teller();
  }, SECOND);
  return () => {
    tellers.delete(tell);
    if (tellers.size > 0) return;
    clearInterval(timer);
    timer = undefined;
  };
}
