import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { KINDS, type MapNode, type Neighbour, placeOf } from "./map";

const MOST = 6;

/** The same map in words. */
export function GraphTable({ nodes, linked }: { nodes: readonly MapNode[]; linked: ReadonlyMap<string, Neighbour[]> }) {
  const sorted = nodes.toSorted((a, b) => b.count - a.count);
  return (
    <div className="scroll">
      <table className="stack">
        <thead>
          <tr>
            <th>What</th>
            <th>Kind</th>
            <th>Entries</th>
            <th>Linked with</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((node) => {
            const others = linked.get(node.id) ?? [];
            return (
              <tr key={node.id}>
                <td>
                  <Link to={placeOf(node)}>
                    <Told text={node.label} />
                  </Link>
                </td>
                <td data-name="Kind">{KINDS[node.type]}</td>
                <td data-name="Entries">{node.count}</td>
                <td data-name="Linked with">
                  <Told text={others.slice(0, MOST).map((one) => one.node.label).join(", ")} />
                  {others.length > MOST && <span className="quiet"> and {others.length - MOST} more</span>}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
