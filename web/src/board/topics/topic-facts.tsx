import "./facts.css";

import type { ReactNode } from "react";

import { Due, Until } from "../../parts/day";
import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { plainTags } from "../group";
import type { Topic } from "../types";
import { PriorityMark } from "./priority-mark";

/** What is to be known of a topic at a glance. */
export function TopicFacts({ topic, children }: { topic: Topic; children?: ReactNode }) {
  return (
    <p className="topic-facts">
      <PriorityMark priority={topic.priority} />
      {topic.dueDate !== null && <Due at={topic.dueDate} done={topic.status === "done"} />}
      {topic.snoozedUntil !== null && <Until at={topic.snoozedUntil} />}
      {children}
      {plainTags(topic.tags).map((tag) => (
        <Link key={tag} className="tag" to={`/board?tag=${encodeURIComponent(tag)}`}>
          <Told text={tag} />
        </Link>
      ))}
    </p>
  );
}
