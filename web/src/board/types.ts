/** The forms of what lies on the board, as the gateway tells them. */
export type Priority = "low" | "medium" | "high";
export type TopicStatus = "active" | "todo" | "doing" | "blocked" | "done" | "snoozed" | "archived";
export type TaskStatus = "todo" | "doing" | "blocked" | "done";
export type EntryType = "conversation" | "action" | "note" | "system" | "import";
export type Classification = "pending" | "classified" | "failed";

export interface Space {
  id: string;
  name: string;
  color: string | null;
  defaultVisible: boolean;
  connectivity: Record<string, boolean>;
  createdAt: string;
  updatedAt: string;
}

interface Work {
  id: string;
  spaceId: string;
  spaceIds: string[];
  createdBy: "user" | "classifier" | "import";
  color: string | null;
  description: string | null;
  priority: Priority;
  snoozedUntil: string | null;
  dueDate: string | null;
  pinned: boolean;
  tags: string[];
  digest: string | null;
  digestUpdatedAt: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface Topic extends Work {
  name: string;
  sortIndex: number;
  status: TopicStatus;
}

export interface Task extends Work {
  topicId: string;
  title: string;
  status: TaskStatus;
}

export interface Entry {
  id: string;
  type: EntryType;
  content: string;
  summary: string | null;
  raw?: string | null;
  topicId: string | null;
  taskId: string | null;
  spaceId: string | null;
  relatedLogId: string | null;
  classificationStatus: Classification;
  classificationCode: string | null;
  agentId: string | null;
  agentLabel: string | null;
  source: { sessionKey?: string; channel?: string; [name: string]: unknown } | null;
  createdAt: string;
  updatedAt: string;
  idempotencyKey: string | null;
}

export interface Decision {
  entryId: string;
  method: "lock" | "reply" | "continuity" | "session" | "model" | "heuristic" | "rule";
  topicId: string | null;
  taskId: string | null;
  confidence: number | null;
  reasons: Record<string, unknown> | null;
  attempt: number;
  decidedAt: string;
}

/** A topic's name and a task's title have at most so many characters. */
export const MAX_TITLE = 200;

/** And a space's name so many. */
export const MAX_SPACE = 120;
