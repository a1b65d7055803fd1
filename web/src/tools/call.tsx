/** One call of a tool: what it was given, and the result as the model got it. */
import { useState } from "react";

import { get } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Entry, ToolCall, ToolResult } from "../api/types";
import { Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { Plain, Verbatim } from "../parts/verbatim";
import { Link } from "../router/router";

export function CallCard({ call, session }: { call: ToolCall; session: string }) {
  return (
    <article className="card">
      <header>
        <h2>
          <code>{call.name}</code>
        </h2>
        <Standing result={call.result} />
        <span className="end quiet">
          <Ago at={call.at} />
        </span>
      </header>
      <Verbatim text={given(call)} label="What it was given" />
      {call.result !== null && <Result result={call.result} session={session} />}
    </article>
  );
}

function Standing({ result }: { result: ToolResult | null }) {
  if (result === null) return <span className="tag">no result yet</span>;
  return result.isError ? <span className="tag bad">failed</span> : <span className="tag good">done</span>;
}

function Result({ result, session }: { result: ToolResult; session: string }) {
  const [whole, setWhole] = useState<string>();
  const [problem, setProblem] = useState<Problem>();

  async function showAll(): Promise<void> {
    try {
      setWhole((await get<Entry>(`/api/log/${encodeURIComponent(result.entryId)}`)).content);
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  const cut = whole === undefined && result.chars > result.text.length;
  return (
    <details open={result.isError || result.outputs.length > 0}>
      <summary>
        Result <span className="quiet">({result.chars.toLocaleString()} characters)</span>
      </summary>
      <Plain text={whole ?? result.text} label="Result" />
      <div className="row">
        {cut && (
          <button type="button" className="plain" onClick={() => void showAll()}>
            Show all that the model got
          </button>
        )}
        {result.outputs.map((id) => (
          <Link key={id} to={`/tools/output/${encodeURIComponent(id)}?session=${encodeURIComponent(session)}`}>
            Read the whole output
          </Link>
        ))}
      </div>
      {problem !== undefined && <Trouble problem={problem} />}
    </details>
  );
}

/** A command as it is; of other tools, their arguments. */
function given(call: ToolCall): string {
  const { command } = call.arguments;
  if (call.name === "exec" && typeof command === "string") return command;
  return JSON.stringify(call.arguments, null, 2);
}
