/** What an agent can ask Holdfast for by itself, and Holdfast in OpenClaw's memory slot. */
import { type Client, type Json, reason, Refused } from "./client.ts";
import type { Config } from "./config.ts";
import type { Tool, ToolAnswer, ToolContext } from "./host.ts";

type Params = Record<string, unknown>;
type Ask = (params: Params, context: ToolContext, signal?: AbortSignal) => Promise<unknown>;

interface Spec {
  name: string;
  description: string;
  parameters: Params;
  ask: Ask;
}

const MOST_CHARS = 20_000;
const TOOL_MS = 15_000;

const string = (description: string, more: Params = {}): Params => ({ type: "string", description, ...more });
const integer = (description: string, minimum: number, maximum: number): Params => ({
  type: "integer",
  description,
  minimum,
  maximum,
});
const object = (properties: Params, ...required: string[]): Params => ({
  type: "object",
  additionalProperties: false,
  properties,
  required,
});

/**
 * The seven of the board, by the names that Clawboard gave them. They read for the conversation in which they are
 * called: what not everyone who hears it may read is not there, whatever the model was talked into.
 */
export function boardTools(client: Client): Spec[] {
  const get = (path: string, query: Params, signal?: AbortSignal): Promise<unknown> =>
    client.get(path, query, { timeoutMs: TOOL_MS, signal, patient: true });
  const send = (method: string, path: string, body: Params, signal?: AbortSignal): Promise<unknown> =>
    client.call(method, path, body, { timeoutMs: TOOL_MS, signal, patient: true });
  const byId = (kind: string): Ask => ({ id: given, ...more }, { sessionKey }, signal) =>
    get(`/api/${kind}/${id(given)}`, { ...more, sessionKey }, signal);
  return [
    {
      name: "clawboard_search",
      description: "Search the board: topics, tasks, what was said and noted, by meaning and by words.",
      parameters: object(
        {
          q: string("What to look for."),
          topicId: string("Only within this topic."),
          limitTopics: integer("Topics at most.", 1, 50),
          limitLogs: integer("Log entries at most.", 1, 100),
        },
        "q",
      ),
      ask: (params, { sessionKey }, signal) =>
        get("/api/search", { limitTopics: 5, limitTasks: 5, limitLogs: 10, ...params, sessionKey }, signal),
    },
    {
      name: "clawboard_context",
      description: "The board's continuity for a question: where work stands, what was said last, what fits.",
      parameters: object({
        q: string("What it is about."),
        mode: string("How much to look up.", { enum: ["auto", "cheap", "full", "patient"] }),
        maxChars: integer("Length of the block.", 400, 12_000),
      }),
      ask: async (params, { sessionKey }, signal) => {
        const found = (await get("/api/context", { ...params, sessionKey }, signal)) as Json;
        return { mode: found["mode"], layers: found["layers"], block: found["block"] };
      },
    },
    {
      name: "clawboard_get_topic",
      description: "One topic of the board.",
      parameters: object({ id: string("The topic's id.") }, "id"),
      ask: byId("topics"),
    },
    {
      name: "clawboard_get_task",
      description: "One task of the board.",
      parameters: object({ id: string("The task's id.") }, "id"),
      ask: byId("tasks"),
    },
    {
      name: "clawboard_get_log",
      description: "One log entry of the board, whole.",
      parameters: object({ id: string("The entry's id."), includeRaw: { type: "boolean" } }, "id"),
      ask: byId("log"),
    },
    {
      name: "clawboard_create_note",
      description: "Keep a curated note on a log entry: it weighs more than what was merely said.",
      parameters: object(
        {
          relatedLogId: string("The entry that the note is about."),
          text: string("The note.", { minLength: 1, maxLength: 8_000 }),
          topicId: string("The topic it belongs to."),
          taskId: string("The task it belongs to."),
        },
        "relatedLogId",
        "text",
      ),
      ask: ({ text, ...places }, context, signal) => {
        const source = { channel: "openclaw", ...(context.sessionKey ? { sessionKey: context.sessionKey } : {}) };
        const agentId = context.agentId ?? "main";
        return send("POST", "/api/log", { type: "note", content: text, agentId, source, ...places }, signal);
      },
    },
    {
      name: "clawboard_update_task",
      description: "Change a task of the board: its status, title, priority or due date.",
      parameters: object(
        {
          id: string("The task's id."),
          title: string("Its title."),
          status: string("Where it stands.", { enum: ["todo", "doing", "blocked", "done"] }),
          priority: string("How urgent it is.", { enum: ["low", "medium", "high"] }),
          dueDate: string("When it is due, ISO 8601."),
          pinned: { type: "boolean" },
        },
        "id",
      ),
      ask: ({ id: given, ...fields }, _, signal) => send("PATCH", `/api/tasks/${id(given)}`, fields, signal),
    },
  ];
}

export function memoryTools(client: Client): Spec[] {
  const options = (signal?: AbortSignal): Params => ({ timeoutMs: TOOL_MS, signal, patient: true });
  const asker = (context: ToolContext): Params => ({ agentId: context.agentId, sessionKey: context.sessionKey });
  return [
    {
      name: "memory_search",
      description: "Search long-term memory (notes, daily logs, earlier conversations); gives snippets with paths and lines.",
      parameters: object(
        {
          query: string("What to remember."),
          maxResults: integer("Results at most.", 1, 100),
          minScore: { type: "number", minimum: 0, maximum: 1 },
        },
        "query",
      ),
      ask: ({ query, maxResults, minScore }, context, signal) =>
        client.get("/api/memory/search", { q: query, maxResults, minScore, ...asker(context) }, options(signal)),
    },
    {
      name: "memory_get",
      description: "Read lines of a memory file that memory_search named.",
      parameters: object(
        { path: string("The path."), from: integer("First line.", 1, 10_000_000), lines: integer("How many.", 1, 10_000) },
        "path",
      ),
      ask: ({ path, from, lines }, context, signal) =>
        client.get("/api/memory/get", { path, from, lines, ...asker(context) }, options(signal)),
    },
  ];
}

export function contextTools(client: Client): Spec[] {
  const recall = (tool: string): Ask => (params, context, signal) =>
    client.call(
      "POST",
      "/api/engine/recall",
      { sessionKey: context.sessionKey ?? "", tool, arguments: params },
      { timeoutMs: TOOL_MS, signal, patient: true },
    );
  return [
    {
      name: "context_read",
      description: "Read the exact words behind a summary (sum_…), a message kept aside (log-…) or a gap (span:…).",
      parameters: object(
        {
          id: string("An id from the context or a search."),
          from: { type: ["string", "integer"], description: "The `next` of the page before." },
          limit: integer("Characters of the page.", 1, 40_000),
        },
        "id",
      ),
      ask: recall("context_read"),
    },
    {
      name: "context_search",
      description: "Find words in everything that was said and done in this session, summarised or not.",
      parameters: object(
        { query: string("Words, names or paths."), limit: integer("Hits.", 1, 100), offset: integer("Skip.", 0, 10_000) },
        "query",
      ),
      ask: recall("context_search"),
    },
  ];
}

/** A tool that answers in words whatever happens: a gateway that is away is an answer, not an error of the run. */
export function tool(spec: Spec): (context: ToolContext) => Tool {
  return (context) => ({
    name: spec.name,
    label: spec.name.replaceAll("_", " "),
    description: spec.description,
    parameters: spec.parameters,
    execute: async (_id, params, signal) => {
      try {
        return answer(await spec.ask(params, context, signal));
      } catch (error) {
        const kind = error instanceof Refused ? error.code : "unavailable";
        return answer({ error: kind, detail: reason(error) });
      }
    },
  });
}

export function answer(found: unknown): ToolAnswer {
  const text = JSON.stringify(found);
  const shown = text.length <= MOST_CHARS ? text : `${text.slice(0, MOST_CHARS)}… (${text.length - MOST_CHARS} more characters)`;
  return { content: [{ type: "text", text: shown }], details: {} };
}

/** What OpenClaw itself asks its memory slot: search, read, how it stands. */
export function memoryRuntime(client: Client, config: Config): Params {
  const manager = (agentId: string): Params => ({
    async search(query: string, options: Params = {}): Promise<unknown[]> {
      const { maxResults, minScore, sessionKey, signal } = options;
      const found = await client.get<{ results?: Json[] }>(
        "/api/memory/search",
        { q: query, maxResults, minScore, sessionKey, agentId },
        { timeoutMs: config.timeoutMs, signal: signal as AbortSignal | undefined },
      );
      return (found.results ?? []).map((hit) => ({
        ...hit,
        startLine: hit["startLine"] ?? 1,
        endLine: hit["endLine"] ?? hit["startLine"] ?? 1,
        source: hit["source"] === "memory" ? "memory" : "sessions",
      }));
    },
    async readFile({ relPath, from, lines }: { relPath: string; from?: number; lines?: number }): Promise<Json> {
      try {
        const query = { path: relPath, from, lines, agentId };
        return { status: "ok", ...(await client.get("/api/memory/get", query, { timeoutMs: config.timeoutMs })) };
      } catch (error) {
        if (error instanceof Refused && error.status === 404) return { status: "not_found", text: "", path: relPath };
        throw error;
      }
    },
    status: (): Json => ({ backend: "builtin", provider: "holdfast", custom: { baseUrl: config.baseUrl } }),
    probeEmbeddingAvailability: (): Promise<Json> => Promise.resolve({ ok: true }),
    probeVectorAvailability: (): Promise<boolean> => Promise.resolve(true),
  });
  return {
    getMemorySearchManager: ({ agentId }: { agentId: string }) => Promise.resolve({ manager: manager(agentId) }),
    resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
    // Holdfast answers for a session with what all who hear it may read; its hits are authorised already.
    authorizeSearchHits: ({ hits }: { hits: unknown[] }) => Promise.resolve(hits),
  };
}

function id(given: unknown): string {
  return encodeURIComponent(String(given));
}
