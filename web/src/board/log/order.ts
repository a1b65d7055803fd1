import type { Entry } from "../types";

type Dated = Pick<Entry, "id" | "createdAt">;

/** The order of the log; of entries of the same moment the one that was written later counts as newer. */
export function newestFirst(a: Dated, b: Dated): number {
  if (a.createdAt !== b.createdAt) return a.createdAt < b.createdAt ? 1 : -1;
  if (a.id === b.id) return 0;
  return a.id < b.id ? 1 : -1;
}
