/** The map as a drawing. One node takes the focus; arrow keys go on to the next, Enter opens it. */
import { type KeyboardEvent, useMemo } from "react";

import { focusSoon } from "../../parts/focus";
import { go } from "../../router/router";
import { frame, labelled, LONGEST, nextTowards, type Places, radiusOf } from "./layout";
import { KINDS, type MapNode, type MemoryMap, type Neighbour, placeOf } from "./map";

interface GraphDrawingProps {
  map: MemoryMap;
  places: Places;
  linked: ReadonlyMap<string, Neighbour[]>;
  colours: ReadonlyMap<string, string>;
  chosen: string | null;
  onChoose: (id: string | null) => void;
}

const ARROWS: Record<string, readonly [number, number]> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

const ORDER = { entity: 0, agent: 1, topic: 2 };

export function GraphDrawing({ map, places, linked, colours, chosen, onChoose }: GraphDrawingProps) {
  const labels = useMemo(() => labelled(map.nodes, places), [map, places]);
  const { x, y, width, height } = useMemo(() => frame(places), [places]);
  const near = new Set(chosen === null ? [] : (linked.get(chosen) ?? []).map((one) => one.node.id));
  const isBright = (id: string): boolean => chosen === null || id === chosen || near.has(id);
  // What matters most is drawn last, above the rest.
  const drawn = useMemo(() => map.nodes.toSorted((a, b) => ORDER[a.type] - ORDER[b.type]), [map]);
  const stop = chosen ?? map.nodes[0]?.id;

  function pressed(event: KeyboardEvent, node: MapNode): void {
    const arrow = ARROWS[event.key];
    if (event.key === "Enter") go(placeOf(node));
    else if (arrow !== undefined) {
      const next = nextTowards(node.id, places, ...arrow);
      if (next !== null) {
        onChoose(next);
        focusSoon(`[data-node="${CSS.escape(next)}"]`);
      }
    } else return;
    event.preventDefault();
  }

  return (
    <svg
      className="graph"
      viewBox={`${x} ${y} ${width} ${height}`}
      onClick={(event) => {
        if (event.target === event.currentTarget) onChoose(null);
      }}
      role="group"
      aria-label="Memory map. Arrow keys go from one to the next, Enter opens."
    >
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
              strokeWidth={0.6 + edge.weight * 2}
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
            <Shape node={node} colour={colour} />
          </g>
        );
      })}
      <g className="names" aria-hidden="true">
        {drawn.map((node) => {
          const at = places.get(node.id);
          const isNamed = chosen === null ? labels.has(node.id) : isBright(node.id);
          if (at === undefined || !isNamed) return null;
          return (
            <text key={node.id} className={`is-${node.type}`} x={at.x} y={at.y + radiusOf(node) + 12}>
              {node.label.length > LONGEST ? `${node.label.slice(0, LONGEST - 1)}…` : node.label}
            </text>
          );
        })}
      </g>
    </svg>
  );
}

function Shape({ node, colour }: { node: MapNode; colour: string | undefined }) {
  const radius = radiusOf(node);
  const style = colour === undefined ? undefined : { fill: colour };
  if (node.type === "agent") {
    return <rect x={-radius} y={-radius} width={radius * 2} height={radius * 2} rx="2" style={style} />;
  }
  return <circle r={radius} style={style} />;
}
