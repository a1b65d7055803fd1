/** The forms of what lies on the board, by the names that its pages use. */
import type { DecisionOut, FullEntryOut, SpaceOut, TaskOut, TopicOut } from "../api/schema";

export type Space = SpaceOut;
export type Topic = TopicOut;
export type Task = TaskOut;
export type Priority = Topic["priority"];
export type TopicStatus = Topic["status"];
export type TaskStatus = Task["status"];
export type EntryType = FullEntryOut["type"];
export type Classification = FullEntryOut["classificationStatus"];

export interface Entry extends Omit<FullEntryOut, "source"> {
  source: { sessionKey?: string; channel?: string; [name: string]: unknown } | null;
}

export type Decision = DecisionOut;

/** A topic's name and a task's title have at most so many characters. */
export const MAX_TITLE = 200;

/** And a space's name so many. */
export const MAX_SPACE = 120;
