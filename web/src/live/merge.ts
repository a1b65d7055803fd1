/** Lists that live changes flow into. Decisions only: nothing here asks or tells anybody. */
export interface Row {
  id: string;
  createdAt: string;
  updatedAt: string;
}

/** Whether a newer state of the same thing is held already. */
export function isLate<T extends Row>(rows: readonly T[], row: T): boolean {
  const held = rows.find((one) => one.id === row.id);
  return held !== undefined && held.updatedAt > row.updatedAt;
}

/** The rows with this one in it; of two states of the same thing the newer stays. */
export function withRow<T extends Row>(rows: readonly T[], row: T): readonly T[] {
  if (isLate(rows, row)) return rows;
  const index = rows.findIndex((one) => one.id === row.id);
  return index === -1 ? [...rows, row] : rows.with(index, row);
}

export function withoutRow<T extends Row>(rows: readonly T[], id: string): readonly T[] {
  return rows.some((one) => one.id === id) ? rows.filter((one) => one.id !== id) : rows;
}

/** One list of two, such as what was loaded and what was heard while it was. */
export function withRows<T extends Row>(rows: readonly T[], more: readonly T[]): readonly T[] {
  const held = new Map(rows.map((row) => [row.id, row]));
  for (const row of more) {
    const old = held.get(row.id);
    if (old === undefined || old.updatedAt <= row.updatedAt) held.set(row.id, row);
  }
  return [...held.values()];
}

/** An edit that the gateway has not answered yet. */
export interface Edit<T> {
  id: string;
  change: Partial<T>;
}

/** What is shown: the rows as the gateway told them, with the edits that are under way laid over them. */
export function withEdits<T extends Row>(rows: readonly T[], edits: readonly Edit<T>[]): readonly T[] {
  if (edits.length === 0) return rows;
  return rows.map((row) =>
    edits.reduce((shown, edit) => (edit.id === row.id ? { ...shown, ...edit.change } : shown), row),
  );
}

/** Whether a row that nobody asked for lies behind the last page that was read: its turn is yet to come. */
export function isBehind<T extends Row>(rows: readonly T[], row: T): boolean {
  return !rows.some((one) => one.id === row.id || one.createdAt <= row.createdAt);
}
