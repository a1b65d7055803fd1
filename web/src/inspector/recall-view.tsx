/** What was recalled for a turn, as the model got it; and what the same question finds now, with how it is scored. */
import { useApi } from "../live/query";
import { gist } from "../parts/gist";
import { ScoreParts } from "../parts/score";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Plain, Told } from "../parts/verbatim";
import { Link } from "../router/router";
import type { ViewProps } from "./inspector";

export function RecallView({ sessionKey, number }: ViewProps) {
  const path = { key: sessionKey, number };
  const { data, error } = useApi("/api/sessions/{key}/turns/{number}/context", { path, query: { call: 0 } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={6} what="what was recalled" />;
  const carried = data.messages.filter((message) => message.kind === "carrier");
  const asked = data.messages.findLast((message) => message.kind === "user")?.content ?? "";
  return (
    <>
      <h3>Given to the model</h3>
      {carried.length === 0 && <Nothing>Nothing was recalled for this turn.</Nothing>}
      {carried.map((message, index) => (
        <Plain key={index} text={message.content} label="What was recalled" />
      ))}
      <h3>Found now for the same words</h3>
      {asked.trim() === "" ? <Nothing>The turn had no words to search for.</Nothing> : <FoundNow q={asked.slice(0, 400)} sessionKey={sessionKey} />}
      {asked.trim() !== "" && <LeftOut q={asked.slice(0, 400)} sessionKey={sessionKey} />}
    </>
  );
}

function FoundNow({ q, sessionKey }: { q: string; sessionKey: string }) {
  const { data, error } = useApi("/api/search", { query: { q, sessionKey, limitTopics: 5, limitTasks: 5, limitLogs: 12 } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={4} what="what is found" />;
  const hits = [
    ...data.topics.map((hit) => [hit, "topic", hit.name, `/board/topics/${encodeURIComponent(hit.id)}`] as const),
    ...data.notes.map((hit) => [hit, "note", hit.content, `/log/${encodeURIComponent(hit.id)}`] as const),
    ...data.logs.map((hit) => [hit, "entry", hit.content, `/log/${encodeURIComponent(hit.id)}`] as const),
  ].sort(([a], [b]) => b.score - a.score);
  return (
    <>
      <p className="quiet">
        {data.fits ? "" : "Nothing answers this well; these only share its words. "}Confidence {Math.round(data.confidence * 100)} %, found in{" "}
        {data.took} ms.
      </p>
      {hits.length === 0 && <Nothing>Nothing is found.</Nothing>}
      <ol className="recalled">
        {hits.map(([hit, kind, text, to]) => (
          <li key={`${kind} ${hit.id}`}>
            <div className="row">
              <span className="tag">{kind}</span>
              <Link to={to} className="grow">
                <Told text={gist(text).slice(0, 160)} />
              </Link>
              <span className="score">{hit.score.toFixed(2)}</span>
            </div>
            <ScoreParts parts={hit.parts} />
          </li>
        ))}
      </ol>
    </>
  );
}

interface Weighed {
  section: string;
  text: string;
  reason: string;
}

const REASONS: Record<string, string> = {
  room: "there was no room",
  repeat: "it says again what stands there",
  repeats: "it says again what stands there",
  worth: "it was worth too little beside the rest",
  floor: "it does not fit the question well enough",
};

/** What was a candidate for the block and does not stand in it, and why. */
function LeftOut({ q, sessionKey }: { q: string; sessionKey: string }) {
  const { data, error } = useApi("/api/context", { query: { q, sessionKey, mode: "full" } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={3} what="what was weighed" />;
  const weighed = (data.data.weighed ?? []) as Weighed[];
  return (
    <>
      <h3>Weighed and left out</h3>
      <p className="quiet">As the same words are weighed now, in this session.</p>
      {weighed.length === 0 && <Nothing>Nothing was left out: all that was weighed stands in the block.</Nothing>}
      <ul className="recalled">
        {weighed.map((one, index) => (
          <li key={index}>
            <p>
              <Told text={one.text} />
            </p>
            <p className="quiet score-parts">
              <span>{one.section.replace(/:$/, "")}</span>
              <span>{REASONS[one.reason] ?? one.reason}</span>
            </p>
          </li>
        ))}
      </ul>
    </>
  );
}
