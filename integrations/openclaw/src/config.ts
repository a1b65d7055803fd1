/** What can be set in `plugins.entries.holdfast.config`; the defaults are those of openclaw.plugin.json. */
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

export interface Config {
  enabled: boolean;
  baseUrl: string;
  token: string;
  parts: { engine: boolean; memory: boolean; logger: boolean; tools: boolean; continuation: boolean };
  /** Longest wait for one answer, for all answers of one turn, and how long a slow gateway is left alone. */
  timeoutMs: number;
  turnBudgetMs: number;
  restMs: number;
  queuePath: string;
  queue: boolean;
  ignoreSessionPrefixes: string[];
  contextAugment: boolean;
  contextMode: string | undefined;
  contextMaxChars: number;
  contextFetchTimeoutMs: number;
  contextTopicLimit: number;
  contextTaskLimit: number;
  contextLogLimit: number;
  continuation: {
    defaultDelayMs: number;
    minDelayMs: number;
    maxDelayMs: number;
    maxChainLength: number;
    maxDelegatesPerTurn: number;
  };
}

type Given = Record<string, unknown>;

/** The classifier's own sessions: what it says about the log is no part of the log. */
export const INTERNAL_SESSIONS = "internal:clawboard-classifier:";

export function readConfig(given: Given = {}, env: NodeJS.ProcessEnv = process.env): Config {
  const parts = object(given["parts"]);
  const bounds = object(given["continuation"]);
  return {
    enabled: flag(given["enabled"], true),
    baseUrl: text(given["baseUrl"], env["HOLDFAST_URL"] ?? "http://127.0.0.1:8787").replace(/\/+$/, ""),
    token: token(given, env),
    parts: {
      engine: flag(parts["engine"], true),
      memory: flag(parts["memory"], true),
      logger: flag(parts["logger"], true),
      tools: flag(parts["tools"], true),
      continuation: flag(parts["continuation"], false),
    },
    timeoutMs: number(given["timeoutMs"], 2_500),
    turnBudgetMs: number(given["turnBudgetMs"], 5_000),
    restMs: number(given["restMs"], 10_000),
    queuePath: path(text(given["queuePath"], join(stateDir(env), "holdfast-queue.sqlite"))),
    queue: flag(given["queue"], false),
    ignoreSessionPrefixes: prefixes(given["ignoreSessionPrefixes"], env),
    contextAugment: flag(given["contextAugment"], true),
    contextMode: typeof given["contextMode"] === "string" ? given["contextMode"] : undefined,
    contextMaxChars: number(given["contextMaxChars"], 2_200),
    contextFetchTimeoutMs: number(given["contextFetchTimeoutMs"], 1_500),
    contextTopicLimit: number(given["contextTopicLimit"], 3),
    contextTaskLimit: number(given["contextTaskLimit"], 3),
    contextLogLimit: number(given["contextLogLimit"], 6),
    continuation: {
      defaultDelayMs: number(bounds["defaultDelayMs"], 15_000),
      minDelayMs: number(bounds["minDelayMs"], 5_000),
      maxDelayMs: number(bounds["maxDelayMs"], 300_000),
      maxChainLength: number(bounds["maxChainLength"], 10),
      maxDelegatesPerTurn: number(bounds["maxDelegatesPerTurn"], 5),
    },
  };
}

/** The token itself, or a file that only its owner reads; a file that is not there yet is no token. */
function token(given: Given, env: NodeJS.ProcessEnv): string {
  const plain = text(given["token"], env["HOLDFAST_TOKEN"] ?? "");
  const file = text(given["tokenFile"], "");
  if (plain !== "" || file === "") return plain.trim();
  try {
    return readFileSync(path(file), "utf8").trim();
  } catch {
    return "";
  }
}

function prefixes(given: unknown, env: NodeJS.ProcessEnv): string[] {
  const named = env["CLAWBOARD_LOGGER_IGNORE_SESSION_PREFIXES"];
  const found = Array.isArray(given) ? given : named === undefined ? [INTERNAL_SESSIONS] : named.split(",");
  return found.map((one) => String(one).trim()).filter((one) => one !== "");
}

function stateDir(env: NodeJS.ProcessEnv): string {
  return env["OPENCLAW_STATE_DIR"] ?? join(homedir(), ".openclaw");
}

function path(given: string): string {
  return given.startsWith("~/") ? join(homedir(), given.slice(2)) : given;
}

function object(given: unknown): Given {
  return typeof given === "object" && given !== null ? (given as Given) : {};
}

function flag(given: unknown, otherwise: boolean): boolean {
  return typeof given === "boolean" ? given : otherwise;
}

function number(given: unknown, otherwise: number): number {
  return typeof given === "number" && Number.isFinite(given) ? given : otherwise;
}

function text(given: unknown, otherwise: string): string {
  return typeof given === "string" && given !== "" ? given : otherwise;
}
