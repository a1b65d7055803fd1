/** Two contexts compared: sections by name, the text line by line. */
import type { ContextOut } from "../api/schema";
import { useApi } from "../live/query";
import Compared from "../parts/compared";
import { Skeleton, Trouble } from "../parts/states";
import { SectionChanges } from "./section-changes";

export default function Difference({ sessionKey, from, to }: { sessionKey: string; from: number; to: ContextOut }) {
  const { data, error } = useApi("/api/sessions/{key}/turns/{number}/context", { path: { key: sessionKey, number: from } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={4} what="the other turn" />;
  const change = to.manifest.used - data.manifest.used;
  return (
    <div className="difference">
      <p>
        {change >= 0 ? "+" : "−"}
        {Math.abs(change).toLocaleString()} tokens since turn {from}.
      </p>
      <SectionChanges before={data.manifest.sections} after={to.manifest.sections} />
      <Compared before={asText(data)} after={asText(to)} label={`Difference from turn ${from}`} />
    </div>
  );
}

function asText(context: ContextOut): string {
  return context.messages.map((message) => `── ${message.kind} (${message.trust})\n${message.content}\n`).join("");
}
