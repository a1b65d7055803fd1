const WORDS: Record<string, string> = {
  dense: "meaning",
  lexical: "words",
  beside: "what stands beside it",
  curated: "it is a note",
  statement: "it states something",
  passage: "the passage answers",
  particular: "it names something particular",
  answer: "it answers a question",
  recent: "how new it is",
  time: "the time that was asked for",
  speaker: "who said it",
  session: "it was said in this chat",
};

/** What a score is made of, the most first. */
export function ScoreParts({ parts }: { parts: Record<string, number> }) {
  const shown = Object.entries(parts)
    .filter(([, value]) => typeof value === "number" && value !== 0)
    .sort(([, a], [, b]) => Math.abs(b) - Math.abs(a));
  return (
    <ul className="parts quiet" aria-label="What the score is made of">
      {shown.map(([name, value]) => (
        <li key={name}>
          {WORDS[name] ?? name} {value > 0 ? "+" : "−"}
          {Math.abs(value).toFixed(2)}
        </li>
      ))}
    </ul>
  );
}
