import { type SyntheticEvent, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { Trouble } from "../parts/states";
import { logIn } from "./login-state";

export function Login({ problem }: { problem: Problem | undefined }) {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState(problem);

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn(token.trim());
    } catch (error) {
      setFailed(asProblem(error));
      setBusy(false);
    }
  }

  return (
    <main className="login">
      <form onSubmit={(event) => void submit(event)}>
        <h1>
          <img src="/icon.svg" alt="" width="32" height="32" /> Holdfast
        </h1>
        <label htmlFor="token">Token</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          spellCheck={false}
          required
          autoFocus
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <button type="submit" className="primary" disabled={busy || token.trim() === ""}>
          Log in
        </button>
        {failed !== undefined && <Trouble problem={failed} />}
        <p className="quiet">
          <code>holdfast token</code> prints your token; <code>holdfast token --link</code> prints a link that logs
          this browser in. The token is traded for a cookie and not kept here.
        </p>
      </form>
    </main>
  );
}
