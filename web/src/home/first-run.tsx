/** For a new home: is there a model, a first chat, and what is remembered of it. */
import { type ReactNode, type SyntheticEvent, useState } from "react";

import type { Chat } from "../api/types";
import { send } from "../conversation/outbox";
import { useApi } from "../live/query";
import { Icon } from "../parts/icon";
import { Skeleton } from "../parts/states";
import { Told } from "../parts/verbatim";
import { go, Link } from "../router/router";

const DONE = "holdfast.welcomed";
const FEW = 3;

export function FirstRun({ isNew, chats }: { isNew: boolean; chats: readonly Chat[] }) {
  const [done, setDone] = useState(() => localStorage.getItem(DONE) !== null);
  const turns = chats.reduce((sum, chat) => sum + chat.turnCount, 0);
  if (done || (!isNew && turns > FEW)) return null;
  const first = chats.find((chat) => chat.turnCount > 0);
  return (
    <section className="welcome" aria-label="First steps">
      <ol>
        <Model />
        <FirstChat first={first} />
        <Remembered first={first} />
      </ol>
      {!isNew && (
        <button
          type="button"
          className="quiet-button"
          onClick={() => {
            localStorage.setItem(DONE, "1");
            setDone(true);
          }}
        >
          <Icon name="check" /> Done, hide this
        </button>
      )}
    </section>
  );
}

const STEPS = ["A model", "A first chat", "What is remembered"] as const;

function Step({ done, title, children }: { done: boolean; title: (typeof STEPS)[number]; children: ReactNode }) {
  return (
    <li className={done ? "welcome-step done" : "welcome-step"}>
      <span className="welcome-sign" aria-hidden="true">
        {done ? <Icon name="check" /> : STEPS.indexOf(title) + 1}
      </span>
      <div>
        <h2>
          {title}
          {done && <span className="spoken"> (done)</span>}
        </h2>
        {children}
      </div>
    </li>
  );
}

function Model() {
  const [refresh, setRefresh] = useState(0);
  const { data, isFetching, refetch } = useApi("/api/models", { query: refresh === 0 ? {} : { refresh: true } });
  if (data === undefined) {
    return (
      <Step done={false} title="A model">
        <Skeleton rows={2} what="models" />
      </Step>
    );
  }
  if (data.connected) {
    return (
      <Step done title="A model">
        <p>
          <code>{data.default}</code> answers. {data.models.length > 1 && `${data.models.length} models can be chosen.`}
        </p>
      </Step>
    );
  }
  return (
    <Step done={false} title="A model">
      <p>
        No model was found yet. Without one, answers come from memory alone. <Link to="/settings/providers">Enter a key</Link> of a
        provider, start a local server such as Ollama, or set a key before you start Holdfast:
      </p>
      <pre className="verbatim">export ANTHROPIC_API_KEY=… # or OPENAI_API_KEY, GEMINI_API_KEY</pre>
      <details>
        <summary>Where it looked</summary>
        <ul className="plain-list">
          {data.lookedAt.map((line) => (
            <li key={line} className="quiet">
              <Told text={line} />
            </li>
          ))}
        </ul>
      </details>
      <div className="row">
        <button
          type="button"
          disabled={isFetching}
          onClick={() => {
            setRefresh(1);
            void refetch();
          }}
        >
          <Icon name="again" /> {isFetching ? "Looking…" : "Look again"}
        </button>
        <Link className="quiet-button" to="/settings/doctor">
          What the doctor finds
        </Link>
      </div>
    </Step>
  );
}

function FirstChat({ first }: { first: Chat | undefined }) {
  const { data: agents = [] } = useApi("/api/agents");
  const [text, setText] = useState("Remember that I drink my coffee black. What can you do for me?");
  const agent = agents.find((one) => one.default) ?? agents[0];

  function submit(event: SyntheticEvent): void {
    event.preventDefault();
    if (agent === undefined || text.trim() === "") return;
    const sessionKey = `agent:${agent.id}:main`;
    void send({ sessionKey, text, enclosed: [], agentId: null, model: null, mode: null });
    go(`/chat?session=${encodeURIComponent(sessionKey)}`);
  }

  if (first !== undefined) {
    return (
      <Step done title="A first chat">
        <p>
          <Link to={`/chat?session=${encodeURIComponent(first.sessionKey)}`}>
            <Told text={first.title ?? first.sessionKey} />
          </Link>
        </p>
      </Step>
    );
  }
  return (
    <Step done={false} title="A first chat">
      <form onSubmit={submit} className="first-chat">
        <label htmlFor="first-words">Say something worth remembering to {agent === undefined || agent.name === agent.id ? "your agent" : agent.name}</label>
        <div className="row">
          <input id="first-words" type="text" className="grow" value={text} onChange={(event) => setText(event.target.value)} />
          <button type="submit" className="primary" disabled={agent === undefined || text.trim() === ""}>
            Send
          </button>
        </div>
      </form>
    </Step>
  );
}

function Remembered({ first }: { first: Chat | undefined }) {
  const q = first?.title ?? "";
  const { data } = useApi("/api/search", { query: { q, limitLogs: 3 } }, { enabled: q !== "", live: ["log."] });
  const hits = data?.logs.filter((hit) => hit.agentId === "user") ?? [];
  return (
    <Step done={hits.length > 0} title="What is remembered">
      {first === undefined && <p className="quiet">What is remembered of your first chat appears here.</p>}
      {hits.map((hit) => (
        <blockquote key={hit.id} className="memory-line">
          <Link to={`/log/${encodeURIComponent(hit.id)}`}>
            <Told text={hit.content.slice(0, 200)} />
          </Link>
        </blockquote>
      ))}
      {hits.length > 0 && <p className="quiet">It is found again in any chat, by what it means. Press / to search.</p>}
    </Step>
  );
}
