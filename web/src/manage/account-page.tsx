/** Who is logged in here: what they may, where else they are logged in, their password and tokens. */
import "./manage.css";

import { type SyntheticEvent, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { OwnTokenOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { CopyButton } from "../parts/copy";
import { Facts } from "../parts/facts";
import { browserOf } from "../parts/gist";
import { OneLine } from "../parts/one-line";
import { Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";

export default function AccountPage() {
  const who = useLoggedIn();
  const limits = [...(who.spaces ?? []).map((one) => `space ${one}`), ...(who.agents ?? []).map((one) => `agent ${one}`)];
  return (
    <>
      <div className="head">
        <h1>Your login</h1>
      </div>
      <section className="panel">
        <Facts
          rows={[
            ["You are", who.name],
            ["You may", who.role ?? { read: "read", write: "read and write", admin: "do everything" }[who.scope]],
            ...(limits.length > 0 ? [["Only in", limits.join(", ")] as const] : []),
            ...(who.teams.length > 0 ? [["Teams", who.teams.join(", ")] as const] : []),
          ]}
        />
        {who.teams.length > 0 && (
          <ul className="row" aria-label="Files of your teams">
            {who.teams.map((team) => (
              <li key={team}>
                <Link to={`/teams/${team}/files`}>Files of {team}</Link>
              </li>
            ))}
          </ul>
        )}
      </section>
      <Sessions />
      {who.userId !== null && <Password />}
      {who.userId !== null && <OwnTokens />}
    </>
  );
}

function Sessions() {
  const { data, error } = useApi("/api/me/sessions");
  return (
    <section aria-labelledby="sessions-title">
      <h2 id="sessions-title" className="more">
        Where you are logged in
      </h2>
      {error !== null && <Trouble problem={error} />}
      {data === undefined && error === null && <Skeleton rows={2} what="your logins" />}
      <ul className="plain-list">
        {data?.map((one) => (
          <li key={one.id} className="row">
            <span className="grow">
              <span title={one.program ?? undefined}>
                <Told text={one.program === null ? "a browser" : browserOf(one.program)} />
              </span> <span className="quiet">{one.address}, used </span>
              <Ago at={one.lastUsedAt} />
            </span>
            {one.current ? (
              <span className="tag good">here</span>
            ) : (
              <Confirm
                label="Log out there"
                question="It is logged out at once."
                onConfirm={() => void attempt(() => api.delete("/api/me/sessions/{id}", { path: { id: one.id } }), ["/api/me/sessions"], "Logged out there.")}
              />
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Password() {
  const [old, setOld] = useState("");
  const [fresh, setFresh] = useState("");
  const [problem, setProblem] = useState<Problem>();

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    try {
      await api.put("/api/me/password", { password: old, newPassword: fresh });
      setOld("");
      setFresh("");
      setProblem(undefined);
      toast("Your password is changed; every other login of yours has ended.");
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  return (
    <section aria-labelledby="password-title">
      <h2 id="password-title" className="more">
        Password
      </h2>
      <form className="row" onSubmit={(event) => void submit(event)}>
        <input type="password" autoComplete="current-password" aria-label="The password you have" placeholder="The one you have" className="short" value={old} onChange={(event) => setOld(event.target.value)} />
        <input type="password" autoComplete="new-password" aria-label="A new password" placeholder="A new one" className="short" value={fresh} onChange={(event) => setFresh(event.target.value)} />
        <button type="submit" disabled={old === "" || fresh === ""}>
          Change it
        </button>
      </form>
      {problem !== undefined && <Trouble problem={problem} />}
    </section>
  );
}

function OwnTokens() {
  const { data = [] } = useApi("/api/me/tokens");
  const [made, setMade] = useState<OwnTokenOut>();
  const add = async (name: string): Promise<void> => {
    setMade(await api.post("/api/me/tokens", { name, scope: "write" }));
    await attempt(() => Promise.resolve(), ["/api/me/tokens"]);
  };
  return (
    <section aria-labelledby="own-tokens-title">
      <h2 id="own-tokens-title" className="more">
        Your tokens
      </h2>
      <OneLine label="Name of the token" placeholder="What it is for" button="Make a token" maxLength={80} onSubmit={add} />
      {made?.token != null && (
        <div className="panel once row" role="status">
          <code className="grow">{made.token}</code>
          <CopyButton text={made.token} />
        </div>
      )}
      <ul className="plain-list">
        {data.map((one) => (
          <li key={one.id} className="row">
            <span className="grow">
              <Told text={one.name} /> <span className="quiet">may {one.scope}, made </span>
              <Ago at={one.createdAt} />
            </span>
            <Confirm
              label="Revoke"
              question="What uses it is shut out at once."
              onConfirm={() => void attempt(() => api.delete("/api/me/tokens/{id}", { path: { id: one.id } }), ["/api/me/tokens"], "It is revoked.")}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}
