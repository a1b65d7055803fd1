/** Holdfast for OpenClaw: an engine, a memory, a log and tools, each of which can be switched off. */
import { Client, reason } from "./client.ts";
import { readConfig } from "./config.ts";
import { Continuation } from "./continuation.ts";
import { Engine, ENGINE_ID } from "./engine.ts";
import type { Api, Logger } from "./host.ts";
import { BoardLogger } from "./logger.ts";
import { Queue } from "./queue.ts";
import { boardTools, contextTools, memoryRuntime, memoryTools, tool } from "./tools.ts";

interface Opened {
  client: Client;
  queue: Queue;
  engine: Engine;
}

/** OpenClaw registers a plugin several times in one process; they share one queue. */
const OPENED = Symbol.for("holdfast.openclaw");

function opened(api: Api, log: Logger): Opened & { config: ReturnType<typeof readConfig> } {
  const config = readConfig(api.pluginConfig);
  const all = ((globalThis as Record<symbol, unknown>)[OPENED] ??= new Map()) as Map<string, Opened>;
  const name = JSON.stringify([config.queuePath, config.baseUrl, config.token, config.timeoutMs]);
  let found = all.get(name);
  if (found === undefined) {
    const client = new Client(config.baseUrl, config.token, config);
    const queue = new Queue(config.queuePath, client, log, config.queue);
    const engine = new Engine({ config, client, queue, log });
    found = { client, queue, engine };
    all.set(name, found);
  }
  return { ...found, config };
}

export default {
  id: ENGINE_ID,
  name: "Holdfast",
  register(api: Api): void {
    const log: Logger = { info: (text) => api.logger.info(text), warn: (text) => api.logger.warn(text) };
    if (!readConfig(api.pluginConfig).enabled) return;
    const { config, client, queue, engine } = opened(api, log);
    const { parts } = config;
    const slots = api.config?.plugins?.slots ?? {};

    if (parts.engine) api.registerContextEngine(ENGINE_ID, () => engine);
    const engineWrites = parts.engine && slots.contextEngine === ENGINE_ID;
    new BoardLogger({ config, queue, client, log }, engine, engineWrites).register(api);

    const holdsMemory = parts.memory && slots.memory === ENGINE_ID;
    if (holdsMemory) api.registerMemoryCapability?.({ runtime: memoryRuntime(client, config) });
    const tools = [
      ...(parts.tools ? boardTools(client) : []),
      ...(holdsMemory ? memoryTools(client) : []),
      ...(engineWrites ? contextTools(client) : []),
    ];
    for (const one of tools) api.registerTool(tool(one), { names: [one.name] });
    if (parts.continuation) new Continuation(api, queue, engine, config.continuation).register();

    api.on("gateway_start", () => {
      queue.release();
      client.get("/api/whoami", {}, { patient: true }).then(
        () => log.info(`holdfast: connected to ${config.baseUrl}, ${queue.waiting()} in line`),
        (error: unknown) => log.warn(`holdfast: ${config.baseUrl} does not answer: ${reason(error)}; all is kept until it does`),
      );
    });
    api.on("gateway_stop", () => queue.drain().catch(() => undefined));
  },
};
