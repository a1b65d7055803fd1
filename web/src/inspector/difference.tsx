/** Two contexts compared: sections by name, the text line by line. */
import type { ContextOut, SectionOut } from "../api/schema";
import { useApi } from "../live/query";
import Compared from "../parts/compared";
import { Skeleton, Trouble } from "../parts/states";
import { Told } from "../parts/verbatim";

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

export function SectionChanges({ before, after }: { before: readonly SectionOut[]; after: readonly SectionOut[] }) {
  const old = new Map(before.map((section) => [nameOf(section), section]));
  const now = new Map(after.map((section) => [nameOf(section), section]));
  const rows: (readonly [string, "new" | "changed" | "gone", number])[] = [
    ...[...now.entries()].flatMap(([name, section]): (readonly [string, "new" | "changed", number])[] => {
      const was = old.get(name);
      if (was === undefined) return [[name, "new", section.tokens] as const];
      return was.hash !== section.hash || was.tokens !== section.tokens
        ? [[name, "changed", section.tokens - was.tokens] as const]
        : [];
    }),
    ...[...old.entries()].flatMap(([name, section]) => (now.has(name) ? [] : [[name, "gone", -section.tokens] as const])),
  ];
  if (rows.length === 0) return <p className="quiet">Every section is the same.</p>;
  return (
    <ul className="section-changes">
      {rows.map(([name, what, tokens]) => (
        <li key={name}>
          <span className={`tag ${what === "new" ? "good" : what === "gone" ? "bad" : ""}`}>{what}</span> <Told text={name} />{" "}
          <span className="quiet">
            {tokens >= 0 ? "+" : "−"}
            {Math.abs(tokens).toLocaleString()}
          </span>
        </li>
      ))}
    </ul>
  );
}

function nameOf(section: SectionOut): string {
  return section.place === section.name ? section.name : `${section.place} / ${section.name}`;
}

function asText(context: ContextOut): string {
  return context.messages.map((message) => `── ${message.kind} (${message.trust})\n${message.content}\n`).join("");
}
