/** The words for statuses and priorities, and their order on the page. */
import type { Classification, EntryType, Priority, TaskStatus, TopicStatus } from "./types";

export const TOPIC_STATUSES: readonly TopicStatus[] = [
  "doing",
  "blocked",
  "todo",
  "active",
  "snoozed",
  "done",
  "archived",
];

/** The columns of the board, in the way that work goes. */
export const COLUMNS: readonly TopicStatus[] = ["todo", "active", "doing", "blocked", "done"];

export const TASK_STATUSES: readonly TaskStatus[] = ["todo", "doing", "blocked", "done"];

export const PRIORITIES: readonly Priority[] = ["high", "medium", "low"];

export const ENTRY_TYPES: readonly EntryType[] = ["conversation", "note", "action", "system", "import"];

export const CLASSIFICATIONS: readonly Classification[] = ["pending", "classified", "failed"];

/** Groups that are out of the way until someone opens them. */
export const QUIET_STATUSES: ReadonlySet<TopicStatus> = new Set(["snoozed", "done", "archived"]);

const WORDS: Record<string, string> = {
  active: "Active",
  todo: "To do",
  doing: "Doing",
  blocked: "Blocked",
  done: "Done",
  snoozed: "Snoozed",
  archived: "Archived",
  high: "High",
  medium: "Medium",
  low: "Low",
  conversation: "Conversation",
  action: "Action",
  note: "Note",
  system: "System",
  import: "Import",
  pending: "Not sorted yet",
  classified: "Sorted",
  failed: "Left out",
};

export function wordFor(name: string): string {
  return WORDS[name] ?? name;
}
