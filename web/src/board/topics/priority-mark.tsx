import { wordFor } from "../statuses";
import type { Priority } from "../types";

/** How urgent something is; nothing where it is as most things are. */
export function PriorityMark({ priority }: { priority: Priority }) {
  if (priority === "medium") return null;
  return <span className={`priority ${priority}`}>{wordFor(priority)}</span>;
}
