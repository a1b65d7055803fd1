/** The map as a drawing. One node takes the focus; arrow keys go on to the next, Enter opens it. */
import { type KeyboardEvent, useMemo, useRef } from "react";

import { focusSoon } from "../../parts/focus";
import { Icon } from "../../parts/icon";
import { go } from "../../router/router";
import { frame, labelled, LONGEST, nextTowards, type Places, radiusOf } from "./layout";
import { KINDS, type MapNode, type MemoryMap, type Neighbour, placeOf } from "./map";
import { useZoom } from "./zoom";

interface GraphDrawingProps {
  map: MemoryMap;
  places: Places;
  linked: ReadonlyMap<string, Neighbour[]>;
  colours: ReadonlyMap<string, string>;
  chosen: string | null;
  /** What was looked for; null if nothing was. */
  sought: ReadonlySet<string> | null;
  onChoose: (id: string | null) => void;
}

const ARROWS: Record<string, readonly [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

const ORDER = { entity: 0, agent: 1, topic: 2 };

const LABEL = 11;

export function GraphDrawing({ map, places, linked, colours, chosen, sought, onChoose }: GraphDrawingProps) {
  const drawing = useRef<SVGSVGElement>(null);
  const box = useMemo(() => frame(places), [places]);
  const { x, y, width, height } = box;
  const { transform, unit, closer, farther, fit, show } = useZoom(drawing, box);
  const labels = useMemo(() => labelled(map.nodes, places, unit), [map, places, unit]);
  const near = new Set(chosen === null ? [] : (linked.get(chosen) ?? []).map((one) => one.node.id));
  const isBright = (id: string): boolean => (chosen === null ? (sought?.has(id) ?? true) : id === chosen || near.has(id));
  // What matters most is drawn last, above the rest.
  const drawn = useMemo(() => map.nodes.toSorted((a, b) => ORDER[a.type] - ORDER[b.type]), [map]);
  const stop = chosen ?? map.nodes[0]?.id;

  function pressed(event: KeyboardEvent, node: MapNode): void {
    const arrow = ARROWS[event.key];
    if (event.key === "Enter") go(placeOf(node));
    else if (arrow !== undefined) {
      const next = nextTowards(node.id, places, ...arrow);
      const at = next === null ? undefined : places.get(next);
      if (next !== null && at !== undefined) {
        show(at);
        onChoose(next);
        focusSoon(`[data-node="${CSS.escape(next)}"]`);
      }
    } else return;
    event.preventDefault();
  }

  function zoomed(event: KeyboardEvent): void {
    const act = { "+": closer, "=": closer, "-": farther, "0": fit }[event.key];
    if (act === undefined || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  }

  return (
    <>
      <div className="graph-tools" role="group" aria-label="How close">
        <button type="button" className="tool" aria-label="Closer" aria-keyshortcuts="+" onClick={closer}>
          <Icon name="plus" />
        </button>
        <button type="button" className="tool" aria-label="Farther" aria-keyshortcuts="-" disabled={transform.k <= 1} onClick={farther}>
          <Icon name="minus" />
        </button>
        <button type="button" className="tool" aria-label="Show all of it" aria-keyshortcuts="0" disabled={transform.k <= 1} onClick={fit}>
          <Icon name="whole" />
        </button>
      </div>
      <svg
        ref={drawing}
        className="graph"
        onKeyDown={zoomed}
        viewBox={`${x} ${y} ${width} ${height}`}
        onClick={(event) => {
          if (event.target === event.currentTarget) onChoose(null);
        }}
        role="group"
        aria-label="Memory map. Arrow keys go from one to the next, Enter opens; plus, minus and 0 come closer, go back and show all."
      >
        <g transform={transform.toString()}>
          <g aria-hidden="true">
            {map.edges.map((edge) => {
              const [a, b] = [places.get(edge.source), places.get(edge.target)];
              if (a === undefined || b === undefined) return null;
              const own = edge.source === chosen || edge.target === chosen;
              return (
                <line
                  key={`${edge.source} ${edge.target} ${edge.type}`}
                  className={chosen === null ? "edge" : own ? "edge own" : "edge dim"}
                  x1={a.x}
                  y1={a.y}
                  x2={b.x}
                  y2={b.y}
                  strokeWidth={(0.6 + edge.weight * 2) / Math.sqrt(transform.k)}
                />
              );
            })}
          </g>
          {drawn.map((node) => {
            const at = places.get(node.id) ?? { x: 0, y: 0 };
            const colour = colours.get(node.id);
            return (
              <g
                key={node.id}
                className={`node is-${node.type}${isBright(node.id) ? "" : " dim"}${node.id === chosen ? " chosen" : ""}`}
                transform={`translate(${at.x} ${at.y})`}
                data-node={node.id}
                role="link"
                tabIndex={node.id === stop ? 0 : -1}
                aria-label={`${KINDS[node.type]} ${node.label}, ${linked.get(node.id)?.length ?? 0} links`}
                onMouseEnter={() => onChoose(node.id)}
                onFocus={() => onChoose(node.id)}
                onClick={() => go(placeOf(node))}
                onKeyDown={(event) => pressed(event, node)}
              >
                <Shape node={node} colour={colour} shrink={Math.sqrt(transform.k)} />
              </g>
            );
          })}
          <g className="names" aria-hidden="true" style={{ fontSize: LABEL * unit, strokeWidth: 3 * unit }}>
            {drawn.map((node) => {
              const at = places.get(node.id);
              const isNamed = chosen === null && sought === null ? labels.has(node.id) : isBright(node.id);
              if (at === undefined || !isNamed) return null;
              return (
                <text key={node.id} className={`is-${node.type}`} x={at.x} y={at.y + radiusOf(node) / Math.sqrt(transform.k) + (LABEL + 1) * unit}>
                  {node.label.length > LONGEST ? `${node.label.slice(0, LONGEST - 1)}…` : node.label}
                </text>
              );
            })}
          </g>
        </g>
      </svg>
    </>
  );
}

function Shape({ node, colour, shrink }: { node: MapNode; colour: string | undefined; shrink: number }) {
  const radius = radiusOf(node) / shrink;
  const style = colour === undefined ? undefined : { fill: colour };
  if (node.type === "agent") {
    return <rect x={-radius} y={-radius} width={radius * 2} height={radius * 2} rx="2" style={style} />;
  }
  return <circle r={radius} style={style} />;
}
