/** Who did what: every act, by kind, person, target and time. Each holds the digest of the one before. */
import "./manage.css";

import { type SyntheticEvent, useState } from "react";

import { getPage } from "../api/client";
import type { ActOut } from "../api/schema";
import { usePaged } from "../parts/paged";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { type PageProps, go } from "../router/router";

const NAMES = ["act", "actor", "target", "since", "until"] as const;
type Name = (typeof NAMES)[number];
const WORDS: Record<Name, string> = { act: "Kind", actor: "Who", target: "On what", since: "From", until: "Until" };

export default function AuditPage({ query }: PageProps) {
  const asked = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""])) as Record<Name, string>;
  const [filter, setFilter] = useState(asked);
  const sent = { ...asked, since: day(asked.since, 0), until: day(asked.until, 1) };
  const trail = usePaged(JSON.stringify(sent), (cursor, signal) => getPage<ActOut>("/api/audit/trail", { ...sent, limit: 100, cursor }, signal));

  function apply(event: SyntheticEvent): void {
    event.preventDefault();
    const next = new URLSearchParams(Object.entries(filter).filter(([, value]) => value.trim() !== ""));
    go(`/audit?${next}`);
  }

  return (
    <>
      <div className="head">
        <h1>Audit</h1>
      </div>
      <form className="row filter" aria-label="Filter" onSubmit={apply}>
        {NAMES.map((name) => {
          const isDay = name === "since" || name === "until";
          return (
            <label key={name} className="typed worded">
              <span className={isDay ? "quiet" : "spoken"}>{WORDS[name]}</span>
              <input
                type={isDay ? "date" : "text"}
                placeholder={name === "act" ? "Kind: login, token…" : WORDS[name]}
                value={filter[name]}
                onChange={(event) => setFilter({ ...filter, [name]: event.target.value })}
              />
            </label>
          );
        })}
        <button type="submit">Filter</button>
        {query.size > 0 && (
          <button
            type="button"
            className="plain"
            onClick={() => {
              setFilter({ act: "", actor: "", target: "", since: "", until: "" });
              go("/audit");
            }}
          >
            Show all
          </button>
        )}
      </form>
      {trail.problem !== undefined && <Trouble problem={trail.problem} again={trail.reload} />}
      {trail.rows === undefined && trail.problem === undefined && <Skeleton rows={8} what="the trail" />}
      {trail.rows?.length === 0 && <Nothing>{query.size > 0 ? "Nobody did anything of this kind." : "Nobody did anything yet that is written down here."}</Nothing>}
      {trail.rows !== undefined && trail.rows.length > 0 && <Table rows={trail.rows} keyOf={(row) => row.seq} columns={COLUMNS} />}
      {trail.more && (
        <p className="row more">
          <button type="button" onClick={() => void trail.readOn()}>
            Older
          </button>
        </p>
      )}
    </>
  );
}

/** The beginning of a day of the reader's, or of the day after, in milliseconds. */
function day(text: string, later: 0 | 1): string {
  if (text === "") return "";
  const at = new Date(`${text}T00:00:00`);
  at.setDate(at.getDate() + later);
  return String(at.getTime());
}

const COLUMNS: readonly Column<ActOut>[] = [
  { name: "When", as: "nowrap", cell: (row) => <Ago at={row.at} /> },
  { name: "Who", named: true, cell: (row) => <Told text={row.onBehalfOf === null ? row.actor : `${row.actor} for ${row.onBehalfOf}`} /> },
  { name: "What", cell: (row) => <span className={row.act.endsWith("failed") ? "tag bad" : "tag"}>{row.act}</span> },
  {
    name: "On what",
    cell: (row) => (
      <>
        <Told text={row.target} /> <span className="quiet">
          <Told text={detailsOf(row)} />
        </span>
      </>
    ),
  },
  {
    name: "From",
    named: true,
    as: "nowrap",
    cell: (row) => (
      <span className="quiet" title={row.digest}>
        {[row.surface, row.address].filter((one) => one !== null).join(" ")}
      </span>
    ),
  },
];

function detailsOf(row: ActOut): string {
  return Object.entries(row.details)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `${name}: ${value}`)
    .join(", ");
}
