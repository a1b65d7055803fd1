/** What the gateway answers when it cannot do a thing: `application/problem+json`. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly hint = "",
    /** After so many milliseconds it may be tried again; null where nobody said. */
    readonly retryAfterMs: number | null = null,
    /** Where in what was sent it is wrong, and what is expected there. */
    readonly errors: readonly { path: string; expected: string }[] = [],
  ) {
    super(detail);
    this.name = "Problem";
  }
}

interface Told {
  code: string;
  detail: string;
  hint?: string;
  errors?: { path: string; expected: string }[];
}

/** The problem in an answer; one is made up where something between us and the gateway answered. */
export async function problemOf(response: Response): Promise<Problem> {
  const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
  const retry = Number.isFinite(seconds) ? seconds * 1000 : null;
  const kind = response.headers.get("content-type") ?? "";
  if (!kind.startsWith("application/problem+json")) {
    return new Problem(response.status, "no_problem", `The gateway answered ${response.status}.`, "", retry);
  }
  const body = (await response.json()) as Told;
  return new Problem(response.status, body.code, body.detail, body.hint, retry, body.errors);
}

/** Any error as a problem: one that is none means that nothing answered. */
export function asProblem(error: unknown): Problem {
  if (error instanceof Problem) return error;
  return new Problem(0, "unreachable", "The gateway cannot be reached.", "Is Holdfast still running?");
}
