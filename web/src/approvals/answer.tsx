/** The three answers: once, always by a pattern, no. */
import { type SyntheticEvent, useId, useState } from "react";

import type { Approval } from "../api/types";
import type { Decision } from "./decision";
import { suggestions } from "./patterns";

interface Props {
  approval: Approval;
  decision: Decision;
}

export function Answer({ approval, decision }: Props) {
  const [always, setAlways] = useState(false);
  return (
    <>
      <div className="row decide">
        <button
          type="button"
          className="primary"
          disabled={decision.busy}
          onClick={() => void decision.decide({ decision: "approve" })}
        >
          Approve once
        </button>
        <button
          type="button"
          className="danger"
          disabled={decision.busy}
          onClick={() => void decision.decide({ decision: "deny" })}
        >
          Deny
        </button>
        {approval.tool === "exec" && approval.whyNotAlways === null && (
          <button type="button" className="plain" aria-expanded={always} onClick={() => setAlways(!always)}>
            Always allow…
          </button>
        )}
      </div>
      {always && <Always approval={approval} decision={decision} />}
    </>
  );
}

function Always({ approval, decision }: Props) {
  const choices = suggestions(approval.command);
  const [pattern, setPattern] = useState(choices[0] ?? "");
  const field = useId();

  function submit(event: SyntheticEvent): void {
    event.preventDefault();
    void decision.decide({ decision: "allow", pattern: pattern.trim() });
  }

  return (
    <form onSubmit={submit} className="always">
      <label htmlFor={field}>Commands of {approval.agentId} that run unasked from now on</label>
      <div className="row">
        <input
          id={field}
          type="text"
          className="code grow"
          spellCheck={false}
          autoCapitalize="off"
          autoFocus
          required
          value={pattern}
          placeholder="git diff *"
          onChange={(event) => setPattern(event.target.value)}
        />
        <button type="submit" disabled={decision.busy || pattern.trim() === ""}>
          Approve and always allow
        </button>
      </div>
      <div className="row">
        {choices.map((choice) => (
          <button key={choice} type="button" className="choice" onClick={() => setPattern(choice)}>
            <code>{choice}</code>
          </button>
        ))}
      </div>
      <p className="quiet">
        Words are matched one by one: <code>*</code> stays within a word, a last <code>*</code> is all that follows.
      </p>
    </form>
  );
}
