/** The forms of what the gateway answers; `/openapi.json` describes them. */
export type Scope = "read" | "write" | "admin";

export interface Who {
  name: string;
  scope: Scope;
  spaces: string[] | null;
  agents: string[] | null;
}

export interface Session {
  sessionId: string;
  sessionKey: string;
  agentId: string | null;
  status: "active" | "archived";
  label: string | null;
  turnCount: number;
  updatedAt: string;
}

export interface Approval {
  id: string;
  agentId: string;
  sessionKey: string | null;
  turnId: string | null;
  tool: string;
  command: string;
  arguments: Record<string, unknown>;
  reason: string;
  files: string[];
  whyNotAlways: string | null;
  status: "pending" | "approved" | "denied" | "expired";
  decidedBy: string | null;
  decidedAt: string | null;
  usedAt: string | null;
  expiresAt: string;
  createdAt: string;
}

export interface AllowedCommand {
  agentId: string;
  pattern: string;
  source: "config" | "person";
  createdBy: string | null;
  createdAt: string | null;
  lastUsedAt: string | null;
  lastUsedCommand: string | null;
}

export interface AuditRecord {
  seq: number;
  event: string;
  agentId: string;
  sessionKey: string | null;
  tool: string;
  command: string;
  rule: string;
  reason: string;
  actor: string | null;
  approvalId: string | null;
  createdAt: string;
}

export interface ExecMode {
  agentId: string;
  security: "deny" | "allowlist" | "full";
  ask: "off" | "on-miss" | "always";
  askTimeoutSeconds: number;
}

export interface ToolResult {
  entryId: string;
  text: string;
  chars: number;
  isError: boolean;
  outputs: string[];
  at: string;
}

export interface ToolCall {
  callId: string;
  name: string;
  arguments: Record<string, unknown>;
  turnId: string | null;
  entryId: string;
  at: string;
  result: ToolResult | null;
}

export interface OutputPage {
  id: string;
  text: string;
  from: number;
  to: number;
  lines: number;
  nextFrom: number | null;
  nextOffset: number;
}

export interface Entry {
  id: string;
  type: string;
  content: string;
  createdAt: string;
}
