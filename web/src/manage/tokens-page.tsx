/** Tokens of the home: what programs call with. A new one is shown once. */
import "./manage.css";

import { type SyntheticEvent, useState } from "react";

import { api } from "../api/client";
import type { TokenOut } from "../api/schema";
import { useSpaces } from "../board/places";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Choice } from "../parts/choice";
import { Confirm } from "../parts/confirm";
import { CopyButton } from "../parts/copy";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { SettingsHead } from "./settings-head";

const SCOPES = [
  ["read", "may read"],
  ["write", "may read and write"],
  ["admin", "may do everything"],
] as const;
const DAYS = [
  ["", "for good"],
  ["1", "for a day"],
  ["30", "for 30 days"],
  ["365", "for a year"],
] as const;

export default function TokensPage() {
  const { data, error, refetch } = useApi("/api/tokens");
  return (
    <>
      <SettingsHead />
      <NewToken />
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={4} what="the tokens" />}
      {data?.length === 0 && (
        <Nothing>No token but the home's own. Make one for each program, so that each can be taken back alone.</Nothing>
      )}
      {data !== undefined && data.length > 0 && <Rows rows={data} />}
    </>
  );
}

function NewToken() {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<TokenOut["scope"]>("read");
  const [days, setDays] = useState<(typeof DAYS)[number][0]>("30");
  const [space, setSpace] = useState("");
  const [made, setMade] = useState<TokenOut>();
  const spaces = useSpaces().rows;

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    const body = { name: name.trim(), scope, spaces: space === "" ? null : [space], days: days === "" ? null : Number(days) };
    const done = await attempt(async () => setMade(await api.post("/api/tokens", body)), ["/api/tokens"]);
    if (done) setName("");
  }

  return (
    <>
      <form className="row" aria-label="New token" onSubmit={(event) => void submit(event)}>
        <input type="text" className="grow" aria-label="Name of the token" placeholder="What it is for, such as: laptop" maxLength={80} value={name} onChange={(event) => setName(event.target.value)} />
        <Choice label="What it may do" value={scope} options={SCOPES} onChange={setScope} />
        <Choice label="Where" value={space} onChange={setSpace} options={[["", "everywhere"] as const, ...spaces.map((one) => [one.id, `in ${one.name}`] as const)]} />
        <Choice label="For how long" value={days} options={DAYS} onChange={setDays} />
        <button type="submit" className="primary" disabled={name.trim() === ""}>
          Make a token
        </button>
      </form>
      {made?.token != null && (
        <div className="panel once" role="status">
          <p>
            <strong>{made.name}</strong> is made. Copy it now: it is not shown again.
          </p>
          <div className="row">
            <code className="grow">{made.token}</code>
            <CopyButton text={made.token} />
            <button type="button" className="quiet-button" onClick={() => setMade(undefined)}>
              I have it
            </button>
          </div>
        </div>
      )}
    </>
  );
}

function Rows({ rows }: { rows: readonly TokenOut[] }) {
  return (
    <div className="scroll more">
      <table className="stack">
        <thead>
          <tr>
            <th>Name</th>
            <th>May</th>
            <th>Where</th>
            <th>Made</th>
            <th>Ends</th>
            <th>Last used</th>
            <th>
              <span className="spoken">Do</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td>
                <strong>{row.name}</strong>
              </td>
              <td data-name="May">{row.scope}</td>
              <td data-name="Where">{[...(row.spaces ?? []), ...(row.agents ?? [])].join(", ") || "everywhere"}</td>
              <td data-name="Made">
                <Ago at={row.createdAt} />
              </td>
              <td data-name="Ends">{row.expiresAt === null ? "never" : new Date(row.expiresAt).toLocaleDateString()}</td>
              <td data-name="Last used">{row.lastUsedAt === null ? "never" : <Ago at={row.lastUsedAt} />}</td>
              <td>
                <Confirm
                  label="Revoke"
                  question="What uses it is shut out at once."
                  onConfirm={() => void attempt(() => api.delete("/api/tokens/{id}", { path: { id: row.id } }), ["/api/tokens"], `${row.name} is revoked.`)}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
