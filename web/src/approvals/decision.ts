import { useState } from "react";

import { post } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { Approval } from "../api/types";
import { refresh, take } from "./pending";

export type Verdict = { decision: "approve" | "deny" } | { decision: "allow"; pattern: string };

export interface Decision {
  busy: boolean;
  problem: Problem | undefined;
  decide: (verdict: Verdict) => Promise<void>;
}

/** Deciding on one approval. Where another was quicker, or time ran out, that is told and shown. */
export function useDecision(approval: Approval): Decision {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();

  async function decide(verdict: Verdict): Promise<void> {
    setBusy(true);
    setProblem(undefined);
    try {
      take(await post<Approval>(`/api/approvals/${encodeURIComponent(approval.id)}`, verdict));
    } catch (error) {
      const found = asProblem(error);
      setProblem(found);
      if (found.status === 409) await refresh(approval.id);
    } finally {
      setBusy(false);
    }
  }

  return { busy, problem, decide };
}
