/** What waits for a person, live. */
import { Nothing, Loading, Trouble } from "../parts/states";
import { useLoggedIn } from "../shell/login-state";
import { ApprovalCard } from "./card";
import { Heading } from "./heading";
import { usePending } from "./pending";

export default function PendingPage() {
  const { rows, more, loaded, problem } = usePending();
  const { scope } = useLoggedIn();
  return (
    <>
      <Heading />
      {problem !== undefined && <Trouble problem={problem} />}
      {scope !== "admin" && (
        <p className="note">This login may look, not decide: that takes a token that may administer.</p>
      )}
      {!loaded && problem === undefined && <Loading what="approvals" />}
      {loaded && rows.length === 0 && <Nothing>Nothing waits for you. What agents ask for appears here.</Nothing>}
      <ol className="cards" aria-label="Waiting for a decision" aria-live="polite" aria-relevant="additions">
        {rows.map((approval) => (
          <li key={approval.id}>
            <ApprovalCard approval={approval} mayDecide={scope === "admin"} />
          </li>
        ))}
      </ol>
      {more && <p className="quiet">There are more; they come up as these are decided.</p>}
    </>
  );
}
