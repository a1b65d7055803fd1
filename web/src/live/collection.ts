/**
 * A list of things that the gateway keeps, held up to date by the live connection for as long as anyone looks.
 *
 * Edits show at once. What the gateway said and what it has not answered yet are kept apart, so that one that is
 * refused leaves nothing behind but its reason.
 */
import { getPage, type Page, patch, post, remove } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { type Edit, type Row, isBehind, isLate, withEdits, withRow, withRows, withoutRow } from "./merge";
import { live, type Change } from "./live";

export interface Held<T> {
  rows: readonly T[];
  /** There is more than was loaded. */
  more: boolean;
  loaded: boolean;
  problem: Problem | undefined;
  /** Why the last edit of a row was refused, by its id. */
  refused: ReadonlyMap<string, Problem>;
}

export interface Kind<T> {
  /** Where the list is read; a row is changed at `<path>/<id>`. */
  path: string;
  query?: Record<string, string | number>;
  /** What changes about a row begin with, such as `topic.`. */
  prefix: string;
  /** Pages that are read at first; those behind them are left for `older`. */
  pages?: number;
  /** Read otherwise than as a list at `path`. */
  read?: () => Promise<Page<T>>;
  /** Newest first, to be read on with `older`: what lies behind the last page is left for later. */
  paged?: boolean;
  /** A new row changes others without a word about them: they are read anew. */
  linked?: boolean;
  /** Whether a row that was heard of belongs to this list. */
  holds?: (row: T) => boolean;
}

export class Collection<T extends Row> {
  private told: readonly T[] = [];
  private edits: readonly Edit<T>[] = [];
  private gone = new Set<string>();
  private heard: T[] | null = null;
  private cursor: string | null = null;
  /** How many pages are there: as many are read when all is read anew. */
  private pages = 0;
  private readingOn = false;
  private held: Held<T> = { rows: [], more: false, loaded: false, problem: undefined, refused: new Map() };
  private readonly watchers = new Set<() => void>();
  private generation = -1;
  private stop: () => void = () => undefined;

  constructor(private readonly kind: Kind<T>) {}

  readonly current = (): Held<T> => this.held;

  readonly watch = (watcher: () => void): (() => void) => {
    if (this.watchers.size === 0) this.stop = this.begin();
    this.watchers.add(watcher);
    return () => {
      this.watchers.delete(watcher);
      if (this.watchers.size === 0) this.stop();
    };
  };

  /** Make a row; what went wrong is for the one who asked. */
  async make(body: unknown): Promise<T> {
    const row = await post<T>(this.kind.path, body);
    this.take(row);
    return row;
  }

  /** Change a row; it shows at once, and is as before if the gateway refuses. */
  async edit(id: string, change: Partial<T>): Promise<boolean> {
    return this.attempt(id, change, async () => this.take(await patch<T>(this.pathOf(id), change)));
  }

  async delete(id: string): Promise<boolean> {
    return this.attempt(id, {}, async () => {
      await remove(this.pathOf(id));
      this.drop(id);
    });
  }

  /** Do something about a row that shows as `change` until it is answered. */
  async attempt(id: string, change: Partial<T>, act: () => Promise<unknown>): Promise<boolean> {
    const edit = { id, change };
    this.edits = [...this.edits, edit];
    this.refuse(id, null);
    try {
      await act();
      return true;
    } catch (error) {
      this.refuse(id, asProblem(error));
      return false;
    } finally {
      this.edits = this.edits.filter((one) => one !== edit);
      this.show({});
    }
  }

  /** Read the page behind the last one. */
  readonly older = async (): Promise<void> => {
    const cursor = this.cursor;
    if (cursor === null || this.readingOn) return;
    this.readingOn = true;
    try {
      const found = await this.page(cursor);
      // The list was begun anew meanwhile: this page is not the next one any more.
      if (this.cursor !== cursor) return;
      this.cursor = found.next;
      this.pages += 1;
      this.told = withRows(found.rows, this.told).filter((row) => !this.gone.has(row.id));
      this.readingOn = false;
      this.show({ more: found.next !== null, problem: undefined });
    } catch (error) {
      this.show({ problem: asProblem(error) });
    } finally {
      this.readingOn = false;
    }
  };

  /** Take in how a row stands, as an answer or a change tells. */
  take(row: T): void {
    this.heard?.push(row);
    if (this.kind.paged === true && this.cursor !== null && isBehind(this.told, row)) return;
    if (isLate(this.told, row)) return;
    if (this.kind.holds?.(row) === false) this.told = withoutRow(this.told, row.id);
    else this.told = withRow(this.told, row);
    this.show({});
  }

  /** Forget why an edit was refused. */
  readonly excuse = (id: string): void => this.refuse(id, null);

  readonly reload = (): void => void this.load();

  private pathOf(id: string): string {
    return `${this.kind.path}/${encodeURIComponent(id)}`;
  }

  private drop(id: string): void {
    this.gone.add(id);
    this.told = withoutRow(this.told, id);
    this.show({});
  }

  private async load(): Promise<void> {
    const heard: T[] = [];
    this.heard = heard;
    this.gone = new Set();
    try {
      const { rows, next } = await this.read();
      if (this.heard !== heard) return;
      const known = withRows(rows, heard).filter((row) => !this.gone.has(row.id));
      this.told = known.filter((row) => this.kind.holds?.(row) !== false);
      this.cursor = next;
      this.show({ more: next !== null, loaded: true, problem: undefined });
    } catch (error) {
      if (this.heard === heard) this.show({ problem: asProblem(error) });
    } finally {
      if (this.heard === heard) this.heard = null;
    }
  }

  private async read(): Promise<Page<T>> {
    let found = await this.page(null);
    const rows = found.rows;
    const wanted = this.kind.paged === true ? 1 : Math.max(this.kind.pages ?? 1, this.pages);
    let pages = 1;
    for (; pages < wanted && found.next !== null; pages += 1) {
      found = await this.page(found.next);
      rows.push(...found.rows);
    }
    this.pages = pages;
    return { rows, next: found.next };
  }

  private page(cursor: string | null): Promise<Page<T>> {
    if (this.kind.read !== undefined) return this.kind.read();
    return getPage<T>(this.kind.path, { ...this.kind.query, ...(cursor === null ? {} : { cursor }) });
  }

  private refuse(id: string, problem: Problem | null): void {
    const refused = new Map(this.held.refused);
    refused.delete(id);
    if (problem !== null) refused.set(id, problem);
    this.show({ refused });
  }

  private show(some: Partial<Held<T>>): void {
    this.held = { ...this.held, rows: withEdits(this.told, this.edits), ...some };
    for (const watcher of [...this.watchers]) watcher();
  }

  private begin(): () => void {
    const unwatch = live.watch(() => this.follow());
    const off = live.on(this.kind.prefix, (change) => this.hear(change));
    // Another may have logged in since: what they may not see is not to be shown, not even for a moment.
    const { status, generation } = live.current();
    if (status !== "open" || generation !== this.generation) this.forget();
    this.generation = -1;
    this.follow();
    return () => {
      unwatch();
      off();
    };
  }

  private forget(): void {
    this.told = [];
    this.heard = null;
    this.cursor = null;
    this.pages = 0;
    this.show({ loaded: false, more: false, problem: undefined, refused: new Map() });
  }

  private hear(change: Change): void {
    const known = this.told.some((row) => row.id === change.entityId);
    if (change.type.endsWith(".deleted")) this.drop(change.entityId);
    else if (change.data !== null) this.take(change.data as T);
    if (this.kind.linked === true && !known) void this.load();
  }

  /** Loads once the live connection stands or failed, and again whenever it had to begin over. */
  private follow(): void {
    const { status, generation } = live.current();
    const waits = status === "idle" || (generation === 0 && status !== "down");
    if (waits || generation === this.generation) return;
    this.generation = generation;
    void this.load();
  }
}
