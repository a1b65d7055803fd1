/** One call that waits: who asks, for exactly what, why; and the answer. */
import { type ReactNode, useId } from "react";

import type { Approval } from "../api/types";
import { Facts } from "../parts/facts";
import { Trouble } from "../parts/states";
import { Ago, Left, useLeft } from "../parts/time";
import { Exact, isStrange, Verbatim } from "../parts/verbatim";
import { Link } from "../router/router";
import { nameOf } from "../chat/names";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { Answer } from "./answer";
import { useDecision } from "./decision";

interface CardProps {
  approval: Approval;
  mayDecide: boolean;
  /** It stands in the conversation that it was asked in. */
  inPlace?: boolean;
}

export function ApprovalCard({ approval, mayDecide, inPlace = false }: CardProps) {
  const heading = useId();
  const nameOfAgent = useAgentNames();
  const decision = useDecision(approval);
  const over = useLeft(approval.expiresAt) <= 0;
  const waits = approval.status === "pending" && !over;
  return (
    <article className={waits ? "card" : "card over"} aria-labelledby={heading}>
      <header>
        <h2 id={heading}>
          {nameOfAgent(approval.agentId)} asks to run <code>{approval.tool}</code>
        </h2>
        <span className="quiet">
          <Ago at={approval.createdAt} />
        </span>
        {waits && (
          <span className="end quiet">
            expires in <Left until={approval.expiresAt} />
          </span>
        )}
      </header>
      <Verbatim text={approval.command} label="The exact command" />
      {isStrange(approval.command) && (
        <p className="note">
          Look twice: the marked places are not plain letters. Hidden characters are shown by their names.
        </p>
      )}
      <Facts rows={facts(approval, inPlace)} />
      {decision.problem !== undefined && <Trouble problem={decision.problem} />}
      {waits && mayDecide && <Answer approval={approval} decision={decision} />}
      {!waits && <Outcome approval={approval} />}
    </article>
  );
}

function Outcome({ approval }: { approval: Approval }) {
  const by = approval.decidedBy === null ? "" : ` by ${approval.decidedBy}`;
  switch (approval.status) {
    case "approved":
      return (
        <p role="status" className="good">
          Approved{by}.
        </p>
      );
    case "denied":
      return (
        <p role="status" className="bad">
          Denied{by}.
        </p>
      );
    default:
      return (
        <p role="status" className="bad">
          Expired: nobody answered in time. The agent was told, and may ask again.
        </p>
      );
  }
}

/** The conversation that it was asked in, by its name. */
function AskedIn({ sessionKey }: { sessionKey: string }) {
  const { data } = useApi("/api/chats", { query: { limit: 100 } }, { live: ["session.", "turn."] });
  const chat = data?.find((one) => one.sessionKey === sessionKey);
  return (
    <Link to={`/chat?session=${encodeURIComponent(sessionKey)}`}>
      <Exact text={chat === undefined ? sessionKey : nameOf(chat)} />
    </Link>
  );
}

function facts(approval: Approval, inPlace: boolean): [string, ReactNode][] {
  const { cwd, elevated } = approval.arguments;
  const shown = new Set(["cwd", "elevated", "command"]);
  const others = Object.entries(approval.arguments).filter(([name]) => !shown.has(name));
  const rows: [string, ReactNode][] = [["Why", <Exact key="why" text={approval.reason} />]];
  if (approval.whyNotAlways !== null) {
    rows.push(["Only once", <Exact key="once" text={approval.whyNotAlways} />]);
  }
  if (approval.files.length > 0) {
    const text = approval.files.join("\n");
    rows.push(["Runs", <Verbatim key="files" text={text} label="Files that must not change until it runs" />]);
  }
  if (typeof cwd === "string") rows.push(["Folder", <code key="cwd"><Exact text={cwd} /></code>]);
  if (elevated === true) rows.push(["Outside", <strong className="bad" key="out">It leaves the sandbox.</strong>]);
  if (approval.sessionKey !== null && !inPlace) rows.push(["Asked in", <AskedIn key="to" sessionKey={approval.sessionKey} />]);
  if (others.length > 0) {
    const text = JSON.stringify(Object.fromEntries(others), null, 2);
    rows.push(["Arguments", <Verbatim key="args" text={text} label="Arguments" />]);
  }
  return rows;
}
