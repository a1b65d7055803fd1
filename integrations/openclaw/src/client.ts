/** Calls to the gateway, each with a time limit. A gateway that hangs is left alone for a while. */

/** The gateway did not answer, or not in time, or is not well: the same call may work later. */
export class Down extends Error {}

/** The gateway answered no. The same call will be refused again, unless `transient`. */
export class Refused extends Error {
  readonly status: number;
  readonly code: string;

  constructor(status: number, code: string, detail: string) {
    super(`${code}: ${detail}`);
    this.status = status;
    this.code = code;
  }

  /** What a person or time mends: a token that is not known yet, a limit that was reached. */
  get transient(): boolean {
    return [401, 403, 408, 425, 429].includes(this.status);
  }
}

export interface CallOptions {
  timeoutMs?: number | undefined;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
  /** Asks although the gateway is being left alone: for work that nobody waits for. */
  patient?: boolean;
}

export type Json = Record<string, unknown>;

export class Client {
  private restUntil = 0;
  private readonly baseUrl: string;
  private readonly token: string;
  private readonly limits: { timeoutMs: number; restMs: number };

  constructor(baseUrl: string, token: string, limits: { timeoutMs: number; restMs: number }) {
    this.baseUrl = baseUrl;
    this.token = token;
    this.limits = limits;
  }

  get<T = Json>(path: string, query: Record<string, unknown> = {}, options: CallOptions = {}): Promise<T> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const search = new URLSearchParams(given.map(([name, value]): [string, string] => [name, String(value)]));
    return this.call<T>("GET", search.size === 0 ? path : `${path}?${search.toString()}`, undefined, options);
  }

  /** Leave the gateway alone for a while. */
  rest(): void {
    this.restUntil = Date.now() + this.limits.restMs;
  }

  requireAwake(): void {
    if (Date.now() < this.restUntil) throw new Down("it was slow a moment ago");
  }

  async call<T = Json>(method: string, path: string, body?: unknown, options: CallOptions = {}): Promise<T> {
    if (options.patient !== true) this.requireAwake();
    const limit = AbortSignal.timeout(Math.max(1, Math.floor(options.timeoutMs ?? this.limits.timeoutMs)));
    const signal = options.signal === undefined ? limit : AbortSignal.any([limit, options.signal]);
    try {
      const answer = await fetch(this.baseUrl + path, {
        method,
        redirect: "error",
        signal,
        headers: {
          ...(this.token === "" ? {} : { authorization: `Bearer ${this.token}` }),
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...options.headers,
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const found = (await answer.json().catch(() => ({}))) as Json;
      if (answer.status >= 500) throw new Down(`status ${answer.status}`);
      if (answer.status >= 400) throw refused(answer.status, found);
      this.restUntil = 0;
      return found as T;
    } catch (error) {
      if (error instanceof Refused || error instanceof Down) throw error;
      if (limit.aborted) this.rest();
      throw new Down(limit.aborted ? "no answer in time" : reason(error));
    }
  }
}

function refused(status: number, problem: Json): Refused {
  const code = typeof problem["code"] === "string" ? problem["code"] : "refused";
  return new Refused(status, code, String(problem["detail"] ?? problem["title"] ?? `status ${status}`));
}

export function reason(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message}` : error.message;
}
