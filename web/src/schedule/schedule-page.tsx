/** What agents do at set times: standing tasks with their last runs, made, changed, run now, switched, removed; heartbeats; and the agenda. */
import { type SyntheticEvent, useId, useState } from "react";

import { api } from "../api/client";
import type { StandingTaskOut } from "../api/schema";
import { useApi } from "../live/query";
import { useAgentNames } from "../parts/agents";
import { attempt as attempted } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { Facts } from "../parts/facts";
import { Icon } from "../parts/icon";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { Agenda } from "./agenda";
import { inWords } from "./due";
import { Heartbeat } from "./heartbeat";

export default function SchedulePage() {
  const tasks = useApi("/api/cron", { query: { limit: 200 } }, { live: ["cron.", "turn."] });
  const beats = useApi("/api/heartbeat", {}, { live: ["heartbeat.", "config."] });
  const { scope, spaces, agents } = useLoggedIn();
  const may = scope !== "read" && spaces === null && agents === null;
  const maySet = may && scope === "admin";
  return (
    <>
      <div className="head">
        <h1>Schedule</h1>
      </div>
      {may && <NewTask />}
      {tasks.error !== null && <Trouble problem={tasks.error} again={() => void tasks.refetch()} />}
      {tasks.data === undefined && tasks.error === null && <Skeleton rows={5} what="the schedule" />}
      {tasks.data?.length === 0 && (
        <Nothing>Nothing is scheduled. Write above what an agent should do, and when; agents can schedule work too.</Nothing>
      )}
      {tasks.data !== undefined && tasks.data.length > 0 && <h2 className="part">Standing tasks</h2>}
      <ul className="cards" aria-label="Standing tasks">
        {tasks.data?.map((task) => (
          <li key={task.id}>
            <Task task={task} may={may} />
          </li>
        ))}
      </ul>
      <h2 className="part">Heartbeats</h2>
      <ul className="cards" aria-label="Heartbeats">
        {beats.data?.map((beat) => (
          <li key={beat.agentId}>
            <Heartbeat beat={beat} may={may} maySet={maySet} />
          </li>
        ))}
      </ul>
      {maySet && <Agenda tasks={tasks.data ?? NO_TASKS} />}
    </>
  );
}

const NO_TASKS: readonly StandingTaskOut[] = [];

function NewTask() {
  const [prompt, setPrompt] = useState("");
  const [when, setWhen] = useState("0 8 * * *");
  const [busy, setBusy] = useState(false);

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    const made = await attempt(() => api.post("/api/cron", { prompt, ...scheduleOf(when), session: "isolated", deliver: "last", enabled: true }));
    setBusy(false);
    if (made) setPrompt("");
  }

  return (
    <form className="row" aria-label="New standing task" onSubmit={(event) => void submit(event)}>
      <input
        type="text"
        className="grow"
        aria-label="What to do"
        placeholder="What an agent should do, such as: sum up the news"
        value={prompt}
        onChange={(event) => setPrompt(event.target.value)}
      />
      <When value={when} onChange={setWhen} />
      <button type="submit" className="primary" disabled={busy || prompt.trim() === ""}>
        Schedule
      </button>
      <Meaning of={when} />
    </form>
  );
}

/** What is written there, in words, while one writes it. */
function Meaning({ of }: { of: string }) {
  const words = inWords(of);
  return (
    <span className="quiet when-words" role="status">
      {words === of.trim() ? "a cron expression, or such as: every 30m" : words}
    </span>
  );
}

function When({ value, onChange }: { value: string; onChange: (when: string) => void }) {
  const list = useId();
  return (
    <>
      <input
        type="text"
        list={list}
        aria-label="When: a cron expression, such as 0 8 * * *, or every 30m"
        title="A cron expression, such as 0 8 * * *, or every 30m"
        className="code schedule-when"
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
      <datalist id={list}>
        <option value="0 8 * * *">every day at 8</option>
        <option value="0 8 * * 1-5">on workdays at 8</option>
        <option value="0 9 * * 1">on Mondays at 9</option>
        <option value="every 1h">every hour</option>
      </datalist>
    </>
  );
}

/** Another text or another time for what stands on the schedule. */
function Change({ task, close }: { task: StandingTaskOut; close: () => void }) {
  const before = whenOf(task.schedule);
  const [prompt, setPrompt] = useState(task.prompt);
  const [when, setWhen] = useState(before);

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    const change = { prompt, ...(when.trim() === before ? {} : scheduleOf(when)) };
    if (await attempt(() => api.patch("/api/cron/{id}", change, { path: { id: task.id } }), "It is changed.")) close();
  }

  return (
    <form className="schedule-change" aria-label={`Change ${task.name}`} onSubmit={(event) => void submit(event)}>
      <textarea aria-label="What to do" rows={3} value={prompt} onChange={(event) => setPrompt(event.target.value)} />
      <div className="row">
        <When value={when} onChange={setWhen} />
        <Meaning of={when} />
        <button type="submit" className="primary" disabled={prompt.trim() === "" || when.trim() === ""}>
          Save
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}

/** `every 30m` is an interval, all else a cron expression; the gateway judges either. */
function scheduleOf(when: string): { every: string } | { cron: string } {
  const found = /^every\s+(.+)$/i.exec(when.trim());
  return found?.[1] === undefined ? { cron: when.trim() } : { every: found[1] };
}

/** As it would be written into the field. */
function whenOf({ kind, expr, every, at }: StandingTaskOut["schedule"]): string {
  if (kind === "every") return `every ${every ?? ""}`;
  return kind === "cron" ? (expr ?? "") : `once, ${at === undefined ? "" : new Date(at).toLocaleString()}`;
}

function Task({ task, may }: { task: StandingTaskOut; may: boolean }) {
  const [changing, setChanging] = useState(false);
  const nameOf = useAgentNames();
  const path = { id: task.id };
  return (
    <article className={task.enabled ? "card" : "card over"}>
      <header>
        <h2>
          <Told text={task.name} />
        </h2>
        <span className="quiet">
          {nameOf(task.agentId)} · <span title={whenOf(task.schedule)}>{inWords(whenOf(task.schedule))}</span>
          {task.schedule.tz !== undefined && `, ${task.schedule.tz}`}
        </span>
        {!task.enabled && <span className="tag">off</span>}
        {task.lastStatus === "failed" && <span className="tag bad">failed {task.failures} in a row</span>}
      </header>
      {changing ? (
        <Change task={task} close={() => setChanging(false)} />
      ) : (
        <p>
          <Told text={task.prompt} />
        </p>
      )}
      <Facts
        rows={[
          ["Next", task.nextDue === null || !task.enabled ? "not due" : <Ago key="next" at={task.nextDue} />],
          ["Last", task.lastRun === null ? "never" : <Ago key="last" at={task.lastRun} />],
          ...(task.lastError === null ? [] : [["Why it failed", <Told key="why" text={task.lastError} />] as const]),
        ]}
      />
      <div className="row">
        <Link to={`/chat?session=${encodeURIComponent(task.sessionKey)}`}>Last runs</Link>
        {may && (
          <>
            <button type="button" onClick={() => void attempt(() => api.post("/api/cron/{id}/run", undefined, { path }), `${task.name} runs now.`)}>
              <Icon name="again" /> Run now
            </button>
            <button type="button" onClick={() => void attempt(() => api.patch("/api/cron/{id}", { enabled: !task.enabled }, { path }))}>
              {task.enabled ? "Switch off" : "Switch on"}
            </button>
            <button type="button" aria-expanded={changing} onClick={() => setChanging(!changing)}>
              <Icon name="edit" /> Change
            </button>
            <Confirm label="Remove" question="It is removed from the schedule." onConfirm={() => void attempt(() => api.delete("/api/cron/{id}", { path }))} />
          </>
        )}
      </div>
    </article>
  );
}

/** Do it, say what came of it, and read the schedule anew. */
function attempt(act: () => Promise<unknown>, done?: string): Promise<boolean> {
  return attempted(act, ["/api/cron", "/api/heartbeat"], done);
}
