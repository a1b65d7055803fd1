/** Short names of what the gateway answers. Their forms are written once, in the gateway: see `make wire`. */
import type {
  AllowedCommandOut,
  ApprovalOut,
  AuditOut,
  CallerOut,
  ChatOut,
  ModeOut,
  OutputOut,
  SessionOut,
  SpokenOut,
  TurnOut,
} from "./schema";

export type Who = CallerOut;
export type Scope = Who["scope"];
export type Session = SessionOut;
export type Chat = ChatOut;
export type Turn = TurnOut;
export type Spoken = SpokenOut;
export type Approval = ApprovalOut;
export type AllowedCommand = AllowedCommandOut;
export type AuditRecord = AuditOut;
export type ExecMode = ModeOut;
export type OutputPage = OutputOut;
