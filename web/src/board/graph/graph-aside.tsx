import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { KINDS, type MapNode, type Neighbour, placeOf } from "./map";

const MOST = 14;

/** The chosen node and what it is linked with. */
export function GraphAside({ node, linked }: { node: MapNode | undefined; linked: readonly Neighbour[] }) {
  if (node === undefined) {
    return (
      <aside className="graph-aside quiet">
        <p>Point at something, or go there with the arrow keys, to see what it is linked with.</p>
        <p className="legend">
          <span className="sign is-topic" /> Topic <span className="sign is-entity" /> Name{" "}
          <span className="sign is-agent" /> Agent
        </p>
      </aside>
    );
  }
  return (
    <aside className="graph-aside">
      <h2>
        <Link to={placeOf(node)}>
          <Told text={node.label} />
        </Link>
      </h2>
      <p className="quiet">
        {KINDS[node.type]}, in {node.count} {node.count === 1 ? "entry" : "entries"}
      </p>
      <ul>
        {linked.slice(0, MOST).map(({ node: other, edge }) => (
          <li key={`${other.id} ${edge.type}`}>
            <Link to={placeOf(other)}>
              <Told text={other.label} />
            </Link>{" "}
            <span className="quiet">{edge.count}×</span>
          </li>
        ))}
      </ul>
      {linked.length > MOST && <p className="quiet">and {linked.length - MOST} more</p>}
    </aside>
  );
}
