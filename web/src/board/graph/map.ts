/** The memory map as the gateway tells it, and what lies next to what in it. */
import type { GraphOut, MapEdge, MapNode } from "../../api/schema";

export type { MapEdge, MapNode };
export type MemoryMap = Pick<GraphOut, "nodes" | "edges" | "stats">;

export interface Neighbour {
  node: MapNode;
  edge: MapEdge;
}

/** As a person reads it: whoever wrote without being an agent is called so. */
export function asRead(map: MemoryMap): MemoryMap {
  const people = (node: MapNode): MapNode => (node.agentId === "user" ? { ...node, label: "You" } : node);
  return { ...map, nodes: map.nodes.map(people) };
}

/** What each node is linked with, the strongest link first. */
export function neighbours(map: MemoryMap): Map<string, Neighbour[]> {
  const byId = new Map(map.nodes.map((node) => [node.id, node]));
  const found = new Map<string, Neighbour[]>(map.nodes.map((node) => [node.id, []]));
  for (const edge of map.edges.toSorted((a, b) => b.weight - a.weight)) {
    const source = byId.get(edge.source);
    const target = byId.get(edge.target);
    if (source === undefined || target === undefined) continue;
    found.get(source.id)?.push({ node: target, edge });
    found.get(target.id)?.push({ node: source, edge });
  }
  return found;
}

/** Where a node leads: a topic to its page, a name to what was said of it, an agent to what it said. */
export function placeOf(node: MapNode): string {
  if (node.type === "topic") return `/board/topics/${encodeURIComponent(node.id)}`;
  if (node.type === "agent") return `/log?agent=${encodeURIComponent(node.agentId ?? node.label)}`;
  return `/search?q=${encodeURIComponent(node.label)}`;
}

export const KINDS: Record<MapNode["type"], string> = { topic: "Topic", agent: "Agent", entity: "Name" };
