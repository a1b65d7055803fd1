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
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
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
      {data !== undefined && data.length > 0 && (
        <div className="more">
          <Table rows={data} keyOf={(row) => row.id} columns={COLUMNS} />
        </div>
      )}
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

const COLUMNS: readonly Column<TokenOut>[] = [
  { name: "Name", as: "head", cell: (row) => <Told text={row.name} /> },
  { name: "May", named: true, cell: (row) => row.scope },
  { name: "Where", named: true, cell: (row) => [...(row.spaces ?? []), ...(row.agents ?? [])].join(", ") || "everywhere" },
  { name: "Made", named: true, cell: (row) => <Ago at={row.createdAt} /> },
  { name: "Ends", named: true, cell: (row) => (row.expiresAt === null ? "never" : new Date(row.expiresAt).toLocaleDateString()) },
  { name: "Last used", named: true, cell: (row) => (row.lastUsedAt === null ? "never" : <Ago at={row.lastUsedAt} />) },
  {
    name: "Do",
    as: "does",
    cell: (row) => (
      <Confirm
        label="Revoke"
        question="What uses it is shut out at once."
        onConfirm={() => void attempt(() => api.delete("/api/tokens/{id}", { path: { id: row.id } }), ["/api/tokens"], `${row.name} is revoked.`)}
      />
    ),
  },
];
