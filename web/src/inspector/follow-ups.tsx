/** What followed from a turn without being asked: elected, spawned, scheduled; and the way to stop it. */
import { useState } from "react";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { NodeOut } from "../api/schema";
import { duration } from "../conversation/items";
import { useApi } from "../live/query";
import { Facts } from "../parts/facts";
import { gist, withoutMarks } from "../parts/gist";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { useLoggedIn } from "../shell/login-state";
import type { ViewProps } from "./inspector";

export function FollowUps({ sessionKey, number }: ViewProps) {
  const trace = useApi("/api/sessions/{key}/turns/{number}/trace", { path: { key: sessionKey, number } });
  if (trace.error !== null) return <Trouble problem={trace.error} />;
  if (trace.data === undefined) return <Skeleton rows={5} what="what followed" />;
  return <ChainView id={trace.data.turn.turnId} turnId={trace.data.turn.turnId} />;
}

const NOTHING = "Nothing followed from this turn. It was asked, it answered.";
const STATES: Record<string, string> = {
  committed: "done",
  succeeded: "done",
  success: "done",
  accepted: "waits for its turn",
  queued: "waits for its time",
  preparing: "about to begin",
  staged: "waits until the chat is tidied up",
  error: "failed",
  timeout: "ran out of time",
  unknown: "nobody saw how it ended",
};
const KINDS: Record<string, string> = { work: "went on", delegate: "delegated", post_compaction: "after tidying up", subagent: "subagent" };

/** One chain with its budget, its tree and its line of time, by its id or that of one of its turns. */
export function ChainView({ id, turnId }: { id: string; turnId?: string }) {
  const { data, error } = useApi(
    "/api/chains/{id}",
    { path: { id } },
    { live: ["chain.", "turn.", "continuation."] },
  );
  const [busy, setBusy] = useState(false);
  const { scope } = useLoggedIn();
  if (error?.status === 404) return <Nothing>{NOTHING}</Nothing>;
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={5} what="what followed" />;

  // The turn that was asked for is part of its chain; alone it is none.
  if (data.state !== "live" && data.nodes.every((node) => node.id === turnId)) return <Nothing>{NOTHING}</Nothing>;
  const times = data.nodes.flatMap((node) => [node.startedAt, node.dueAt ?? node.startedAt, node.endedAt ?? node.startedAt]).map(Date.parse);
  const line = { from: Math.min(...times), until: Math.max(...times) };

  async function stop(): Promise<void> {
    setBusy(true);
    try {
      toast((await api.post("/api/chains/{id}/stop", null, { path: { id } })).text);
    } catch (problem) {
      toast(asProblem(problem).message, { bad: true });
    } finally {
      setBusy(false);
    }
  }

  return (
    <div className="chain-about">
      <Facts
        rows={[
          ["State", data.state === "live" ? "goes on" : data.state],
          ["Began with", data.origin.text === null ? "something you may not read" : <Told key="text" text={data.origin.text} />],
          ["Steps", `${data.steps} of ${data.maxSteps}`],
          ["Sent to others", `${data.sent} of ${data.maxSent}`],
          ["Tokens", data.maxTokens === null ? data.tokens.toLocaleString() : `${data.tokens.toLocaleString()} of ${data.maxTokens.toLocaleString()}`],
          ["Cost", `$${data.cost.toFixed(4)}`],
          ...(data.nextDueAt === null ? [] : [["Next", <Ago key="next" at={data.nextDueAt} />] as const]),
        ]}
      />
      {data.state === "live" && scope !== "read" && (
        <button type="button" className="danger" disabled={busy} onClick={() => void stop()}>
          Stop all of it
        </button>
      )}
      {data.stopReason !== null && <p className="note">Stopped: {data.stopReason}</p>}
      <ol className="chain">
        {data.nodes.map((node) => (
          <ChainNode key={node.id} node={node} line={line} />
        ))}
      </ol>
      {data.cut && <p className="quiet">There are more than 500; these are the newest.</p>}
    </div>
  );
}

/** What a person said, to the letter; what the runtime told the agent instead, without the marks that are for models. */
function wordsOf({ text, trigger }: NodeOut): string {
  if (text === null) return trigger ?? "";
  return trigger === null || trigger === "user" ? text : withoutMarks(text);
}

interface NodeProps {
  node: NodeOut;
  /** The time that the whole chain takes up, in milliseconds. */
  line: { from: number; until: number };
}

function ChainNode({ node, line }: NodeProps) {
  const look = node.state === "failed" || node.state === "error" ? "tag bad" : node.state === "running" ? "tag good" : "tag";
  const start = Date.parse(node.startedAt);
  const took = node.endedAt === null ? null : Date.parse(node.endedAt) - start;
  const whole = Math.max(line.until - line.from, 1);
  return (
    <li style={{ marginInlineStart: `${Math.min(node.depth, 8)}rem` }} className={`chain-node of-${node.kind}`}>
      {node.kind !== "turn" && <span className="tag">{KINDS[node.kind] ?? node.kind}</span>}{" "}
      <span className={look}>{STATES[node.state] ?? node.state.replaceAll("_", " ")}</span>{" "}
      <span className="quiet">
        <Ago at={node.startedAt} />
        {took !== null && `, took ${duration(took)}`}
        {node.tokens > 0 && ` · ${node.tokens.toLocaleString()} tokens`}
      </span>
      <span className="span-track" aria-hidden="true">
        <span
          className="span-bar"
          style={{ insetInlineStart: `${(100 * (start - line.from)) / whole}%`, width: `max(3px, ${(100 * (took ?? 0)) / whole}%)` }}
        />
      </span>
      <p>{node.hidden ? <span className="quiet">In a session that you may not read.</span> : <Told text={wordsOf(node)} />}</p>
      {node.reply !== null && (
        <p className="quiet">
          <Told text={gist(node.reply)} />
        </p>
      )}
      {node.error !== null && (
        <p className="bad">
          <Told text={node.error} />
        </p>
      )}
    </li>
  );
}
