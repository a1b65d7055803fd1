/** Which sections of a context came, went or changed, with their tokens. */
import type { SectionOut } from "../api/schema";
import { Told } from "../parts/verbatim";

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
