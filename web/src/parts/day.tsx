/** Days and hours ahead: when something is due, until when something rests. */
import { useSyncExternalStore } from "react";

import { live } from "../live/live";

const HALF_MINUTE = 30_000;
const HOUR = 3_600_000;
const DAY = 24 * HOUR;

const near = new Intl.DateTimeFormat(undefined, { weekday: "short", hour: "2-digit", minute: "2-digit" });
const far = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const other = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "short" });

/** The gateway's time, to half a minute: for what does not change by the second. */
export function useMoment(): number {
  return useSyncExternalStore(tick, () => Math.floor(live.now() / HALF_MINUTE) * HALF_MINUTE);
}

/** The day on which something is due; it stands out when that is near or over. */
export function Due({ at, done = false }: { at: string; done?: boolean }) {
  const now = useMoment();
  const left = Date.parse(at) - now;
  const look = done ? "quiet" : left < 0 ? "soon" : left < 2 * DAY ? "near" : "quiet";
  return (
    <time className={`nowrap ${look}`} dateTime={at} title={`Due ${exact.format(new Date(at))}`}>
      {left < 0 && !done ? "Overdue, " : "Due "}
      {dayOf(at, now)}
    </time>
  );
}

export function Until({ at }: { at: string }) {
  const now = useMoment();
  const soon = Date.parse(at) - now < 6 * DAY;
  return (
    <time className="nowrap quiet" dateTime={at} title={exact.format(new Date(at))}>
      until {soon ? near.format(new Date(at)) : dayOf(at, now)}
    </time>
  );
}

function dayOf(at: string, now: number): string {
  const day = new Date(at);
  const days = Math.round((midnight(day) - midnight(new Date(now))) / DAY);
  if (days === 0) return "today";
  if (days === 1) return "tomorrow";
  if (days === -1) return "yesterday";
  return (day.getFullYear() === new Date(now).getFullYear() ? far : other).format(day);
}

function midnight(day: Date): number {
  return new Date(day.getFullYear(), day.getMonth(), day.getDate()).getTime();
}

/** The end of a day as a date field names it; null for none. */
export function endOfDay(field: string): string | null {
  return field === "" ? null : new Date(`${field}T23:59:00`).toISOString();
}

/** A moment as a field for dates (and hours) has it, in the reader's own time. */
export function fieldOf(at: string | null, hours = false): string {
  if (at === null) return "";
  const day = new Date(at);
  const local = new Date(day.getTime() - day.getTimezoneOffset() * 60_000).toISOString();
  return local.slice(0, hours ? 16 : 10);
}

/** The hour on a day so many days from now, in the reader's own time. */
export function inDays(now: number, days: number, hour: number): string {
  const day = new Date(now);
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() + days, hour).toISOString();
}

function tick(tell: () => void): () => void {
  const timer = setInterval(tell, HALF_MINUTE / 2);
  return () => clearInterval(timer);
}
