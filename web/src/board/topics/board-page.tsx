/** The board: spaces beside it, the topics of the chosen one by how they stand. */
import "./board.css";

import { memo, useDeferredValue, useEffect, useMemo, useRef, useState } from "react";
import { WindowVirtualizer } from "virtua";

import { post } from "../../api/client";
import { useMoment } from "../../parts/day";
import { OneLine } from "../../parts/one-line";
import { RowList } from "../../parts/rows";
import { Loading, Nothing, Trouble } from "../../parts/states";
import { go, type PageProps } from "../../router/router";
import { asOf, countsOfSpaces, type Group, isWanted, moved, topicGroups } from "../group";
import { useMayWrite } from "../may";
import {
  spaces as spaceCollection,
  topics as collection,
  useNames,
  useSpaces,
  useTasks,
  useTopics,
} from "../places";
import { SpaceEdges } from "../spaces/space-edges";
import { SpaceList } from "../spaces/space-list";
import { COLUMNS, QUIET_STATUSES, wordFor } from "../statuses";
import { MAX_SPACE, MAX_TITLE, type Topic, type TopicStatus } from "../types";
import { BoardFilter } from "./board-filter";
import { DRAGGED_TOPIC, moveTopic, statusChange, TopicRow } from "./topic-row";

export default function BoardPage({ query }: PageProps) {
  const now = useMoment();
  const held = useTopics();
  const spaces = useSpaces();
  const may = useMayWrite();
  const spaceId = query.get("space");
  const text = query.get("q") ?? "";
  // What is typed shows at once; a long list follows when it can.
  const sought = useDeferredValue(text);
  const priority = query.get("priority") ?? "";
  const tag = query.get("tag") ?? "";
  const asColumns = query.get("view") !== "list";
  const topics = useMemo(() => held.rows.map((topic) => asOf(topic, now)), [held.rows, now]);
  const groups = useMemo(
    () => topicGroups(topics.filter((topic) => isWanted(topic, { text: sought, spaceId, priority, tag })), asColumns),
    [topics, sought, spaceId, priority, tag, asColumns],
  );
  const owners = useMemo(() => new Set(topics.map((topic) => topic.spaceId)), [topics]);
  const chosen = spaces.rows.find((space) => space.id === spaceId);
  const problem = held.problem ?? spaces.problem;

  function filter(name: string, value: string): void {
    const next = new URLSearchParams(query);
    if (value === "") next.delete(name);
    else next.set(name, value);
    const rest = next.toString();
    go(rest === "" ? "/board" : `/board?${rest}`, { replace: true });
  }

  return (
    <div className="board">
      <div className="head">
        <h1>{chosen?.name ?? "Board"}</h1>
        {may && (
          <OneLine
            label="Name of a new topic"
            placeholder="New topic…"
            button="Make topic"
            maxLength={MAX_TITLE}
            onSubmit={(name) => collection.make({ name, ...(spaceId === null ? {} : { spaceId }) })}
          />
        )}
      </div>
      <SpaceList
        spaces={spaces.rows}
        owners={owners}
        counts={countsOfSpaces(topics)}
        total={topics.filter((topic) => topic.status !== "archived").length}
        more={held.more}
        chosen={spaceId}
        onDropTopic={(id, space) => void moveTopic(topics, id, { spaceId: space.id }, `to ${space.name}`)}
      >
        {chosen !== undefined && <SpaceEdges key={chosen.id} space={chosen} />}
        {may && (
          <OneLine
            label="Name of a new space"
            placeholder="New space…"
            button="Add"
            maxLength={MAX_SPACE}
            onSubmit={(name) => spaceCollection.make({ name })}
          />
        )}
      </SpaceList>
      <div className="board-main">
        <div className="board-tools">
          <BoardFilter text={text} priority={priority} tag={tag} onChange={filter} />
          <div className="segmented" role="group" aria-label="How topics are shown">
            <button type="button" aria-pressed={!asColumns} onClick={() => filter("view", "list")}>
              List
            </button>
            <button type="button" aria-pressed={asColumns} onClick={() => filter("view", "")}>
              Columns
            </button>
          </div>
        </div>
        {problem !== undefined && <Trouble problem={problem} again={collection.reload} />}
        {!held.loaded && problem === undefined && <Loading what="the board" />}
        {held.loaded && groups.length === 0 && (
          <Nothing>
            {topics.length === 0
              ? "No topics yet. They are made here, or by themselves from what is logged."
              : "No topic matches the filter."}
          </Nothing>
        )}
        <div className={asColumns ? "columns" : undefined}>
          {groups.map((group) => (
            <TopicGroup
              key={group.status}
              group={group}
              searched={sought !== ""}
              oneSpace={spaceId !== null}
              isColumn={asColumns && COLUMNS.includes(group.status)}
            />
          ))}
        </div>
        {held.more && <ReadOn key={held.rows.length} />}
      </div>
    </div>
  );
}

/** At the end of what was read the rest is read, as far as somebody scrolls or what they look for is not there yet. */
function ReadOn() {
  const end = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    if (end.current === null) return;
    const seen = new IntersectionObserver(
      (entries) => {
        if (entries.some((entry) => entry.isIntersecting)) void collection.older();
      },
      { rootMargin: "1200px" },
    );
    seen.observe(end.current);
    return () => seen.disconnect();
  }, []);
  return (
    <p ref={end} className="quiet older" role="status">
      Reading more topics…
    </p>
  );
}

interface TopicGroupProps {
  group: Group<TopicStatus, Topic>;
  /** What was looked for is shown wherever it lies. */
  searched: boolean;
  oneSpace: boolean;
  isColumn: boolean;
}

const TopicGroup = memo(function TopicGroup({ group, searched, oneSpace, isColumn }: TopicGroupProps) {
  const [over, setOver] = useState(false);
  const all = useTopics().rows;
  const { refused } = useTopics();
  const { held } = useTasks(null);
  const tasks = useMemo(() => Map.groupBy(held.rows, (task) => task.topicId), [held.rows]);
  const names = useNames();

  function mover(topic: Topic, at: number, by: -1 | 1): (() => void) | undefined {
    if (group.rows[at + by] === undefined) return undefined;
    return () => {
      const order = moved(
        group.rows.map((one) => one.id),
        topic.id,
        by,
      );
      if (order === null) return;
      void collection.attempt(topic.id, {}, async () => {
        for (const row of await post<Topic[]>("/api/topics/reorder", { orderedIds: order })) collection.take(row);
      });
    };
  }

  return (
    <details
      className={over ? "group over" : "group"}
      key={String(searched)}
      open={searched || isColumn || !QUIET_STATUSES.has(group.status)}
      data-status={group.status}
      onDragOver={(event) => {
        if (!event.dataTransfer.types.includes(DRAGGED_TOPIC)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        const id = event.dataTransfer.getData(DRAGGED_TOPIC);
        void moveTopic(all, id, statusChange(group.status), `to ${wordFor(group.status)}`);
      }}
    >
      <summary>
        <h2>{wordFor(group.status)}</h2> <span className="count">{group.rows.length}</span>
      </summary>
      <div className="topics">
        {/* Only those in sight are drawn, however many there are. */}
        <WindowVirtualizer as={RowList} item="li" data={group.rows}>
          {(topic, at) => (
            <TopicRow
              key={topic.id}
              topic={topic}
              tasks={tasks.get(topic.id) ?? []}
              spaceName={oneSpace ? undefined : names.space.get(topic.spaceId)?.name}
              refused={refused.get(topic.id)}
              onUp={mover(topic, at, -1)}
              onDown={mover(topic, at, 1)}
            />
          )}
        </WindowVirtualizer>
      </div>
    </details>
  );
});
