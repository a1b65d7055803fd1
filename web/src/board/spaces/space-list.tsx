/** The spaces beside the board, with how many topics lie in each. */
import "./spaces.css";

import type { ReactNode } from "react";

import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { DRAGGED_TOPIC } from "../topics/topic-row";
import type { Space } from "../types";

interface SpaceListProps {
  spaces: readonly Space[];
  /** Those that own a topic; one that has topics and owns none is no more than a tag. */
  owners: ReadonlySet<string>;
  counts: ReadonlyMap<string, number>;
  total: number;
  /** There are more topics than were counted. */
  more: boolean;
  chosen: string | null;
  /** A topic was dropped on a space. */
  onDropTopic: (topicId: string, space: Space) => void;
  children?: ReactNode;
}

export function SpaceList({ spaces, owners, counts, total, more, chosen, onDropTopic, children }: SpaceListProps) {
  const sorted = spaces.toSorted((a, b) => a.name.localeCompare(b.name));
  const isTag = (space: Space): boolean => (counts.get(space.id) ?? 0) > 0 && !owners.has(space.id);
  const namesakes = Map.groupBy(spaces, (space) => space.name);
  const row = (space: Space) => (
    <li
      key={space.id}
      onDragOver={(event) => {
        if (event.dataTransfer.types.includes(DRAGGED_TOPIC)) event.preventDefault();
      }}
      onDrop={(event) => {
        event.preventDefault();
        onDropTopic(event.dataTransfer.getData(DRAGGED_TOPIC), space);
      }}
    >
      <Link to={`/board?space=${encodeURIComponent(space.id)}`} aria-current={chosen === space.id ? "true" : undefined}>
        {isTag(space) ? (
          <span className="quiet" aria-hidden="true">
            #
          </span>
        ) : (
          <span className="dot" style={space.color === null ? undefined : { background: space.color }} />
        )}
        <span className="grow">
          <Told text={space.name} />
          {(namesakes.get(space.name)?.length ?? 0) > 1 && <small className="quiet"> {space.id}</small>}
        </span>
        <Count count={counts.get(space.id) ?? 0} more={more} />
      </Link>
    </li>
  );
  return (
    <nav className="spaces" aria-label="Spaces">
      <h2>Spaces</h2>
      <ul>
        <li>
          <Link to="/board" aria-current={chosen === null ? "true" : undefined}>
            <span className="dot" />
            <span className="grow">All spaces</span>
            <Count count={total} more={more} />
          </Link>
        </li>
        {sorted.filter((space) => !isTag(space)).map(row)}
      </ul>
      {sorted.some(isTag) && (
        <>
          <h2>Tags</h2>
          <ul aria-label="Tags">{sorted.filter(isTag).map(row)}</ul>
        </>
      )}
      {children}
    </nav>
  );
}

function Count({ count, more }: { count: number; more: boolean }) {
  return (
    <span className="count">
      {count}
      {more && "+"}
      <span className="spoken"> {count === 1 ? "topic" : "topics"}</span>
    </span>
  );
}
