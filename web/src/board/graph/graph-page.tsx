/** The memory map: what the newest entries name, where, and together with what. */
import "./graph.css";

import { useEffect, useEffectEvent, useMemo, useRef, useState } from "react";

import { get } from "../../api/client";
import { live } from "../../live/live";
import { useLoaded } from "../../live/loaded";
import { Choice } from "../../parts/choice";
import { Loading, Nothing, Trouble } from "../../parts/states";
import { go, Link, type PageProps } from "../../router/router";
import { useNames, useSpaces } from "../places";
import { GraphAside } from "./graph-aside";
import { GraphDrawing } from "./graph-drawing";
import { GraphTable } from "./graph-table";
import { layout, type Places } from "./layout";
import { asRead, type MapNode, type MemoryMap, neighbours } from "./map";

const MOST_NODES = 140;
const MOST_NAMES = 90;
const REDRAW_MS = 4000;

interface Drawn {
  map: MemoryMap;
  places: Places;
}

export default function GraphPage({ query }: PageProps) {
  const spaceId = query.get("space") ?? "";
  const asTable = query.get("view") === "table";
  const q = query.get("q") ?? "";
  const before = useRef<Places>(new Map());
  const loaded = useLoaded(spaceId, async (signal): Promise<Drawn> => {
    const bounds = { maxNodes: MOST_NODES, maxEntities: MOST_NAMES, allowedSpaceIds: spaceId };
    const map = asRead(await get<MemoryMap>("/api/graph", bounds, signal));
    before.current = layout(map.nodes, map.edges, before.current);
    return { map, places: before.current };
  });
  useRedraw(loaded.reload);
  const spaces = useSpaces().rows;
  const address = (some: Record<string, string>): string => {
    const next = new URLSearchParams({ space: spaceId, view: asTable ? "table" : "", q, ...some });
    for (const [name, value] of [...next]) if (value === "") next.delete(name);
    return next.size === 0 ? "/graph" : `/graph?${next.toString()}`;
  };

  return (
    <>
      <div className="head">
        <h1>Memory map</h1>
        <div className="row">
          <input
            type="search"
            className="graph-find"
            aria-label="Find on the map"
            placeholder="Find on the map…"
            value={q}
            onChange={(event) => go(address({ q: event.target.value }), { replace: true })}
          />
          <Choice
            label="Space"
            value={spaceId}
            options={[["", "All spaces"], ...spaces.map((space) => [space.id, space.name] as const)]}
            onChange={(space) => go(address({ space }), { replace: true })}
          />
          <Link className="quiet-button" to={address({ view: asTable ? "" : "table" })}>{asTable ? "As a drawing" : "As a table"}</Link>
        </div>
      </div>
      {loaded.problem !== undefined && <Trouble problem={loaded.problem} />}
      {loaded.loading && <Loading what="the map" />}
      {loaded.value !== undefined && <GraphView drawn={loaded.value} asTable={asTable} q={q.trim().toLowerCase()} />}
    </>
  );
}

function GraphView({ drawn, asTable, q }: { drawn: Drawn; asTable: boolean; q: string }) {
  const { map, places } = drawn;
  const [chosen, setChosen] = useState<string | null>(null);
  const linked = useMemo(() => neighbours(map), [map]);
  const sought = useMemo(() => (q === "" ? null : found(map.nodes, q)), [map, q]);
  const names = useNames();
  const colours = new Map(
    map.nodes.flatMap((node) => {
      const color = names.topic.get(node.id)?.color ?? null;
      return color === null ? [] : [[node.id, color] as const];
    }),
  );
  if (map.nodes.length === 0) return <Nothing>Nothing to draw yet: names that come up more than once appear here.</Nothing>;
  const known = chosen !== null && places.has(chosen) ? chosen : null;
  const { entries, leftOut } = map.stats;
  return (
    <>
      {sought?.size === 0 && <Nothing>Nothing on the map is named so.</Nothing>}
      {asTable ? (
        <GraphTable nodes={sought === null ? map.nodes : map.nodes.filter((node) => sought.has(node.id))} linked={linked} />
      ) : (
        <div className="graph-view">
          <div className="graph-box">
            <GraphDrawing
              map={map}
              places={places}
              linked={linked}
              colours={colours}
              chosen={known}
              sought={sought}
              onChoose={setChosen}
            />
          </div>
          <GraphAside
            node={map.nodes.find((node) => node.id === known)}
            linked={known === null ? [] : (linked.get(known) ?? [])}
          />
        </div>
      )}
      <p className="quiet">
        From {entries} entries. {leftOut.topics > 0 && <>{leftOut.topics} topics </>}
        {leftOut.topics > 0 && leftOut.edges > 0 && "and "}
        {leftOut.edges > 0 && <>{leftOut.edges} weak links </>}
        {(leftOut.topics > 0 || leftOut.edges > 0) && "are left out."}
      </p>
    </>
  );
}

function found(nodes: readonly MapNode[], q: string): ReadonlySet<string> {
  return new Set(nodes.filter((node) => node.label.toLowerCase().includes(q)).map((node) => node.id));
}

/** Draws again a while after something was logged, once for all that came meanwhile. */
function useRedraw(reload: () => void): void {
  const again = useEffectEvent(reload);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const off = live.on("log.", () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        again();
      }, REDRAW_MS);
    });
    return () => {
      off();
      clearTimeout(timer);
    };
  }, []);
}
