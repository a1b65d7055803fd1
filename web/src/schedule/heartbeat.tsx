/** How an agent's heartbeat stands; run now, and set otherwise in the config. */
import { type SyntheticEvent, useId, useState } from "react";

import { api } from "../api/client";
import type { HeartbeatOut } from "../api/schema";
import { useAgentNames } from "../parts/agents";
import { attempt } from "../parts/attempt";
import { Facts } from "../parts/facts";
import { Icon } from "../parts/icon";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { changesOf, type Typed, typedOf } from "./heartbeat-form";

interface HeartbeatProps {
  beat: HeartbeatOut;
  may: boolean;
  maySet: boolean;
}

const AGAIN = ["/api/heartbeat", "/api/config", "/api/agenda"] as const;

export function Heartbeat({ beat, may, maySet }: HeartbeatProps) {
  const [changing, setChanging] = useState(false);
  const nameOf = useAgentNames();
  const agent = beat.agentId;
  const hours = beat.activeHours;

  function switchTo(enabled: boolean): void {
    void attempt(() => set(agent, { enabled }), AGAIN, enabled ? "It is switched on." : "It is switched off.");
  }

  return (
    <article className={beat.enabled ? "card" : "card over"}>
      <header>
        <h2>{nameOf(agent)}</h2>
        <span className="quiet">{beat.enabled ? `every ${beat.every}, ${heard(beat.target)}` : "off"}</span>
      </header>
      {changing && <Change beat={beat} close={() => setChanging(false)} />}
      {!changing && beat.prompt !== null && (
        <p>
          <Told text={beat.prompt} />
        </p>
      )}
      <Facts
        rows={[
          ["Next", beat.nextAt === null ? "not due" : <Ago key="next" at={beat.nextAt} />],
          ["Last", beat.lastAt === null ? "never" : <Ago key="last" at={beat.lastAt} />],
          ...(hours === null ? [] : [["Hours", `${hours.start ?? "00:00"} to ${hours.end ?? "24:00"}`] as const]),
          ...(beat.lastReason === null ? [] : [["It said", <Told key="why" text={beat.lastReason} />] as const]),
          ["Today", `${beat.tokensToday.toLocaleString()} tokens`],
        ]}
      />
      {(may || maySet) && (
        <div className="row">
          {may && beat.enabled && (
            <button
              type="button"
              onClick={() => void attempt(() => api.post("/api/heartbeat/{agent}/now", undefined, { path: { agent } }), AGAIN, "It runs now.")}
            >
              <Icon name="again" /> Run now
            </button>
          )}
          {maySet && (
            <>
              <button type="button" onClick={() => switchTo(!beat.enabled)}>
                {beat.enabled ? "Switch off" : "Switch on"}
              </button>
              <button type="button" aria-expanded={changing} onClick={() => setChanging(!changing)}>
                <Icon name="edit" /> Change
              </button>
            </>
          )}
        </div>
      )}
    </article>
  );
}

function heard(target: string): string {
  return target === "none" ? "heard nowhere" : target === "last" ? "heard where you wrote last" : `heard at ${target}`;
}

/** Into this agent's own settings, whatever else stands there. */
function set(agent: string, heartbeat: Record<string, unknown>): Promise<unknown> {
  return api.patch("/api/config", { agents: { list: { [agent]: { heartbeat } } } });
}

function Change({ beat, close }: { beat: HeartbeatOut; close: () => void }) {
  const before = typedOf(beat);
  const [typed, setTyped] = useState(before);
  const targets = useId();

  function field(name: keyof Typed) {
    return { value: typed[name], onChange: (event: { target: { value: string } }) => setTyped({ ...typed, [name]: event.target.value }) };
  }

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    const changes = changesOf(before, typed);
    if (Object.keys(changes).length === 0 || (await attempt(() => set(beat.agentId, changes), AGAIN, "It is changed."))) close();
  }

  return (
    <form className="schedule-change" aria-label={`Change the heartbeat of ${beat.agentId}`} onSubmit={(event) => void submit(event)}>
      <label>
        What it is told
        <textarea rows={3} placeholder="What HEARTBEAT.md says" {...field("prompt")} />
      </label>
      <div className="row">
        <label>
          Every
          <input type="text" className="code schedule-when" required {...field("every")} />
        </label>
        <label>
          Heard at
          <input type="text" className="code schedule-when" list={targets} required title="last, none or a channel" {...field("target")} />
        </label>
        <datalist id={targets}>
          <option value="last">where you wrote last</option>
          <option value="none">nowhere</option>
        </datalist>
        <label>
          From
          <input type="text" className="code schedule-when" placeholder="00:00" {...field("start")} />
        </label>
        <label>
          Until
          <input type="text" className="code schedule-when" placeholder="24:00" {...field("end")} />
        </label>
      </div>
      <div className="row">
        <button type="submit" className="primary">
          Save
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}
