/**
 * The one way to call the gateway. The cookie goes along by itself; no token is ever kept in a page.
 *
 * `api` is typed by what the gateway says of itself: a path, its parameters and its answer belong together.
 */
import { watched } from "../live/answering";
import { problemOf } from "./problem";
import type { paths } from "./schema";

type Query = Record<string, string | number | boolean | null | undefined>;

interface Options {
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal | undefined;
}

type Method = "get" | "post" | "put" | "patch" | "delete";

/** The paths that can be asked so. */
export type PathOf<M extends Method> = {
  [P in keyof paths]: paths[P][M] extends { responses: unknown } ? P : never;
}[keyof paths];

type Operation<P extends keyof paths, M extends Method> = paths[P][M];
type Content<R> = R extends { content: { "application/json": infer T } } ? T : never;

/** What a path answers. */
export type AnswerOf<P extends keyof paths, M extends Method = "get"> =
  Operation<P, M> extends { responses: infer R } ? { [S in keyof R]: Content<R[S]> }[keyof R] : never;

type Given<P extends keyof paths, M extends Method, K extends "path" | "query"> =
  Operation<P, M> extends { parameters: Partial<Record<K, infer V>> } ? NonNullable<V> : never;

type BodyOf<P extends keyof paths, M extends Method> =
  Operation<P, M> extends { requestBody?: infer B }
    ? NonNullable<B> extends { content: { "application/json": infer T } }
      ? T
      : undefined
    : undefined;

/** What stands for the names in a path, and behind the question mark. */
export interface Params<P extends keyof paths, M extends Method = "get"> {
  path?: Given<P, M, "path">;
  query?: Given<P, M, "query">;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

/** One page of a list; `next` is the cursor of the page behind it. */
export interface Page<T> {
  rows: T[];
  next: string | null;
}

export const LOGIN = "/api/login";
export const JOIN = "/api/invitations/accept";

let onLoggedOut: () => void = () => undefined;

/** Who is told when the gateway says that nobody is logged in. */
export function whenLoggedOut(tell: () => void): void {
  onLoggedOut = tell;
}

export const api = {
  get: <P extends PathOf<"get">>(path: P, params: Params<P> = {}): Promise<AnswerOf<P>> =>
    asked("GET", path, params, undefined),
  post: <P extends PathOf<"post">>(
    path: P,
    body: BodyOf<P, "post">,
    params: Params<P, "post"> = {},
  ): Promise<AnswerOf<P, "post">> => asked("POST", path, params, (body as unknown) ?? {}),
  put: <P extends PathOf<"put">>(
    path: P,
    body: BodyOf<P, "put">,
    params: Params<P, "put"> = {},
  ): Promise<AnswerOf<P, "put">> => asked("PUT", path, params, (body as unknown) ?? {}),
  patch: <P extends PathOf<"patch">>(
    path: P,
    body: BodyOf<P, "patch">,
    params: Params<P, "patch"> = {},
  ): Promise<AnswerOf<P, "patch">> => asked("PATCH", path, params, body),
  delete: <P extends PathOf<"delete">>(path: P, params: Params<P, "delete"> = {}): Promise<AnswerOf<P, "delete">> =>
    asked("DELETE", path, params, undefined),
};

interface Loose {
  path?: unknown;
  query?: unknown;
  signal?: AbortSignal | undefined;
  headers?: Record<string, string>;
}

async function asked<T>(method: string, path: string, params: Loose, body: unknown): Promise<T> {
  const response = await call(method, filled(path, params.path), {
    query: (params.query ?? {}) as Query,
    body,
    signal: params.signal,
    headers: params.headers ?? {},
  });
  return (await response.json()) as T;
}

function filled(path: string, names: unknown): string {
  const given = (names ?? {}) as Record<string, string | number>;
  return path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(given[name] ?? "")));
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
  const json: Record<string, string> = options.body === undefined ? {} : { "Content-Type": "application/json" };
  const asked = fetch(path + search(options.query ?? {}), {
    method,
    credentials: "same-origin",
    headers: { ...json, ...options.headers },
    ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    ...(options.signal === undefined ? {} : { signal: options.signal }),
  });
  const response = await watched(asked);
  if (response.ok) return response;
  const problem = await problemOf(response);
  // A login that fails is told where it was tried; any other 401 means that the login is over.
  if (problem.status === 401 && path !== LOGIN && path !== JOIN) onLoggedOut();
  throw problem;
}

function search(query: Query): string {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") fields.set(name, String(value));
  }
  const text = fields.toString();
  return text === "" ? "" : `?${text}`;
}
