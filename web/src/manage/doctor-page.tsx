/** What the doctor finds, worst first, and what it can mend. */
import "./manage.css";

import { useState } from "react";

import { api } from "../api/client";
import type { FindingOut } from "../api/schema";
import { queries, useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Icon } from "../parts/icon";
import { Skeleton, Trouble } from "../parts/states";
import { toast } from "../parts/toast";
import { Quoted } from "../parts/verbatim";
import { SettingsHead } from "./settings-head";

const ORDER = { fail: 0, warn: 1, ok: 2 } as const;
const WORDS = { fail: ["wrong", "tag bad"], warn: ["worth a look", "tag"], ok: ["fine", "tag good"] } as const;

export default function DoctorPage() {
  const { data, error, refetch, isFetching } = useApi("/api/doctor");
  const troubles = data?.filter((one) => one.level !== "ok").length ?? 0;
  return (
    <>
      <SettingsHead />
      <div className="row">
        <p className="grow" role="status">
          {data === undefined ? "" : troubles === 0 ? "Nothing is wrong." : `${troubles} ${troubles === 1 ? "thing is" : "things are"} worth a look.`}
        </p>
        <button type="button" disabled={isFetching} onClick={() => void refetch()}>
          <Icon name="again" /> Look again
        </button>
      </div>
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={8} what="what the doctor finds" />}
      <ul className="findings" aria-label="Findings">
        {[...(data ?? [])]
          .sort((a, b) => ORDER[a.level] - ORDER[b.level])
          .map((one) => (
            <li key={`${one.check} ${one.message}`}>
              <Finding one={one} />
            </li>
          ))}
      </ul>
    </>
  );
}

function Finding({ one }: { one: FindingOut }) {
  const [busy, setBusy] = useState(false);
  const [word, look] = WORDS[one.level];

  async function mend(): Promise<void> {
    setBusy(true);
    let after: FindingOut[] = [];
    await attempt(async () => {
      after = await api.post("/api/doctor/mend", { check: one.check });
    }, []);
    setBusy(false);
    if (after.length === 0) return;
    queries.setQueryData<FindingOut[]>(["/api/doctor", {}], (known) => [...(known ?? []).filter((old) => old.check !== one.check), ...after]);
    const left = after.find((found) => found.level !== "ok");
    toast(left === undefined ? `${one.check} is mended.` : left.message, { bad: left !== undefined });
  }

  return (
    <div className="finding">
      <span className={look}>{word}</span>
      <div>
        <p>
          <strong>{one.check}</strong> {one.message}
        </p>
        {one.level !== "ok" && one.mend !== "" && <p className="quiet">
            <Quoted text={one.mend} />
          </p>}
      </div>
      {one.fixable && (
        <button type="button" disabled={busy} onClick={() => void mend()}>
          {busy ? "Mending…" : "Mend"}
        </button>
      )}
    </div>
  );
}
