import { useState } from "react";

import { post } from "../../api/client";
import { asProblem, type Problem } from "../../api/problem";
import { Trouble } from "../../parts/states";
import { Told } from "../../parts/verbatim";
import type { Run } from "./runs";

/** The answer while it is being given. */
export function Reply({ run }: { run: Run }) {
  const [problem, setProblem] = useState<Problem>();

  async function stop(): Promise<void> {
    try {
      await post(`/api/agent/${encodeURIComponent(run.id)}/cancel`);
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  if (run.error !== null) {
    return (
      <div className="trouble" role="alert">
        <p>
          <strong>No answer came.</strong> <Told text={run.error} />
        </p>
      </div>
    );
  }
  return (
    <div className="reply" aria-live="polite" aria-busy="true">
      <div className="entry-head">
        <strong className="who-said">Answering</strong>
        <span className="quiet">{run.tool === null ? "…" : <>uses {run.tool}…</>}</span>
        <button type="button" className="plain entry-more" onClick={() => void stop()}>
          Stop
        </button>
      </div>
      {run.text !== "" && (
        <p className="said">
          <Told text={run.text} />
        </p>
      )}
      {problem !== undefined && <Trouble problem={problem} />}
    </div>
  );
}
