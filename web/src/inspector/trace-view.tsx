/** What ran when: model and tool calls on one line of time, with tokens, cost and what was reused. */
import type { SpanOut } from "../api/schema";
import { duration } from "../conversation/items";
import { useApi } from "../live/query";
import { Facts } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Told } from "../parts/verbatim";
import type { ViewProps } from "./inspector";
import { share } from "./sections";

const STATES: Record<string, string> = { committed: "answered", accepted: "waits for its turn", interrupted: "cut off", cancelled: "stopped" };

export function TraceView({ sessionKey, number }: ViewProps) {
  const { data, error } = useApi(
    "/api/sessions/{key}/turns/{number}/trace",
    { path: { key: sessionKey, number } },
    { live: ["turn."] },
  );
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={6} what="the trace" />;
  const { turn, spans } = data;
  const start = Date.parse(turn.startedAt ?? turn.acceptedAt);
  const end = Math.max(...spans.map((span) => Date.parse(span.endedAt ?? span.startedAt)), Date.parse(turn.endedAt ?? turn.acceptedAt), start + 1);
  const input = sum(spans, (span) => span.inputTokens);
  const reused = sum(spans, (span) => span.cacheReadTokens);
  const cost = sum(spans, (span) => span.cost);
  return (
    <>
      <Facts
        rows={[
          ["State", STATES[turn.status] ?? turn.status],
          ["Took", turn.endedAt === null ? "goes on" : duration(Date.parse(turn.endedAt) - start)],
          ["Waited before", duration(start - Date.parse(turn.acceptedAt))],
          ["Attempts", String(turn.attempt)],
          ["Tokens", `${input.toLocaleString()} in, ${sum(spans, (span) => span.outputTokens).toLocaleString()} out`],
          ["From cache", input === 0 ? "nothing" : `${reused.toLocaleString()} (${share(reused, input)})`],
          ["Cost", cost === 0 ? "not known" : `$${cost.toFixed(4)}`],
        ]}
      />
      {turn.error !== null && (
        <p className="note">
          <Told text={turn.error} />
        </p>
      )}
      {spans.length === 0 && <Nothing>No model was asked in this turn.</Nothing>}
      <ol className="spans" aria-label="Calls in their order">
        {spans.map((span, index) => (
          <Span key={index} span={span} start={start} whole={end - start} />
        ))}
      </ol>
    </>
  );
}

function Span({ span, start, whole }: { span: SpanOut; start: number; whole: number }) {
  const from = Math.max(0, Date.parse(span.startedAt) - start);
  const took = span.endedAt === null ? null : Date.parse(span.endedAt) - Date.parse(span.startedAt);
  return (
    <li className={`span of-${span.kind}`}>
      <span className="span-name">
        <Told text={span.name} />
        {span.failed && <span className="tag bad">failed</span>}
      </span>
      <span className="span-track" aria-hidden="true">
        <span
          className="span-bar"
          style={{ insetInlineStart: `${(100 * from) / whole}%`, width: `max(3px, ${(100 * (took ?? 0)) / whole}%)` }}
        />
      </span>
      <span className="span-facts quiet">
        {took === null ? "no end" : duration(took)}
        {span.inputTokens !== null && ` · ${span.inputTokens.toLocaleString()} → ${(span.outputTokens ?? 0).toLocaleString()} tokens`}
        {span.cacheReadTokens !== null && span.cacheReadTokens > 0 && ` · ${span.cacheReadTokens.toLocaleString()} reused`}
        {span.cost !== null && ` · $${span.cost.toFixed(4)}`}
        {span.error !== null && <Told text={` · ${span.error}`} />}
      </span>
    </li>
  );
}

function sum(spans: readonly SpanOut[], of: (span: SpanOut) => number | null): number {
  return spans.reduce((total, span) => total + (of(span) ?? 0), 0);
}
