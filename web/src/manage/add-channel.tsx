/** A new channel: which service, what it asks for; tried before it is kept. */
import { type SyntheticEvent, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { ServiceOut } from "../api/schema";
import { askAgain, useApi } from "../live/query";
import { Skeleton, Trouble } from "../parts/states";
import { toast } from "../parts/toast";

export function AddChannel({ close }: { close: () => void }) {
  const { data, error } = useApi("/api/channels/services");
  const [id, setId] = useState("");
  const service = data?.find((one) => one.id === id);
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={3} what="the services" />;
  return (
    <section className="panel fields" aria-label="Add a channel">
      <h2>Add a channel</h2>
      <div className="segmented" role="group" aria-label="Service">
        {data.map((one) => (
          <button key={one.id} type="button" aria-pressed={one.id === id} onClick={() => setId(one.id)}>
            {one.title}
          </button>
        ))}
      </div>
      {service === undefined ? (
        <>
          <p className="quiet">Choose where people write from. Your own program can be a webhook channel: add it in the settings.</p>
          <div className="row">
            <button type="button" onClick={close}>
              Cancel
            </button>
          </div>
        </>
      ) : (
        <Options key={id} service={service} close={close} />
      )}
    </section>
  );
}

function Options({ service, close }: { service: ServiceOut; close: () => void }) {
  const [name, setName] = useState("");
  const [owner, setOwner] = useState("");
  const [options, setOptions] = useState<Record<string, string>>({});
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const lacking = service.options.some((one) => !one.optional && (options[one.name] ?? "").trim() === "");

  async function add(check: boolean): Promise<void> {
    setBusy(true);
    try {
      const owners = owner.trim() === "" ? [] : [owner.trim()];
      const made = await api.post("/api/channels", { service: service.id, name: name.trim() || null, owners, options, check });
      toast(`${made.name} is added${made.connectedAs === null ? "" : ` as ${made.connectedAs}`}. It is connected when the gateway starts next.`);
      void askAgain(["/api/channels", "/api/config"]);
      close();
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  function submit(event: SyntheticEvent): void {
    event.preventDefault();
    void add(true);
  }

  return (
    <form className="fields" onSubmit={submit}>
      <p className="quiet">{service.description}</p>
      {service.options.map((one) => (
        <label key={one.name}>
          {one.ask}
          <input
            type={one.secret ? "password" : "text"}
            autoComplete="off"
            value={options[one.name] ?? ""}
            onChange={(event) => setOptions({ ...options, [one.name]: event.target.value })}
          />
        </label>
      ))}
      <label>
        Your own id there, if you know it
        <input type="text" autoComplete="off" value={owner} onChange={(event) => setOwner(event.target.value)} />
      </label>
      <label>
        Name of the channel
        <input type="text" autoComplete="off" placeholder={service.id} value={name} onChange={(event) => setName(event.target.value)} />
      </label>
      <p className="quiet">
        A secret may be written as <code>{"${NAME}"}</code>: it is then taken from the environment of the gateway.
      </p>
      {problem !== undefined && (
        <Trouble problem={problem}>
          {problem.code === "channel_refused" && (
            <button type="button" disabled={busy} onClick={() => void add(false)}>
              Keep it all the same
            </button>
          )}
        </Trouble>
      )}
      <div className="row">
        <button type="submit" className="primary" disabled={busy || lacking}>
          {busy ? "Trying it…" : "Try it and keep it"}
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
      </div>
    </form>
  );
}
