/** Being let in by a provider: with a key, or by logging in. What is entered is kept and never shown again. */
import { type SyntheticEvent, useEffect, useEffectEvent, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import type { LoginBegunOut, ProviderOut } from "../api/schema";
import { askAgain } from "../live/query";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { CopyButton } from "../parts/copy";
import { Trouble } from "../parts/states";
import { toast } from "../parts/toast";

const STALE = ["/api/providers", "/api/models"];

export function Keys({ provider }: { provider: ProviderOut }) {
  const [open, setOpen] = useState(false);
  const short = (id: string): string => id.slice(provider.name.length + 1);
  return (
    <>
      {provider.keys.map((id) => (
        <div key={id} className="row">
          <span className="grow">
            Key <strong>{short(id)}</strong> <span className="quiet">is kept</span>
          </span>
          <Confirm
            label="Forget"
            question="The key is removed from this home."
            onConfirm={() =>
              void attempt(
                () => api.delete("/api/providers/{id}/keys/{profile}", { path: { id: provider.name, profile: short(id) } }),
                STALE,
                "The key is forgotten.",
              )
            }
          />
        </div>
      ))}
      {open ? (
        <KeyForm name={provider.name} close={() => setOpen(false)} />
      ) : (
        <div className="row">
          <button type="button" onClick={() => setOpen(true)}>
            {provider.keys.length === 0 && !provider.hasKey ? "Enter a key" : "Enter another key"}
            <span className="spoken"> for {provider.name}</span>
          </button>
        </div>
      )}
    </>
  );
}

function KeyForm({ name, close }: { name: string; close: () => void }) {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState<Problem>();

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    try {
      await api.put("/api/providers/{id}/key", { key, profile: "page" }, { path: { id: name } });
      await api.get("/api/models", { query: { refresh: true } });
      void askAgain(STALE);
      toast(`The key of ${name} is kept.`);
      close();
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  return (
    <form className="row" onSubmit={(event) => void submit(event)}>
      <input
        type="password"
        className="grow"
        autoComplete="off"
        aria-label={`Key of ${name}`}
        placeholder="The key, as the provider gave it"
        value={key}
        onChange={(event) => setKey(event.target.value)}
      />
      <button type="submit" className="primary" disabled={key.trim().length < 8}>
        Keep it
      </button>
      <button type="button" onClick={close}>
        Cancel
      </button>
      {problem !== undefined && <Trouble problem={problem} />}
    </form>
  );
}

export function LogIn({ name }: { name: string }) {
  const [begun, setBegun] = useState<LoginBegunOut>();
  const [problem, setProblem] = useState<Problem>();

  async function begin(): Promise<void> {
    setProblem(undefined);
    try {
      setBegun(await api.post("/api/providers/{id}/login", { profile: "login" }, { path: { id: name } }));
    } catch (error) {
      setProblem(asProblem(error));
    }
  }

  const stop = (why?: Problem): void => {
    setBegun(undefined);
    setProblem(why);
  };

  return (
    <>
      {problem !== undefined && <Trouble problem={problem} />}
      {begun === undefined ? (
        <div className="row">
          <button type="button" onClick={() => void begin()}>
            Log in to {name}
          </button>
        </div>
      ) : begun.kind === "device" ? (
        <ByCode name={name} begun={begun} stop={stop} />
      ) : (
        <ByPage name={name} begun={begun} stop={stop} />
      )}
    </>
  );
}

interface StepProps {
  name: string;
  begun: LoginBegunOut;
  stop: (why?: Problem) => void;
}

/** A code that is typed elsewhere: the gateway waits for it, a while at a time. */
function ByCode({ name, begun, stop }: StepProps) {
  const ended = useEffectEvent((why?: Problem) => (why === undefined ? done(name, stop) : stop(why)));
  useEffect(() => {
    let gone = false;
    const wait = async (): Promise<void> => {
      try {
        while (!gone) {
          const { state } = await api.post("/api/providers/{id}/login/end", { loginId: begun.loginId }, { path: { id: name } });
          if (state === "done") {
            ended();
            return;
          }
        }
      } catch (error) {
        if (!gone) ended(asProblem(error));
      }
    };
    void wait();
    return () => {
      gone = true;
    };
  }, [name, begun.loginId]);
  return (
    <div className="panel fields" role="status">
      <p>
        Visit <Address url={begun.url} />
        {begun.userCode !== null && begun.userCode !== "" && (
          <>
            {" "}
            and enter the code <code>{begun.userCode}</code> <CopyButton text={begun.userCode} />
          </>
        )}
      </p>
      <p className="quiet">Waiting for you to confirm it there.</p>
      <div className="row">
        <button type="button" onClick={() => stop()}>
          Cancel
        </button>
      </div>
    </div>
  );
}

function ByPage({ name, begun, stop }: StepProps) {
  const [said, setSaid] = useState("");

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    try {
      await api.post("/api/providers/{id}/login/end", { loginId: begun.loginId, answer: said }, { path: { id: name } });
      done(name, stop);
    } catch (error) {
      stop(asProblem(error));
    }
  }

  return (
    <form className="panel fields" onSubmit={(event) => void submit(event)}>
      <p>
        Log in at <Address url={begun.url} />. The page that you end at cannot be shown; copy its address from the address bar.
      </p>
      <label>
        The address that you ended at, or the code
        <input type="password" autoComplete="off" value={said} onChange={(event) => setSaid(event.target.value)} />
      </label>
      <div className="row">
        <button type="submit" className="primary" disabled={said.trim() === ""}>
          Log in
        </button>
        <button type="button" onClick={() => stop()}>
          Cancel
        </button>
      </div>
    </form>
  );
}

function Address({ url }: { url: string }) {
  return (
    <a href={url} target="_blank" rel="noopener noreferrer">
      {new URL(url).host}
    </a>
  );
}

function done(name: string, stop: () => void): void {
  void askAgain(STALE);
  toast(`You are logged in to ${name}.`);
  stop();
}
