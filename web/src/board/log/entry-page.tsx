/** One entry, at an address of its own. */
import "./entries.css";

import { Loading, Nothing, Trouble } from "../../parts/states";
import { Ago } from "../../parts/time";
import { Told } from "../../parts/verbatim";
import { Link, type PageProps } from "../../router/router";
import { Refused } from "../../parts/refused";
import { EntryDetail } from "./entry-detail";
import { EntryState } from "./entry-state";
import { useEntry } from "./entries";
import { useWho } from "./who";

export default function EntryPage({ params }: PageProps) {
  const { entries, held } = useEntry(params.id ?? "");
  const entry = held.rows[0];
  const whoOf = useWho();
  return (
    <>
      <p className="trail">
        <Link to="/log">Log</Link>
      </p>
      <h1 className="spoken">Entry</h1>
      {held.problem !== undefined && <Trouble problem={held.problem} />}
      {!held.loaded && held.problem === undefined && <Loading what="the entry" />}
      {held.loaded && entry === undefined && <Nothing>This entry was deleted.</Nothing>}
      {entry !== undefined && (
        <article className="card entry-alone">
          <div className="entry-head">
            <strong>
              <Told text={whoOf(entry)} />
            </strong>
            <span className="quiet">
              <Ago at={entry.createdAt} />
            </span>
            <EntryState entry={entry} />
          </div>
          <p className="said">
            <Told text={entry.content} />
          </p>
          <Refused problem={held.refused.get(entry.id)} excuse={() => entries.excuse(entry.id)} />
          <EntryDetail entry={entry} entries={entries} />
        </article>
      )}
    </>
  );
}
