/**
 * What is to be told to Holdfast, on disk before anything else happens: it is delivered in the order of each
 * session, retried until it is taken, and told once, since everything has a name that Holdfast knows again.
 */
import { chmodSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { DatabaseSync } from "node:sqlite";

import { type Client, Down, type Json, Refused } from "./client.ts";
import type { Logger } from "./host.ts";
import type { Sent } from "./transcript.ts";

export type Kind = "message" | "commit" | "after" | "log" | "reset" | "spawn" | "ended";

interface Row {
  seq: number;
  kind: Kind;
  key: string;
  body: string;
}

const BATCH = 100;
const BATCH_CHARS = 2_000_000;
const DELIVERY_MS = 30_000;
const FIRST_WAIT_MS = 500;
const LAST_WAIT_MS = 15_000;
const REFUSED_WAIT_MS = 30_000;
const KNOWN_MS = 30 * 86_400_000;
const MOST_ROWS = 200_000;

const TABLES = `
PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 2000;
CREATE TABLE IF NOT EXISTS rows (seq INTEGER PRIMARY KEY AUTOINCREMENT, lane TEXT NOT NULL, kind TEXT NOT NULL,
  key TEXT NOT NULL UNIQUE, body TEXT NOT NULL, held INTEGER NOT NULL DEFAULT 0);
CREATE INDEX IF NOT EXISTS rows_lane ON rows (lane, seq);
CREATE TABLE IF NOT EXISTS told (key TEXT PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS refused (key TEXT, kind TEXT, body TEXT, reason TEXT, at INTEGER);
CREATE TABLE IF NOT EXISTS facts (kind TEXT, name TEXT, value TEXT, at INTEGER, PRIMARY KEY (kind, name)) WITHOUT ROWID;
`;

export class Queue {
  private readonly db: DatabaseSync;
  private readonly client: Client;
  private readonly log: Logger;
  private readonly batched: boolean;
  private readonly busy = new Map<string, Promise<void>>();
  private timer: NodeJS.Timeout | undefined;
  private wait = FIRST_WAIT_MS;
  private closed = false;
  /** Called with what `afterTurn` answered. */
  onAfterTurn: (lane: string, answer: Json) => void = () => undefined;

  constructor(path: string, client: Client, log: Logger, batched = false) {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    this.db = new DatabaseSync(path);
    this.db.exec(TABLES);
    chmodSync(path, 0o600);
    this.client = client;
    this.log = log;
    this.batched = batched;
    this.db.prepare("DELETE FROM told WHERE at < ?").run(Date.now() - KNOWN_MS);
  }

  /** Put something in line for a session, unless it is there or was told already. Held: not before it is released. */
  add(lane: string, kind: Kind, key: string, body: unknown, held = false): boolean {
    if (this.isTold(key)) return false;
    const insert = "INSERT OR IGNORE INTO rows (lane, kind, key, body, held) VALUES (?, ?, ?, ?, ?)";
    const done = this.db.prepare(insert).run(lane, kind, key, JSON.stringify(body), held ? 1 : 0);
    if (done.changes > 0 && Number(done.lastInsertRowid) % 1000 === 0) this.bound();
    this.kick();
    return done.changes > 0;
  }

  /** An accepted turn: its messages, held until now, become one delivery. */
  commit(lane: string, advancementKey: string, messages: Sent[]): "committed" | "duplicate" {
    const key = `commit:${advancementKey}`;
    if (this.isTold(key)) return "duplicate";
    this.together(() => {
      for (const one of messages) this.db.prepare("DELETE FROM rows WHERE key = ? AND held = 1").run(named(lane, one));
      this.add(lane, "commit", key, { advancementKey, messages });
    });
    return "committed";
  }

  /** Let what is held of a session go, or of all of them. */
  release(lane?: string): void {
    if (lane === undefined) this.db.exec("UPDATE rows SET held = 0 WHERE held = 1");
    else this.db.prepare("UPDATE rows SET held = 0 WHERE held = 1 AND lane = ?").run(lane);
    this.kick();
  }

  /** Take something for told, since it was told under another name. */
  settle(key: string): void {
    this.db.prepare("INSERT OR REPLACE INTO told (key, at) VALUES (?, ?)").run(key, Date.now());
  }

  isTold(key: string): boolean {
    return this.db.prepare("SELECT 1 FROM told WHERE key = ?").get(key) !== undefined;
  }

  /** How much waits, of a session or in all. */
  waiting(lane?: string): number {
    const where = lane === undefined ? "" : "WHERE lane = ? AND held = 0";
    const row = this.db.prepare(`SELECT count(*) AS n FROM rows ${where}`).get(...(lane === undefined ? [] : [lane]));
    return Number(row?.["n"]);
  }

  remember(kind: string, name: string, value: unknown): void {
    const put = "INSERT OR REPLACE INTO facts (kind, name, value, at) VALUES (?, ?, ?, ?)";
    this.db.prepare(put).run(kind, name, JSON.stringify(value), Date.now());
  }

  recall<T>(kind: string, name: string): T | undefined {
    const row = this.db.prepare("SELECT value FROM facts WHERE kind = ? AND name = ?").get(kind, name);
    return row === undefined ? undefined : (JSON.parse(String(row["value"])) as T);
  }

  forget(kind: string, name: string): void {
    this.db.prepare("DELETE FROM facts WHERE kind = ? AND name = ?").run(kind, name);
  }

  listed<T>(kind: string): { name: string; value: T }[] {
    const rows = this.db.prepare("SELECT name, value FROM facts WHERE kind = ? ORDER BY at, name").all(kind);
    return rows.map((row) => ({ name: String(row["name"]), value: JSON.parse(String(row["value"])) as T }));
  }

  /** Deliver all that a session has in line within a time; throws `Down` if that cannot be. */
  async flush(lane: string, timeoutMs: number): Promise<void> {
    if (this.waiting(lane) === 0) return;
    this.client.requireAwake();
    let late: NodeJS.Timeout | undefined;
    const limit = new Promise<never>((_, reject) => {
      late = setTimeout(() => {
        this.client.rest();
        reject(new Down("what is in line could not be delivered in time"));
      }, timeoutMs);
    });
    try {
      await Promise.race([this.inTurn(lane, timeoutMs), limit]);
    } finally {
      clearTimeout(late);
    }
  }

  /** Deliver whatever can be delivered; a session that is refused for now keeps no other waiting. */
  async drain(): Promise<void> {
    const rows = this.db.prepare("SELECT lane FROM rows WHERE held = 0 GROUP BY lane ORDER BY min(seq)").all();
    let refused: Refused | undefined;
    for (const { lane } of rows) {
      if (this.closed) return;
      try {
        await this.inTurn(String(lane), DELIVERY_MS, true);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        refused = error;
      }
    }
    if (refused !== undefined) throw refused;
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
    this.db.close();
  }

  kick(delay = 20): void {
    if (this.closed || this.timer !== undefined) return;
    this.timer = setTimeout(() => void this.background(), delay);
    this.timer.unref();
  }

  private async background(): Promise<void> {
    let again: number | undefined;
    try {
      await this.drain();
      this.wait = FIRST_WAIT_MS;
    } catch (error) {
      if (this.closed) return;
      if (this.wait === FIRST_WAIT_MS) this.log.warn(`holdfast: ${this.waiting()} in line, waiting: ${String(error)}`);
      again = error instanceof Refused ? REFUSED_WAIT_MS : this.wait;
      this.wait = Math.min(this.wait * 2, LAST_WAIT_MS);
    }
    this.timer = undefined;
    if (again !== undefined) this.kick(again);
    else if (!this.closed && this.ready() > 0) this.kick();
  }

  private ready(): number {
    return Number(this.db.prepare("SELECT count(*) AS n FROM rows WHERE held = 0").get()?.["n"]);
  }

  /** One delivery at a time for each session, so that nothing overtakes. */
  private inTurn(lane: string, timeoutMs: number, patient = false): Promise<void> {
    const before = this.busy.get(lane) ?? Promise.resolve();
    const work = before.catch(() => undefined).then(() => this.deliver(lane, timeoutMs, patient));
    this.busy.set(lane, work);
    const done = (): void => {
      if (this.busy.get(lane) === work) this.busy.delete(lane);
    };
    work.then(done, done);
    return work;
  }

  private async deliver(lane: string, timeoutMs: number, patient: boolean): Promise<void> {
    const next = "SELECT seq, kind, key, body FROM rows WHERE lane = ? AND held = 0 ORDER BY seq LIMIT ?";
    while (!this.closed) {
      const rows = this.db.prepare(next).all(lane, BATCH) as unknown as Row[];
      const batch = together(rows, this.batched);
      if (batch.length === 0) return;
      try {
        await this.tell(lane, batch, timeoutMs, patient);
        this.done(lane, batch);
      } catch (error) {
        if (!(error instanceof Refused) || error.transient) throw error;
        if (batch.length > 1) await this.oneByOne(lane, batch, timeoutMs, patient);
        else this.setAside(batch[0]!, error);
      }
    }
  }

  /** A batch of which something is refused: the rest of it is not. */
  private async oneByOne(lane: string, batch: Row[], timeoutMs: number, patient: boolean): Promise<void> {
    for (const row of batch) {
      try {
        await this.tell(lane, [row], timeoutMs, patient);
        this.done(lane, [row]);
      } catch (error) {
        if (!(error instanceof Refused) || error.transient) throw error;
        this.setAside(row, error);
      }
    }
  }

  private async tell(lane: string, batch: Row[], timeoutMs: number, patient: boolean): Promise<void> {
    const bodies = batch.map((row) => JSON.parse(row.body) as Json);
    const body = bodies[0]!;
    const options = { timeoutMs, patient };
    const post = (path: string, what: unknown): Promise<Json> => this.client.call("POST", path, what, options);
    switch (batch[0]!.kind) {
      case "message":
        await post("/api/engine/ingestBatch", { sessionKey: lane, messages: bodies });
        return;
      case "commit":
        await post("/api/engine/ingestBatch", { sessionKey: lane, ...body });
        return;
      case "after":
        this.onAfterTurn(lane, await post("/api/engine/afterTurn", { sessionKey: lane, ...body }));
        return;
      case "log":
        await post(this.batched ? "/api/ingest" : "/api/log", this.batched ? bodies : body);
        return;
      case "reset":
        await this.unlessUnknown(post(`/api/sessions/${encodeURIComponent(lane)}/reset`, undefined));
        return;
      case "spawn":
        await this.unlessUnknown(post("/api/engine/prepareSubagentSpawn", body));
        return;
      case "ended":
        await this.unlessUnknown(post("/api/engine/onSubagentEnded", body));
    }
  }

  private async unlessUnknown(call: Promise<unknown>): Promise<void> {
    try {
      await call;
    } catch (error) {
      if (!(error instanceof Refused) || error.status !== 404) throw error;
    }
  }

  private done(lane: string, batch: Row[]): void {
    if (this.closed) return;
    this.together(() => {
      const told = this.db.prepare("INSERT OR REPLACE INTO told (key, at) VALUES (?, ?)");
      for (const row of batch) {
        told.run(row.key, Date.now());
        const { messages } = row.kind === "commit" ? (JSON.parse(row.body) as { messages: Sent[] }) : { messages: [] };
        for (const one of messages) told.run(named(lane, one), Date.now());
        this.db.prepare("DELETE FROM rows WHERE seq = ?").run(row.seq);
      }
    });
  }

  /** What Holdfast will never take is kept aside, so that the rest goes on and a person can look at it. */
  private setAside(row: Row, error: Refused): void {
    this.log.warn(`holdfast: refused for good, kept aside in the queue's file: ${error.message}`);
    this.together(() => {
      const put = "INSERT INTO refused (key, kind, body, reason, at) VALUES (?, ?, ?, ?, ?)";
      this.db.prepare(put).run(row.key, row.kind, row.body, error.message, Date.now());
      this.db.prepare("DELETE FROM rows WHERE seq = ?").run(row.seq);
    });
  }

  private bound(): void {
    const gone = this.db.prepare("DELETE FROM rows WHERE seq <= (SELECT max(seq) FROM rows) - ?").run(MOST_ROWS);
    if (gone.changes > 0) this.log.warn(`holdfast: the queue was full; its ${gone.changes} oldest rows are lost`);
  }

  private together(work: () => void): void {
    this.db.exec("BEGIN IMMEDIATE");
    try {
      work();
      this.db.exec("COMMIT");
    } catch (error) {
      this.db.exec("ROLLBACK");
      throw error;
    }
  }
}

/** The name of a session's message in the queue. */
export function named(lane: string, message: { key: string }): string {
  return `message:${lane}:${message.key}`;
}

/** The rows at the head of a line that can be told in one call. */
function together(rows: Row[], batched: boolean): Row[] {
  const first = rows[0];
  if (first === undefined || !(first.kind === "message" || (first.kind === "log" && batched))) return rows.slice(0, 1);
  const end = rows.findIndex((row) => row.kind !== first.kind);
  const same = end === -1 ? rows : rows.slice(0, end);
  let chars = 0;
  const fit = same.findIndex((row, index) => (chars += row.body.length) > BATCH_CHARS && index > 0);
  return fit === -1 ? same : same.slice(0, fit);
}
