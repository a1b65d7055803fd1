/** The one way to call the gateway. The cookie goes along by itself; no token is ever kept in a page. */
import { problemOf } from "./problem";

type Query = Record<string, string | number | boolean | undefined>;

interface Options {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal | undefined;
}

/** One page of a list; `next` is the cursor of the page behind it. */
export interface Page<T> {
  rows: T[];
  next: string | null;
}

export const LOGIN = "/api/login";

let onLoggedOut: () => void = () => undefined;

/** Who is told when the gateway says that nobody is logged in. */
export function whenLoggedOut(tell: () => void): void {
  onLoggedOut = tell;
}

export async function get<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
  return (await (await call("GET", path, { query, signal })).json()) as T;
}

export async function getPage<T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<Page<T>> {
  const response = await call("GET", path, { query, signal });
  return { rows: (await response.json()) as T[], next: response.headers.get("X-Next-Cursor") };
}

export async function post<T>(path: string, body: unknown = {}): Promise<T> {
  return (await (await call("POST", path, { body })).json()) as T;
}

export async function patch<T>(path: string, body: unknown): Promise<T> {
  return (await (await call("PATCH", path, { body })).json()) as T;
}

export async function remove<T>(path: string, query: Query = {}): Promise<T> {
  return (await (await call("DELETE", path, { query })).json()) as T;
}

async function call(method: string, path: string, options: Options): Promise<Response> {
  const response = await fetch(path + search(options.query ?? {}), {
    method,
    credentials: "same-origin",
    ...(options.body === undefined
      ? {}
      : { body: JSON.stringify(options.body), headers: { "Content-Type": "application/json" } }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A login that fails is told where it was tried; any other 401 means that the login is over.
  if (problem.status === 401 && path !== LOGIN) onLoggedOut();
  throw problem;
}

function search(query: Query): string {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== "") fields.set(name, String(value));
  }
  const text = fields.toString();
  return text === "" ? "" : `?${text}`;
}
