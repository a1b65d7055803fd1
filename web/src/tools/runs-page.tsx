/** What an agent's tools did in a session: calls, newest first, with what came of each. */
import { useId } from "react";

import { getPage } from "../api/client";
import type { Session, ToolCall } from "../api/types";
import { useChanges } from "../live/hooks";
import { useLoaded } from "../live/loaded";
import { usePaged } from "../parts/paged";
import { Loading, Nothing, Trouble } from "../parts/states";
import { go, type PageProps } from "../router/router";
import { CallCard } from "./call";

export default function RunsPage({ query }: PageProps) {
  const sessions = useLoaded("sessions", (signal) =>
    getPage<Session>("/api/sessions", { status: "all", limit: 100 }, signal),
  );
  useChanges("session.", sessions.reload);
  const rows = sessions.value?.rows;
  const chosen = query.get("session") ?? rows?.[0]?.sessionKey;
  return (
    <>
      <div className="head">
        <h1>Tool runs</h1>
        {rows !== undefined && chosen !== undefined && <Choice sessions={rows} chosen={chosen} />}
      </div>
      {sessions.problem !== undefined && <Trouble problem={sessions.problem} />}
      {rows === undefined && sessions.problem === undefined && <Loading what="sessions" />}
      {rows?.length === 0 && chosen === undefined && <Nothing>There is no session yet.</Nothing>}
      {chosen !== undefined && <Calls key={chosen} session={chosen} />}
    </>
  );
}

function Choice({ sessions, chosen }: { sessions: Session[]; chosen: string }) {
  const field = useId();
  const options = new Map([[chosen, chosen], ...sessions.map(optionOf)]);
  return (
    <div className="row">
      <label htmlFor={field}>Session</label>
      <select
        id={field}
        value={chosen}
        onChange={(event) => go(`/tools?session=${encodeURIComponent(event.target.value)}`)}
      >
        {[...options].map(([name, label]) => (
          <option key={name} value={name}>
            {label}
          </option>
        ))}
      </select>
    </div>
  );
}

/** An archived session shares its key with its successor, and is told apart by its id. */
function optionOf(session: Session): [string, string] {
  if (session.status === "active") return [session.sessionKey, session.sessionKey];
  return [session.sessionId, `${session.sessionKey} (until ${session.updatedAt.slice(0, 10)})`];
}

function Calls({ session }: { session: string }) {
  const path = `/api/sessions/${encodeURIComponent(session)}/tools`;
  const calls = usePaged(session, (cursor, signal) => getPage<ToolCall>(path, { cursor }, signal));
  useChanges("turn.", calls.reload);
  return (
    <>
      {calls.problem !== undefined && <Trouble problem={calls.problem} />}
      {calls.rows === undefined && calls.problem === undefined && <Loading what="calls" />}
      {calls.rows?.length === 0 && !calls.more && <Nothing>No tool was used in this session.</Nothing>}
      <ol className="cards" aria-label="Tool calls">
        {calls.rows?.map((call) => (
          <li key={`${call.entryId} ${call.callId}`}>
            <CallCard call={call} session={session} />
          </li>
        ))}
      </ol>
      {calls.more && (
        <p className="row more">
          <button type="button" onClick={() => void calls.readOn()}>
            Older
          </button>
        </p>
      )}
    </>
  );
}
