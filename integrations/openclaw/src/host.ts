/** The part of OpenClaw's plugin API (2026.9.x) that is used here, as far as it is used. */

export interface Block {
  type: string;
  text?: string;
  id?: string;
  name?: string;
  arguments?: Record<string, unknown>;
  [more: string]: unknown;
}

/** A message as OpenClaw's transcripts have it; fields that are not read here are carried along. */
export interface Message {
  role: string;
  content?: string | Block[];
  timestamp?: number;
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  usage?: { input?: number; cacheRead?: number; cacheWrite?: number; output?: number };
  provenance?: { kind?: string };
  [more: string]: unknown;
}

export interface Logger {
  info(text: string): void;
  warn(text: string): void;
}

export interface ToolContext {
  sessionKey?: string;
  agentId?: string;
}

export interface Tool {
  name: string;
  label: string;
  description: string;
  parameters: Record<string, unknown>;
  execute(id: string, params: Record<string, unknown>, signal?: AbortSignal): Promise<ToolAnswer>;
}

export interface ToolAnswer {
  content: { type: "text"; text: string }[];
  details: unknown;
}

export type Event = Record<string, unknown>;
export type Hook = (event: Event, context: Event) => unknown;

export interface Api {
  id: string;
  registrationMode?: string;
  config?: { plugins?: { slots?: { contextEngine?: string; memory?: string } } };
  pluginConfig?: Record<string, unknown>;
  logger: Logger;
  runtime?: {
    system?: {
      enqueueSystemEvent(text: string, options: { sessionKey: string; agentId?: string; contextKey?: string }): boolean;
      requestHeartbeat(options: Record<string, string>): void;
    };
    subagent?: {
      run(params: Record<string, unknown>): Promise<{ runId: string }>;
      waitForRun(params: { runId: string; timeoutMs?: number }): Promise<{ status?: string; error?: string }>;
      getSessionMessages(params: { sessionKey: string; limit?: number }): Promise<{ messages: unknown[] }>;
    };
  };
  on(hook: string, handler: Hook, options?: { priority?: number; timeoutMs?: number }): void;
  registerTool(tool: Tool | ((context: ToolContext) => Tool | null), options?: { names?: string[] }): void;
  registerContextEngine(id: string, factory: () => unknown): void;
  registerMemoryCapability?(capability: unknown): void;
}
