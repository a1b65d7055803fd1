import { type SyntheticEvent, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { Trouble } from "../parts/states";
import { join, logIn } from "./login-state";

/** Where an invitation leads; its code stands behind the `#`, which no server is sent. */
export const INVITATION = "/invitation";

type How = "token" | "password";

export function Login({ problem }: { problem: Problem | undefined }) {
  const invited = location.pathname === INVITATION && location.hash.length > 1;
  const [how, setHow] = useState<How>("token");
  return (
    <main className="login">
      <h1>
        <img src="/icon.svg" alt="" width="32" height="32" /> Holdfast
      </h1>
      {invited ? <Join code={location.hash.slice(1)} /> : how === "token" ? <ByToken problem={problem} /> : <ByPassword />}
      {!invited && (
        <p>
          <button type="button" className="plain" onClick={() => setHow(how === "token" ? "password" : "token")}>
            {how === "token" ? "Use a name and a password" : "Use a token"}
          </button>
        </p>
      )}
    </main>
  );
}

function ByToken({ problem }: { problem: Problem | undefined }) {
  const [token, setToken] = useState("");
  const [busy, failed, submit] = useSubmit(() => logIn({ token: token.trim() }), problem);
  return (
    <form onSubmit={submit}>
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
        <code>holdfast token</code> prints your token; <code>holdfast token --link</code> prints a link that logs this browser in. The token is
        traded for a cookie and not kept here.
      </p>
    </form>
  );
}

function ByPassword() {
  const [login, setLogin] = useState("");
  const [password, setPassword] = useState("");
  const [busy, failed, submit] = useSubmit(() => logIn({ login: login.trim(), password }));
  return (
    <form onSubmit={submit}>
      <label htmlFor="login">Name</label>
      <input id="login" type="text" autoComplete="username" spellCheck={false} required autoFocus value={login} onChange={(event) => setLogin(event.target.value)} />
      <label htmlFor="password">Password</label>
      <input
        id="password"
        type="password"
        autoComplete="current-password"
        required
        value={password}
        onChange={(event) => setPassword(event.target.value)}
      />
      <button type="submit" className="primary" disabled={busy || login.trim() === "" || password === ""}>
        Log in
      </button>
      {failed !== undefined && <Trouble problem={failed} />}
    </form>
  );
}

/** Somebody who comes with an invitation chooses who they are here. */
function Join({ code }: { code: string }) {
  const [login, setLogin] = useState("");
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [busy, failed, submit] = useSubmit(() => join({ code, login: login.trim(), name: name.trim() || null, password }));
  return (
    <form onSubmit={submit}>
      <p>You are invited. Choose how you log in from now on.</p>
      <label htmlFor="name">What people call you</label>
      <input id="name" type="text" autoComplete="name" autoFocus value={name} onChange={(event) => setName(event.target.value)} />
      <label htmlFor="login">Name to log in with</label>
      <input id="login" type="text" autoComplete="username" spellCheck={false} required value={login} onChange={(event) => setLogin(event.target.value)} />
      <label htmlFor="password">Password</label>
      <input id="password" type="password" autoComplete="new-password" required value={password} onChange={(event) => setPassword(event.target.value)} />
      <button type="submit" className="primary" disabled={busy || login.trim() === "" || password === ""}>
        Come in
      </button>
      {failed !== undefined && <Trouble problem={failed} />}
    </form>
  );
}

function useSubmit(act: () => Promise<void>, first?: Problem): [boolean, Problem | undefined, (event: SyntheticEvent) => void] {
  const [busy, setBusy] = useState(false);
  const [failed, setFailed] = useState(first);
  async function submit(): Promise<void> {
    setBusy(true);
    try {
      await act();
    } catch (error) {
      setFailed(asProblem(error));
      setBusy(false);
    }
  }
  return [
    busy,
    failed,
    (event) => {
      event.preventDefault();
      void submit();
    },
  ];
}
