/** The agenda as people read it. */
import type { AgendaOut, ContinuationOut, StandingTaskOut } from "../api/schema";

export interface Due {
  id: string;
  what: string;
  agentId: string | null;
  sessionKey: string | null;
  dueAt: string | null;
  status: string;
  attempts: string;
  /** What can be cancelled, and by which id; what stands on the schedule is switched off there. */
  cancel: { kind: "turn" | "election"; id: string } | null;
}

const LOOK = "continuation.due";
const NAMES: Record<string, string> = {
  turn: "Turn",
  "turn.subagent": "Subagent's turn",
  cron: "Standing task",
  heartbeat: "Heartbeat",
  deliver: "Delivery",
  "log.ingest": "Entries to be written",
  "board.classify": "Sorting into topics",
  "board.review": "Looking over a chat's topics",
  "board.digest": "Digests of topics",
  "board.supervise": "Looking after the board",
  "context.compact": "Summary of a chat",
  "continuation.compact": "Summary of a chat, as elected",
  "cron.archive": "Putting a standing task's chat away",
  "subagent.sweep": "Putting a subagent's chat away",
  "memory.embed": "Indexing what was said",
  "memory.update": "Indexing notes",
  "log.retention": "Clearing what is no longer kept",
};
const ELECTED: Record<ContinuationOut["kind"], string> = {
  work: "Elected turn",
  delegate: "Elected delegate",
  post_compaction: "Elected for after the next summary",
};

/** What runs first, then what is due next. A look at what a session elected is shown as what it elected. */
export function dueOf(items: readonly AgendaOut[], elected: readonly ContinuationOut[], tasks: readonly StandingTaskOut[]): Due[] {
  const rows = [...items.filter((item) => item.kind !== LOOK).map((item) => onAgenda(item, tasks)), ...elected.map(asElected)];
  const rank = (row: Due): number => (row.status.startsWith("run") ? 0 : row.dueAt === null ? 2 : 1);
  return rows.sort((a, b) => rank(a) - rank(b) || (a.dueAt ?? "").localeCompare(b.dueAt ?? ""));
}

function onAgenda(item: AgendaOut, tasks: readonly StandingTaskOut[]): Due {
  const task = tasks.find((one) => one.id === item.taskId);
  return {
    id: item.id,
    what: task === undefined ? (NAMES[item.kind] ?? item.kind) : `${NAMES[item.kind] ?? item.kind}: ${task.name}`,
    agentId: item.agentId ?? task?.agentId ?? null,
    sessionKey: item.sessionKey,
    dueAt: item.dueAt,
    status: item.cancelRequested ? "running, is being stopped" : item.status === "queued" ? "waits" : item.status === "running" ? "runs" : item.status,
    attempts: item.maxAttempts > 1_000 ? String(item.attempts) : `${item.attempts} of ${item.maxAttempts}`,
    cancel: item.turnId === null || item.cancelRequested ? null : { kind: "turn", id: item.turnId },
  };
}

function asElected(one: ContinuationOut): Due {
  return {
    id: one.id,
    what: ELECTED[one.kind],
    agentId: one.agentId,
    sessionKey: one.sessionKey,
    dueAt: one.dueAt,
    status: one.phase.replaceAll("_", " "),
    attempts: String(one.retries),
    cancel: { kind: "election", id: one.id },
  };
}

const DAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/** A cron expression of an everyday kind, in words; any other as it stands. */
export function inWords(when: string): string {
  const [minute = "", hour = "", day = "", month = "", weekday = "", ...more] = when.trim().split(/\s+/);
  if (when.trim().startsWith("every ") || more.length > 0 || weekday === "" || month !== "*") return when.trim();
  const at = /^\d{1,2}$/.test(minute) && /^\d{1,2}$/.test(hour) ? `at ${hour.padStart(2, "0")}:${minute.padStart(2, "0")}` : null;
  if (day === "*" && weekday === "*" && hour === "*") {
    const step = /^\*\/(\d+)$/.exec(minute)?.[1];
    if (step !== undefined) return `every ${step} minutes`;
    return /^\d{1,2}$/.test(minute) ? `every hour at :${minute.padStart(2, "0")}` : when.trim();
  }
  if (at === null) return when.trim();
  if (day === "*" && weekday === "*") return `every day ${at}`;
  if (day === "*" && weekday === "1-5") return `on workdays ${at}`;
  const name = /^\d$/.test(weekday) ? DAYS[Number(weekday)] : undefined;
  if (day === "*" && name !== undefined) return `on ${name}s ${at}`;
  return /^\d{1,2}$/.test(day) && weekday === "*" ? `every month on day ${day} ${at}` : when.trim();
}
