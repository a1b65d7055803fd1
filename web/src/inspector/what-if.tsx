/** What the model would have seen of this turn under another engine, window or model. No model is asked. */
import { type SyntheticEvent, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { WhatIfOut } from "../api/schema";
import { useApi } from "../live/query";
import { Choice } from "../parts/choice";
import { Facts } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Plain, Told } from "../parts/verbatim";
import type { ViewProps } from "./inspector";
import { SectionChanges } from "./section-changes";

const OPS = { "=": ["stays", "tag"], "-": ["goes", "tag bad"], "+": ["comes", "tag good"] } as const;

export function WhatIfView({ sessionKey, number }: ViewProps) {
  const engines = useApi("/api/engines");
  const models = useApi("/api/models");
  const [engine, setEngine] = useState("");
  const [model, setModel] = useState("");
  const [window, setWindow] = useState("");
  const [found, setFound] = useState<WhatIfOut>();
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);

  async function look(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      const body = {
        ...(engine === "" ? {} : { engine }),
        ...(model === "" ? {} : { model }),
        ...(window.trim() === "" ? {} : { window: Number(window) }),
      };
      setFound(await api.post("/api/sessions/{key}/turns/{number}/whatif", body, { path: { key: sessionKey, number } }));
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  return (
    <>
      <form className="what-if" aria-label="What if" onSubmit={(event) => void look(event)}>
        <Choice
          label="Engine"
          value={engine}
          onChange={setEngine}
          options={[["", "the same engine"] as const, ...(engines.data ?? []).map((one) => [one.engine, one.engine] as const)]}
        />
        <Choice
          label="Model"
          value={model}
          onChange={setModel}
          options={[["", "the same model"] as const, ...(models.data?.models ?? []).map((one) => [one.id, one.id] as const)]}
        />
        <input
          type="number"
          aria-label="Window in tokens"
          placeholder="the same window"
          min={1000}
          value={window}
          onChange={(event) => setWindow(event.target.value)}
        />
        <button type="submit" className="primary" disabled={busy}>
          Look
        </button>
      </form>
      {problem !== undefined && <Trouble problem={problem} />}
      {busy && <Skeleton rows={4} what="what it would have been" />}
      {found === undefined && problem === undefined && !busy && (
        <Nothing>Choose what would have been different, and see what the model would have been given. No model is asked.</Nothing>
      )}
      {found !== undefined && !busy && <Outcome found={found} />}
    </>
  );
}

function Outcome({ found }: { found: WhatIfOut }) {
  const { before, after, facts, tokens, messages: changes = [] } = found;
  if (before === undefined || after === undefined) return null;
  return (
    <>
      {found.refused !== null && <p className="note">It would not have been sent: {found.refused}</p>}
      <Facts
        rows={[
          ["Tokens", `${(tokens?.after ?? 0).toLocaleString()} instead of ${(tokens?.before ?? 0).toLocaleString()}`],
          ["Window", `${after.window.toLocaleString()} instead of ${before.window.toLocaleString()}`],
          ["Engine", after.engine === before.engine ? after.engine : `${after.engine} instead of ${before.engine}`],
          ...(facts === undefined || facts.of === 0 ? [] : [["Facts", `${facts.after} of ${facts.of} would still be there; ${facts.before} were`] as const]),
        ]}
      />
      <SectionChanges before={before.sections} after={after.sections} />
      <h3>Messages</h3>
      <ol className="messages">
        {changes.map((one, index) => (
          <li key={index}>
            <details>
              <summary>
                <span className={OPS[one.op][1]}>{OPS[one.op][0]}</span> <span className="tag">{one.kind.replaceAll("_", " ")}</span>
                <span className="step-gist">
                  <Told text={one.content.trim().split("\n", 1)[0] ?? ""} />
                </span>
              </summary>
              <Plain text={one.content} label={`Message, ${one.kind}`} />
            </details>
          </li>
        ))}
      </ol>
    </>
  );
}
