/** A long output of a tool, kept when the model was given only its ends: read page by page. */
import { get } from "../api/client";
import type { OutputPage as Part } from "../api/types";
import { useLoaded } from "../live/loaded";
import { Loading, Trouble } from "../parts/states";
import { Plain } from "../parts/verbatim";
import { Link, type PageProps } from "../router/router";

export default function OutputPage({ params, query }: PageProps) {
  const id = params.id ?? "";
  const session = query.get("session") ?? "";
  const from = Number(query.get("from") ?? 1);
  const offset = Number(query.get("offset") ?? 0);
  const path = `/api/sessions/${encodeURIComponent(session)}/outputs/${encodeURIComponent(id)}`;
  const part = useLoaded(`${path} ${from} ${offset}`, (signal) => get<Part>(path, { from, offset }, signal));

  const here = `/tools/output/${encodeURIComponent(id)}?session=${encodeURIComponent(session)}`;
  return (
    <>
      <div className="head">
        <h1>Output</h1>
        <Link to={`/chat?session=${encodeURIComponent(session)}`}>Back to the conversation</Link>
      </div>
      {part.problem !== undefined && <Trouble problem={part.problem} />}
      {part.loading && part.problem === undefined && <Loading what="the output" />}
      {part.value !== undefined && (
        <>
          <Ways part={part.value} here={here} first={from === 1 && offset === 0} />
          <div className="whole">
            <Plain text={part.value.text} label="Output" />
          </div>
        </>
      )}
    </>
  );
}

function Ways({ part, here, first }: { part: Part; here: string; first: boolean }) {
  const next = `${here}&from=${part.nextFrom}&offset=${part.nextOffset}`;
  return (
    <nav className="row more" aria-label="Parts of the output">
      <span>
        Lines {part.from.toLocaleString()} to {part.to.toLocaleString()} of {part.lines.toLocaleString()}
      </span>
      {!first && <Link to={here}>To the beginning</Link>}
      {part.nextFrom !== null && <Link to={next}>Read on</Link>}
    </nav>
  );
}
