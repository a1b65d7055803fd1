/** A gateway that answers as it is told and keeps what it was asked, and OpenClaw as a plugin sees it. */
import { mkdtempSync } from "node:fs";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { Client } from "../src/client.ts";
import { type Config, readConfig } from "../src/config.ts";
import { Engine } from "../src/engine.ts";
import type { Api, Event, Hook, Message, Tool, ToolContext } from "../src/host.ts";
import { Queue } from "../src/queue.ts";

export interface Asked {
  method: string;
  path: string;
  body: Record<string, any>;
  text: string;
}

type Answer = (asked: Asked) => [number, unknown] | "silence";

export class Gateway {
  readonly asked: Asked[] = [];
  answer: Answer = () => [200, { ok: true, messages: [], estimatedTokens: 0, systemPromptAddition: null }];
  private server: Server | undefined;
  private port = 0;

  async start(): Promise<void> {
    this.server = createServer((request, response) => {
      void read(request).then((text) => {
        const asked = { method: request.method ?? "", path: request.url ?? "", body: JSON.parse(text || "{}"), text };
        this.asked.push(asked);
        const found = this.answer(asked);
        if (found === "silence") return;
        response.writeHead(found[0], { "content-type": "application/json" }).end(JSON.stringify(found[1]));
      });
    });
    await new Promise<void>((done) => this.server!.listen(this.port, "127.0.0.1", done));
    this.server.unref();
    this.port = (this.server.address() as AddressInfo).port;
  }

  async stop(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise((done) => this.server?.close(done));
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  of(path: string): Asked[] {
    return this.asked.filter((one) => one.path.startsWith(path));
  }

  /** The words of every message that was told, once for each telling. */
  told(): string[] {
    const messages = this.of("/api/engine/ingest").flatMap((one) => one.body["messages"] as { content: string }[]);
    return messages.map((one) => one.content);
  }
}

async function read(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const part of request) text += String(part);
  return text;
}

export interface World {
  gateway: Gateway;
  config: Config;
  client: Client;
  queue: Queue;
  engine: Engine;
  said: string[];
}

export async function world(given: Record<string, unknown> = {}): Promise<World> {
  const gateway = new Gateway();
  await gateway.start();
  const folder = mkdtempSync(join(tmpdir(), "holdfast-openclaw-"));
  const config = readConfig({ baseUrl: gateway.url, queuePath: join(folder, "q.sqlite"), token: "t", ...given }, {});
  return { gateway, ...opened(config) };
}

/** The plugin's parts over the same file, as after a restart. */
export function opened(config: Config): Omit<World, "gateway"> {
  const said: string[] = [];
  const log = { info: (text: string) => void said.push(text), warn: (text: string) => void said.push(text) };
  const client = new Client(config.baseUrl, config.token, config);
  const queue = new Queue(config.queuePath, client, log, config.queue);
  return { config, client, queue, engine: new Engine({ config, client, queue, log }), said };
}

/** OpenClaw's side of a registration: hooks can be called, tools looked up. */
export class Host {
  readonly hooks = new Map<string, Hook[]>();
  readonly tools = new Map<string, (context: ToolContext) => Tool>();
  readonly events: { text: string; sessionKey: string }[] = [];
  wakes = 0;
  engines = 0;
  memories = 0;
  readonly api: Api;

  constructor(config: Record<string, unknown>, slots: { contextEngine?: string; memory?: string } = {}) {
    this.api = {
      id: "holdfast",
      config: { plugins: { slots } },
      pluginConfig: config,
      logger: { info: () => undefined, warn: () => undefined },
      runtime: {
        system: {
          enqueueSystemEvent: (text, { sessionKey }) => Boolean(this.events.push({ text, sessionKey })),
          requestHeartbeat: () => void (this.wakes += 1),
        },
      },
      on: (hook, handler) => void this.hooks.set(hook, [...(this.hooks.get(hook) ?? []), handler]),
      registerTool: (tool, options) => {
        const make = typeof tool === "function" ? tool : () => tool;
        this.tools.set(options?.names?.[0] ?? "", make as (context: ToolContext) => Tool);
      },
      registerContextEngine: () => void (this.engines += 1),
      registerMemoryCapability: () => void (this.memories += 1),
    };
  }

  async fire(hook: string, event: Event, context: Event = {}): Promise<unknown> {
    let last: unknown;
    for (const handler of this.hooks.get(hook) ?? []) last = (await handler(event, context)) ?? last;
    return last;
  }

  async use(name: string, params: Record<string, unknown>, context: ToolContext = {}): Promise<any> {
    const found = await this.tools.get(name)!(context).execute("call", params);
    return JSON.parse(found.content[0]!.text);
  }
}

let clock = 1_790_000_000_000;

export function message(role: string, text: string, more: Partial<Message> = {}): Message {
  clock += 10;
  return { role, content: [{ type: "text", text }], timestamp: clock, ...more };
}

export async function until(done: () => boolean): Promise<void> {
  while (!done()) await new Promise((go) => setTimeout(go, 5));
}
