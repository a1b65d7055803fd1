/**
 * A small force layout: things push each other away, links pull together, all lean to the middle. It begins from
 * the same places each time, or from where things were, so that a map that is drawn again looks like itself.
 */
import type { MapEdge, MapNode } from "./map";

export interface Point {
  x: number;
  y: number;
}

export type Places = ReadonlyMap<string, Point>;

const STEPS = 260;
const STEPS_AGAIN = 60;
const PUSH = 9000;
const PULL = 0.06;
const REST = 60;
const LEAN = 0.004;
const FASTEST = 34;
const ROOM = { width: 640, height: 590 };
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

interface Body extends Point {
  id: string;
  dx: number;
  dy: number;
}

export function layout(nodes: readonly MapNode[], edges: readonly MapEdge[], before: Places = new Map()): Places {
  const bodies = nodes.map((node, index) => ({ id: node.id, dx: 0, dy: 0, ...(before.get(node.id) ?? spiral(index)) }));
  const byId = new Map(bodies.map((body) => [body.id, body]));
  const links = edges.flatMap((edge) => {
    const [a, b] = [byId.get(edge.source), byId.get(edge.target)];
    return a === undefined || b === undefined ? [] : [{ a, b, weight: edge.weight }];
  });
  const isKnown = nodes.length > 0 && nodes.every((node) => before.has(node.id));
  const steps = isKnown ? STEPS_AGAIN : STEPS;
  for (let step = 0; step < steps; step += 1) {
    push(bodies);
    for (const { a, b, weight } of links) pull(a, b, weight);
    settle(bodies, (isKnown ? 0.3 : 1) * (1 - step / steps));
  }
  spread(bodies);
  return new Map(bodies.map(({ id, x, y }) => [id, { x, y }]));
}

function spiral(index: number): Point {
  const radius = 30 * Math.sqrt(index + 0.5);
  return { x: radius * Math.cos(index * GOLDEN), y: radius * Math.sin(index * GOLDEN) };
}

function push(bodies: readonly Body[]): void {
  for (const [index, a] of bodies.entries()) {
    for (const b of bodies.slice(index + 1)) {
      const x = a.x - b.x || 0.1;
      const y = a.y - b.y || 0.1;
      const force = PUSH / (x * x + y * y + 30);
      const far = Math.hypot(x, y);
      a.dx += (x / far) * force;
      a.dy += (y / far) * force;
      b.dx -= (x / far) * force;
      b.dy -= (y / far) * force;
    }
  }
}

function pull(a: Body, b: Body, weight: number): void {
  const x = b.x - a.x;
  const y = b.y - a.y;
  const far = Math.hypot(x, y) || 1;
  const force = (far - REST) * PULL * (0.3 + weight);
  a.dx += (x / far) * force;
  a.dy += (y / far) * force;
  b.dx -= (x / far) * force;
  b.dy -= (y / far) * force;
}

/** Moves each by what acts on it, the less the longer it went on. */
function settle(bodies: readonly Body[], heat: number): void {
  for (const body of bodies) {
    const dx = body.dx - body.x * LEAN * 4;
    const dy = body.dy - body.y * LEAN * 6;
    const far = Math.hypot(dx, dy) || 1;
    const most = Math.min(far, FASTEST) * heat;
    body.x += (dx / far) * most;
    body.y += (dy / far) * most;
    body.dx = 0;
    body.dy = 0;
  }
}

/** A few things take as much room as there is: labels get in each other's way least. */
function spread(bodies: readonly Body[]): void {
  const across = extent(bodies.map((body) => body.x));
  const down = extent(bodies.map((body) => body.y));
  const [x, y] = [stretch(ROOM.width / across), stretch(ROOM.height / down)];
  for (const body of bodies) {
    body.x *= x;
    body.y *= y;
  }
}

function extent(values: readonly number[]): number {
  return Math.max(1, Math.max(...values) - Math.min(...values));
}

function stretch(by: number): number {
  return Math.max(1, Math.min(2, by));
}

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

const LEAST = { width: 750, height: 690 };

/** What holds all places, with room for labels; never so small that it would be drawn larger than life. */
export function frame(places: Places, room = 44): Box {
  const points = [...places.values()];
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  const [left, right] = [Math.min(0, ...xs) - room * 2, Math.max(0, ...xs) + room * 2];
  const [top, bottom] = [Math.min(0, ...ys) - room, Math.max(0, ...ys) + room];
  const width = Math.max(LEAST.width, right - left);
  const height = Math.max(LEAST.height, bottom - top);
  return { x: (left + right - width) / 2, y: (top + bottom - height) / 2, width, height };
}

export function radiusOf(node: MapNode): number {
  const size = Math.sqrt(node.count);
  return node.type === "topic" ? Math.min(22, 7 + size * 1.4) : Math.min(11, 3.5 + size * 0.8);
}

/** Letters of a label that are shown. */
export const LONGEST = 28;

const LETTER = 6.6;
const LINE = 15;

/**
 * Those whose label fits without lying over another's; the most frequent first, topics before all. A pixel of the
 * screen is `unit` of the drawing: from closer by, more of them fit.
 */
export function labelled(nodes: readonly MapNode[], places: Places, unit = 1): Set<string> {
  const order = nodes.toSorted(
    (a, b) => Number(b.type === "topic") - Number(a.type === "topic") || b.count - a.count,
  );
  const taken: Box[] = [];
  const found = new Set<string>();
  for (const node of order) {
    const at = places.get(node.id);
    if (at === undefined) continue;
    const width = Math.min(node.label.length, LONGEST) * LETTER * unit + 8 * unit;
    const box = { x: at.x - width / 2, y: at.y + radiusOf(node) + unit, width, height: LINE * unit };
    if (taken.some((other) => overlaps(box, other))) continue;
    taken.push(box);
    found.add(node.id);
  }
  return found;
}

function overlaps(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

/** The node that lies next in a direction, as the eye would have it; null at the rim. */
export function nextTowards(from: string, places: Places, dx: number, dy: number): string | null {
  const here = places.get(from);
  if (here === undefined) return null;
  let best: string | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const [id, at] of places) {
    const along = (at.x - here.x) * dx + (at.y - here.y) * dy;
    const aside = Math.abs((at.x - here.x) * dy) + Math.abs((at.y - here.y) * dx);
    const cost = along + aside * 2;
    if (id !== from && along > 1 && along * 2 > aside && cost < least) {
      best = id;
      least = cost;
    }
  }
  return best;
}
