/** Which entries a list of the log is about. */
import type { Entry } from "../types";

export interface LogFilter {
  spaceId: string;
  topicId: string;
  taskId: string;
  agentId: string;
  sessionKey: string;
  type: string;
  status: string;
}

export const EVERYTHING: LogFilter = {
  spaceId: "",
  topicId: "",
  taskId: "",
  agentId: "",
  sessionKey: "",
  type: "",
  status: "",
};

/** The filter as the gateway is asked. */
export function asQuery(filter: LogFilter): Record<string, string> {
  return {
    allowedSpaceIds: filter.spaceId,
    topicId: filter.topicId,
    taskId: filter.taskId,
    agentId: filter.agentId,
    sessionKey: filter.sessionKey,
    type: filter.type,
    classificationStatus: filter.status,
  };
}

/** Whether an entry that was heard of is one that the gateway would list; `spacesOf` a topic says where it lies. */
export function matches(entry: Entry, filter: LogFilter, spacesOf: (topicId: string) => readonly string[]): boolean {
  const same = (wanted: string, have: unknown): boolean => wanted === "" || wanted === have;
  return (
    same(filter.topicId, entry.topicId) &&
    same(filter.taskId, entry.taskId) &&
    same(filter.agentId, entry.agentId) &&
    same(filter.sessionKey, entry.source?.sessionKey) &&
    same(filter.type, entry.type) &&
    same(filter.status, entry.classificationStatus) &&
    (filter.spaceId === "" ||
      entry.spaceId === filter.spaceId ||
      (entry.topicId !== null && spacesOf(entry.topicId).includes(filter.spaceId)))
  );
}
