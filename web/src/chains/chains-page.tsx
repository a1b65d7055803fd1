/** Work that goes on by itself: each chain with what it may still use, its tree, and the way to stop it or all of it. */
import "../inspector/inspector.css";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { ChainOut } from "../api/schema";
import { ChainView } from "../inspector/follow-ups";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { Confirm } from "../parts/confirm";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Tabs } from "../parts/tabs";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { Link, type PageProps } from "../router/router";
import { useLoggedIn } from "../shell/login-state";

const TABS = [
  { to: "/chains", name: "All" },
  { to: "/chains?show=live", name: "Going on" },
];

export default function ChainsPage({ query }: PageProps) {
  const onlyLive = query.get("show") === "live";
  const chains = useApi("/api/chains", { query: { live: onlyLive, limit: 100 } }, { live: ["chain.", "turn."] });
  const { scope, spaces, agents } = useLoggedIn();
  // A turn that was asked for and from which nothing followed yet is a chat, and stands there.
  const shown = chains.data?.filter((chain) => chain.steps + chain.sent > 0 || chain.nextDueAt !== null || chain.state === "stopped");
  const living = shown?.some((chain) => chain.state === "live") ?? false;
  return (
    <>
      <div className="head">
        <h1>Chains</h1>
        {living && scope !== "read" && spaces === null && agents === null && (
          <Confirm label="Stop everything" question="Every chain of this home stops." onConfirm={() => void stopAll()} />
        )}
      </div>
      <Tabs label="Which chains" tabs={TABS} current={onlyLive ? "/chains?show=live" : "/chains"} />
      {chains.error !== null && <Trouble problem={chains.error} again={() => void chains.refetch()} />}
      {chains.data === undefined && chains.error === null && <Skeleton rows={6} what="chains" />}
      {shown?.length === 0 && (
        <Nothing>
          {onlyLive ? "Nothing goes on by itself now." : "Nothing went on by itself yet."} What an agent elects, delegates or schedules after an
          answer appears here.
        </Nothing>
      )}
      <ul className="cards">
        {shown?.map((chain) => (
          <li key={chain.id}>
            <Chain chain={chain} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Chain({ chain }: { chain: ChainOut }) {
  const nameOf = useAgentNames();
  return (
    <details className="card chain-card" open={chain.state === "live"}>
      <summary>
        <span className={`tag ${chain.state === "live" ? "good" : chain.state === "stopped" ? "bad" : ""}`}>{chain.state === "live" ? "goes on" : chain.state}</span>{" "}
        <strong>
          <Told text={chain.origin.text ?? chain.origin.sessionKey} />
        </strong>{" "}
        <span className="quiet">
          {nameOf(chain.origin.agentId)} · {chain.steps} of {chain.maxSteps} steps · {chain.tokens.toLocaleString()} tokens ·{" "}
          <Ago at={chain.updatedAt} />
        </span>
      </summary>
      <p>
        <Link to={`/chat?session=${encodeURIComponent(chain.origin.sessionKey)}`}>Open the conversation</Link>
      </p>
      <ChainView id={chain.id} />
    </details>
  );
}

async function stopAll(): Promise<void> {
  try {
    toast((await api.post("/api/chains/stop", { all: true })).text);
  } catch (error) {
    toast(asProblem(error).message, { bad: true });
  }
}
