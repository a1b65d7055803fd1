import { type Column, Table } from "../../parts/table";
import { Told } from "../../parts/verbatim";
import { Link } from "../../router/router";
import { KINDS, type MapNode, type Neighbour, placeOf } from "./map";

const MOST = 6;

/** The same map in words. */
export function GraphTable({ nodes, linked }: { nodes: readonly MapNode[]; linked: ReadonlyMap<string, Neighbour[]> }) {
  const columns: readonly Column<MapNode>[] = [
    {
      name: "What",
      cell: (node) => (
        <Link to={placeOf(node)}>
          <Told text={node.label} />
        </Link>
      ),
    },
    { name: "Kind", named: true, cell: (node) => KINDS[node.type] },
    { name: "Entries", named: true, as: "number", cell: (node) => node.count },
    { name: "Linked with", named: true, cell: (node) => <Others others={linked.get(node.id) ?? []} /> },
  ];
  return <Table rows={nodes.toSorted((a, b) => b.count - a.count)} keyOf={(node) => node.id} columns={columns} />;
}

function Others({ others }: { others: readonly Neighbour[] }) {
  return (
    <>
      <Told text={others.slice(0, MOST).map((one) => one.node.label).join(", ")} />
      {others.length > MOST && <span className="quiet"> and {others.length - MOST} more</span>}
    </>
  );
}
