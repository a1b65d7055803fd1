import { Facts } from "../../parts/facts";
import { Told } from "../../parts/verbatim";
import { useNames } from "../places";
import type { Decision, Entry } from "../types";

const METHODS: Record<Decision["method"], string> = {
  lock: "Its session belongs to this topic.",
  reply: "It answers an entry that lies here.",
  continuity: "It goes on with what its session was about.",
  session: "Its session is about this.",
  model: "A model chose the topic.",
  heuristic: "Its words are closest to this topic.",
  rule: "A rule settled it as it came in.",
};

const NAMES: Record<string, string> = {
  text: "Reason",
  code: "Code",
  score: "Score",
  margin: "Margin",
  evidence: "Evidence",
  others: "Others",
};

/** Why an entry lies where it lies. */
export function Why({ entry, decision }: { entry: Entry; decision: Decision }) {
  const names = useNames();
  const nameOf = (topicId: string): string => names.topic.get(topicId)?.name ?? "another topic";
  const reasons = Object.entries(decision.reasons ?? {}).filter(
    ([name, value]) => value !== null && value !== "" && !(name === "code" && value === entry.classificationCode),
  );
  const elsewhere = decision.topicId !== entry.topicId;
  return (
    <section className="why" aria-label="Why it lies here">
      <p>
        <strong>{METHODS[decision.method]}</strong>
        {decision.confidence !== null && <> {Math.round(decision.confidence * 100)} % sure.</>}
        {elsewhere && decision.topicId !== null && (
          <>
            {" "}
            That was <Told text={nameOf(decision.topicId)} />; it was moved since.
          </>
        )}
        {entry.classificationCode !== null && (
          <>
            {" "}
            <code>{entry.classificationCode}</code>
          </>
        )}
      </p>
      {reasons.length > 0 && (
        <Facts rows={reasons.map(([name, value]) => [NAMES[name] ?? name, <Told key={name} text={worded(value, nameOf)} />] as const)} />
      )}
    </section>
  );
}

/** A reason in words; topics that were weighed are named. */
function worded(value: unknown, nameOf: (topicId: string) => string): string {
  if (typeof value === "string") return value;
  if (!Array.isArray(value)) return JSON.stringify(value);
  return value.map((one: unknown) => (isWeighed(one) ? weighed(one, nameOf) : worded(one, nameOf))).join(", ");
}

interface Weighed {
  topicId: string | null;
  score: number;
}

function isWeighed(value: unknown): value is Weighed {
  return typeof value === "object" && value !== null && "topicId" in value && "score" in value;
}

function weighed({ topicId, score }: Weighed, nameOf: (topicId: string) => string): string {
  return `${topicId === null ? "a topic of its own" : nameOf(topicId)} (${score})`;
}
