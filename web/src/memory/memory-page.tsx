/** What agents remember: asked as an agent would ask, with why each thing was found. */
import "./memory.css";

import { type SyntheticEvent, useState } from "react";

import type { FoundOut, HitOut } from "../api/schema";
import { useApi } from "../live/query";
import { useChosenAgent } from "../parts/agent-choice";
import { gist } from "../parts/gist";
import { Icon } from "../parts/icon";
import { ScoreParts } from "../parts/score";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Told } from "../parts/verbatim";
import { Link, type PageProps, go } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { isOwner } from "../shell/rights";
import { Forget } from "./forget";
import { MemoryHead } from "./memory-head";

const SAID = /^sessions\/(.+)\.md$/;

export default function MemoryPage({ query }: PageProps) {
  const agent = useChosenAgent();
  const q = query.get("q") ?? "";
  const [text, setText] = useState(q);

  function search(event: SyntheticEvent): void {
    event.preventDefault();
    const next = new URLSearchParams(query);
    next.set("q", text.trim());
    go(`/memory?${next}`);
  }

  return (
    <>
      <MemoryHead />
      <form className="row memory-ask" role="search" onSubmit={search}>
        <input
          type="search"
          className="grow"
          aria-label="Ask memory"
          placeholder="Ask as you would ask the agent: which paint did we choose for the hall?"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <button type="submit" className="primary" disabled={text.trim() === ""}>
          <Icon name="search" /> Search
        </button>
      </form>
      {q === "" ? (
        <Nothing>
          Ask something, and see what an agent would find: notes, daily logs and what was said, each with what its score is made of.
        </Nothing>
      ) : (
        agent !== undefined && <Found q={q} agent={agent} />
      )}
    </>
  );
}

function Found({ q, agent }: { q: string; agent: string }) {
  const asked = { q, agentId: agent, explain: true, maxResults: 20 };
  const { data, error, refetch } = useApi("/api/memory/search", { query: asked }, { live: ["log.deleted", "memory."] });
  const [forgetting, setForgetting] = useState<string>();
  const owner = isOwner(useLoggedIn());
  if (error !== null) return <Trouble problem={error} again={() => void refetch()} />;
  if (data === undefined) return <Skeleton rows={6} what="what is found" />;
  return (
    <>
      <Diagnosis found={data} />
      {data.results.length === 0 && <Nothing>{sentence(data.diagnostics.note) || "Nothing is found."}</Nothing>}
      <ol className="found" aria-label="Found">
        {data.results.map((hit) => (
          <li key={`${hit.path} ${hit.startLine ?? ""}`}>
            <Hit hit={hit} agent={agent} onForget={owner ? setForgetting : undefined} />
          </li>
        ))}
      </ol>
      {forgetting !== undefined && <Forget entryId={forgetting} close={() => setForgetting(undefined)} />}
    </>
  );
}

function Diagnosis({ found }: { found: FoundOut }) {
  const told = found.diagnostics;
  const how = told.mode === "hybrid" ? `by words and by meaning (${found.model})` : "by words";
  return (
    <p className="quiet diagnosis">
      Looked through {told.searched.toLocaleString()} pieces {how} in {told.tookMs} ms.
      {told.confidence !== null && ` That memory has an answer is ${Math.round(told.confidence * 100)} % likely.`}
      {told.leftOut > 0 && ` ${told.leftOut} more ${told.leftOut === 1 ? "was" : "were"} weighed and left out.`}
      {told.behind > 0 && ` ${told.behind} entries are not indexed yet.`}
      {told.healing !== null && ` ${sentence(told.healing)}`}
      {found.fallback !== null && ` ${sentence(found.fallback)}`}
    </p>
  );
}

function Hit({ hit, agent, onForget }: { hit: HitOut; agent: string; onForget: ((id: string) => void) | undefined }) {
  const said = SAID.exec(hit.path)?.[1];
  const to =
    said === undefined
      ? `/memory/files?agent=${encodeURIComponent(agent)}&path=${encodeURIComponent(hit.path)}&line=${hit.startLine ?? 1}`
      : `/log/${encodeURIComponent(said)}`;
  return (
    <article className="memory-hit">
      <header>
        <span className="tag">{said === undefined ? "note" : "said"}</span>
        <Link to={to} className="grow">
          {said === undefined ? `${hit.path}${hit.startLine === null ? "" : `, line ${hit.startLine}`}` : "Open the entry"}
        </Link>
        <span className="score">
          <meter min={0} max={1} value={hit.score} aria-label="Score">
            {hit.score.toFixed(2)}
          </meter>
          {hit.score.toFixed(2)}
        </span>
      </header>
      <p className="memory-text">
        <Told text={gist(withoutSource(hit.snippet))} />
      </p>
      <footer>
        <ScoreParts parts={hit.parts ?? {}} />
        {said !== undefined && onForget !== undefined && (
          <button type="button" className="quiet-button" onClick={() => onForget(said)}>
            <Icon name="close" /> Forget…
          </button>
        )}
      </footer>
    </article>
  );
}

function withoutSource(snippet: string): string {
  return snippet.replace(/\n\nSource: [^\n]*$/, "");
}

function sentence(text: string): string {
  if (text === "") return "";
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
