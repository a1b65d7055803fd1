/** Which spaces a space sees, and what sees it: the rule by which context and search cross from one to another. */
import { patch } from "../../api/client";
import { Refused } from "../../parts/refused";
import { Told } from "../../parts/verbatim";
import { useMayWrite } from "../may";
import { spaces as collection, useSpaces } from "../places";
import type { Space } from "../types";

export function SpaceEdges({ space }: { space: Space }) {
  const { rows, refused } = useSpaces();
  const others = rows.filter((one) => one.id !== space.id).toSorted((a, b) => a.name.localeCompare(b.name));
  const problem = refused.get(space.id);
  const may = useMayWrite();
  const seenBy = others.filter((one) => one.connectivity[space.id] === true);

  function change(body: Partial<Pick<Space, "connectivity" | "defaultVisible">>, shown: Partial<Space>): void {
    const path = `/api/spaces/${encodeURIComponent(space.id)}/connectivity`;
    void collection.attempt(space.id, shown, async () => collection.take(await patch<Space>(path, body)));
  }

  return (
    <details className="edges">
      <summary>
        Sees {others.filter((one) => space.connectivity[one.id] === true).length} of {others.length} other spaces
        {seenBy.length > 0 && <>, is seen by {seenBy.length}</>}
      </summary>
      <Refused problem={problem} excuse={() => collection.excuse(space.id)} />
      {others.length === 0 ? (
        <p className="quiet">There is no other space yet. A tag on a topic makes one.</p>
      ) : (
        <fieldset disabled={!may}>
          <legend>
            What is asked from <Told text={space.name} /> may use
          </legend>
          {others.map((one) => (
            <label key={one.id} className="tick">
              <input
                type="checkbox"
                checked={space.connectivity[one.id] === true}
                onChange={(event) => {
                  const edge = { [one.id]: event.target.checked };
                  change({ connectivity: edge }, { connectivity: { ...space.connectivity, ...edge } });
                }}
              />
              <Told text={one.name} />
              {one.connectivity[space.id] === true && <span className="quiet"> sees this one</span>}
            </label>
          ))}
        </fieldset>
      )}
      <label className="tick">
        <input
          type="checkbox"
          disabled={!may}
          checked={space.defaultVisible}
          onChange={(event) => {
            const defaultVisible = event.target.checked;
            change({ defaultVisible }, { defaultVisible });
          }}
        />
        Spaces made later see this one
      </label>
    </details>
  );
}
