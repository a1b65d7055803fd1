import { Ago } from "../../parts/time";
import { Told } from "../../parts/verbatim";
import { excerpt } from "../highlight";
import { useWho } from "../log/who";
import { useNames } from "../places";
import { wordFor } from "../statuses";
import { Highlighted } from "./highlighted";
import type { Hit } from "./hits";

/** A hit in two lines: what it is, and where and when. */
export function HitLine({ hit, query }: { hit: Hit; query: string }) {
  const names = useNames();
  const whoOf = useWho();
  const topicName = (id: string | null): string | undefined => (id === null ? undefined : names.topic.get(id)?.name);
  switch (hit.kind) {
    case "topic":
      return (
        <>
          <span className="hit-text">
            <Highlighted text={hit.topic.name} query={query} />
          </span>
          <span className="quiet hit-place">
            {wordFor(hit.topic.status)} · <Told text={names.space.get(hit.topic.spaceId)?.name ?? hit.topic.spaceId} />
          </span>
        </>
      );
    case "task":
      return (
        <>
          <span className="hit-text">
            <Highlighted text={hit.task.title} query={query} />
          </span>
          <span className="quiet hit-place">
            {wordFor(hit.task.status)} · <Told text={topicName(hit.task.topicId) ?? "a topic"} />
          </span>
        </>
      );
    case "entry":
      return (
        <>
          <span className="hit-text">
            <Highlighted text={excerpt(hit.entry.content, query)} query={query} />
          </span>
          <span className="quiet hit-place">
            <Told text={whoOf(hit.entry)} /> · <Ago at={hit.entry.createdAt} />
            {topicName(hit.entry.topicId) !== undefined && (
              <>
                {" "}
                · <Told text={topicName(hit.entry.topicId) ?? ""} />
              </>
            )}
          </span>
        </>
      );
  }
}
