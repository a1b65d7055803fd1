/** The states that every page has: loading, trouble, nothing there. */
import type { ReactNode } from "react";

import type { Problem } from "../api/problem";

export function Loading({ what }: { what: string }) {
  return (
    <p className="loading quiet" role="status">
      Loading {what}…
    </p>
  );
}

/** The shape of what is to come, where a page has many rows. */
export function Skeleton({ rows, what }: { rows: number; what: string }) {
  return (
    <div className="skeleton" role="status">
      <span className="spoken">Loading {what}…</span>
      {Array.from({ length: rows }, (_, index) => (
        <span key={index} className="bone" aria-hidden="true" />
      ))}
    </div>
  );
}

/** What went wrong, and a way to try it once more where there is one. */
export function Trouble({ problem, again, children }: { problem: Problem; again?: () => void; children?: ReactNode }) {
  return (
    <div className="trouble" role="alert">
      <p>
        <strong>{sentence(problem.message)}</strong> {problem.hint}
      </p>
      {again !== undefined && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
      {children}
    </div>
  );
}

export function Nothing({ children }: { children: ReactNode }) {
  return <p className="nothing quiet">{children}</p>;
}

function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
