/** What followed from a turn without being asked: elected, spawned, scheduled; and the way to stop it. */
import { useState } from "react";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { NodeOut } from "../api/schema";
import { useApi } from "../live/query";
import { Facts } from "../parts/facts";
import { gist } from "../parts/gist";
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
  return <ChainView id={trace.data.turn.turnId} />;
}

/** One chain with its budget and its tree, by its id or that of one of its turns. */
export function ChainView({ id }: { id: string }) {
  const { data, error } = useApi(
    "/api/chains/{id}",
    { path: { id } },
    { live: ["chain.", "turn.", "continuation."] },
  );
  const [busy, setBusy] = useState(false);
  const { scope } = useLoggedIn();
  if (error?.status === 404) return <Nothing>Nothing followed from this turn. It was asked, it answered.</Nothing>;
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={5} what="what followed" />;

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
    <>
      <Facts
        rows={[
          ["State", data.state],
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
          <ChainNode key={node.id} node={node} />
        ))}
      </ol>
      {data.cut && <p className="quiet">There are more than 500; these are the newest.</p>}
    </>
  );
}

function ChainNode({ node }: { node: NodeOut }) {
  return (
    <li style={{ marginInlineStart: `${Math.min(node.depth, 8)}rem` }} className="chain-node">
      <span className="tag">{node.kind.replaceAll("_", " ")}</span> <span className="tag">{node.state}</span>{" "}
      <Ago at={node.startedAt} />
      <p>{node.hidden ? <span className="quiet">In a session that you may not read.</span> : <Told text={node.text ?? node.trigger ?? ""} />}</p>
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
