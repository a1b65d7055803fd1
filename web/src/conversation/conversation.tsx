/** The one view of what was said: in a session, about a topic, about a task. */
import "./conversation.css";

import { type ReactNode, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Virtualizer } from "virtua";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { Approval, Spoken, Turn } from "../api/types";
import { usePending } from "../approvals/pending";
import { live } from "../live/live";
import { Icon } from "../parts/icon";
import { Prose } from "../parts/prose";
import { Rows } from "../parts/rows";
import { Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { wordsOf } from "./attachments";
import { chosenModel, Composer, type Seed } from "./composer";
import { Finder } from "./finder";
import { dayOf, type Item, itemsOf } from "./items";
import { again, type Parcel, type Enclosure, send, takeBack, useOutbox } from "./outbox";
import { type Run, useRun } from "./run";
import { Enclosed, enclosedIn } from "./pictures";
import { type Place, useConversation } from "./store";
import { TurnView } from "./turn";

interface ConversationProps {
  place: Place;
  /** Where words to the agent go. */
  sessionKey: string;
  agentId: string | null;
  note?: { topicId: string; taskId: string | null };
  mayAsk: boolean;
  inspect: ((turn: Turn) => string) | null;
  /** Where words that are edited go on: a chat of their own. Without it they are sent again here. */
  onFork?: (text: string, enclosed: readonly Enclosure[], turn: Turn) => void;
  /** What stands where nothing was said yet. */
  empty: ReactNode;
  finding: boolean;
  onFound: () => void;
}

const GOES_ON = new Set<string>(["accepted", "running"]);
const NEAR = 120;

export function ConversationView(props: ConversationProps) {
  const { place, sessionKey, agentId, note, mayAsk, inspect, empty } = props;
  const { conversation, said } = useConversation(place);
  const { scope } = useLoggedIn();
  const pending = usePending();
  const outbox = useOutbox(sessionKey);
  const [seed, setSeed] = useState<Seed>({ text: "", enclosed: [], count: 0 });
  const going = useMemo(
    () => [...said.turns.values()].filter((turn) => turn.sessionKey === sessionKey && GOES_ON.has(turn.status)),
    [said.turns, sessionKey],
  );
  const current = going.find((turn) => turn.status === "running") ?? going[0] ?? null;
  const run = useRun(current?.turnId ?? null);
  const items = useMemo(() => withRunning(itemsOf(said.entries, said.turns), going), [said.entries, said.turns, going]);
  const byTurn = useMemo(() => approvalsByTurn(pending.rows), [pending.rows]);
  const { scroller, atBottom, toBottom } = useSteadyScroll(items, run, outbox.length, said.loaded);

  const { onFork } = props;
  const onEdit = useCallback(
    (asked: Spoken, turn: Turn | null) => {
      const text = wordsOf(asked);
      enclosedIn(asked).then(
        (enclosed) => {
          if (onFork !== undefined && turn !== null) onFork(text, enclosed, turn);
          else setSeed((old) => ({ text, enclosed, count: old.count + 1 }));
        },
        (error: unknown) => toast(asProblem(error).message, { bad: true }),
      );
    },
    [onFork],
  );
  const onAgain = useCallback(
    (asked: Spoken) => void sendAgain(sessionKey, agentId, asked),
    [sessionKey, agentId],
  );

  async function stop(): Promise<void> {
    if (current === null) return;
    try {
      await api.post("/api/agent/{runId}/cancel", undefined, { path: { runId: current.turnId } });
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }

  const mayDecide = scope === "admin";
  const bare = said.loaded && items.length === 0 && outbox.length === 0;
  return (
    <section className="conversation" aria-label="Conversation">
      {/* The days below are drawn only while they are in sight; headings of answers stand under this one. */}
      <h2 className="spoken">Conversation</h2>
      {props.finding && <Finder place={place} onJump={(until) => void conversation.jump(until)} onClose={props.onFound} />}
      <div className="said-scroll" ref={scroller} tabIndex={0} role="group" aria-label="What was said, newest last">
        <div className="said-list">
          {said.problem !== undefined && <Trouble problem={said.problem} again={conversation.refresh} />}
          {!said.loaded && said.problem === undefined && <Skeleton rows={5} what="the conversation" />}
          {bare && empty}
          {said.more && (
            <p className="older">
              <button type="button" className="quiet-button" disabled={said.reading} onClick={() => void conversation.older()}>
                {said.reading ? "Reading…" : "Show older"}
              </button>
            </p>
          )}
          <Virtualizer as={Rows} scrollRef={scroller} startMargin={0} shift={said.before}>
            {items.map((item) => (
              <div key={item.key} className={`item is-${item.kind}`}>
                {item.kind === "day" ? (
                  <Day day={item.day} />
                ) : item.kind === "entry" ? (
                  <Alone entry={item.entry} />
                ) : (
                  <TurnView
                    item={item}
                    run={item.key === run?.id ? run : null}
                    approvals={byTurn.get(item.key) ?? NO_APPROVALS}
                    mayDecide={mayDecide}
                    mayAsk={mayAsk}
                    inspect={inspect}
                    onAgain={onAgain}
                    onEdit={onEdit}
                  />
                )}
              </div>
            ))}
          </Virtualizer>
          {outbox.map((parcel) => (
            <Unsent key={parcel.id} parcel={parcel} />
          ))}
          {said.until !== null && (
            <p className="note row">
              <span className="grow">You see what was said until {new Date(said.until).toLocaleDateString()}.</span>
              <button type="button" onClick={() => void conversation.jump(null)}>
                Back to the newest
              </button>
            </p>
          )}
        </div>
      </div>
      {!atBottom && (
        <button type="button" className="to-bottom" onClick={toBottom}>
          <Icon name="down" /> Newest
        </button>
      )}
      {(mayAsk || note !== undefined) && (
        <Composer
          key={sessionKey}
          sessionKey={sessionKey}
          agentId={agentId}
          note={note}
          mayAsk={mayAsk}
          running={current !== null}
          onStop={() => void stop()}
          seed={seed}
        />
      )}
    </section>
  );
}

/** The same words with the same files, to the model that is chosen now. */
async function sendAgain(sessionKey: string, agentId: string | null, asked: Spoken): Promise<void> {
  try {
    await send({ sessionKey, text: wordsOf(asked), enclosed: await enclosedIn(asked), agentId, model: chosenModel(sessionKey), mode: null });
  } catch (error) {
    toast(asProblem(error).message, { bad: true });
  }
}

const NO_APPROVALS: readonly Approval[] = [];

/** A turn that goes on and of which nothing stands in the log yet is shown all the same. */
function withRunning(items: Item[], going: readonly Turn[]): Item[] {
  const shown = new Set(items.map((item) => item.key));
  const missing = going.filter((turn) => !shown.has(turn.turnId));
  return [
    ...items,
    ...missing.map((turn): Item => ({ kind: "turn", key: turn.turnId, turn, steps: [], at: turn.acceptedAt })),
  ];
}

function approvalsByTurn(rows: readonly Approval[]): Map<string, Approval[]> {
  const found = new Map<string, Approval[]>();
  for (const row of rows) {
    if (row.turnId === null) continue;
    found.set(row.turnId, [...(found.get(row.turnId) ?? []), row]);
  }
  return found;
}

function Day({ day }: { day: string }) {
  const date = new Date(`${day}T12:00:00`);
  const words = day === dayOf(live.now()) ? "Today" : date.toLocaleDateString(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" });
  return (
    <h2 className="day">
      <span>{words}</span>
    </h2>
  );
}

/** A note, an event, or what was said elsewhere and logged here. */
function Alone({ entry }: { entry: Spoken }) {
  const who = entry.agentLabel ?? (entry.agentId === "user" ? "You" : (entry.agentId ?? "Somebody"));
  const kind = entry.type === "conversation" ? (entry.agentId === "user" ? "asked" : "answered") : `alone is-${entry.type}`;
  return (
    <article className={kind} data-entry={entry.id}>
      <div className={kind === "asked" ? "bubble" : undefined}>
        {entry.type === "note" && (
          <p className="alone-kind">
            <Icon name="note" /> Note
          </p>
        )}
        <Prose text={wordsOf(entry)} />
        <Enclosed entry={entry} />
      </div>
      <div className="under">
        <span className="who-said">
          <Told text={who} />
        </span>
        <Ago at={entry.createdAt} />
        <Link className="quiet-button on-hover" to={`/log/${encodeURIComponent(entry.id)}`}>
          Details
        </Link>
      </div>
    </article>
  );
}

/** Written, and not at the gateway yet. */
function Unsent({ parcel }: { parcel: Parcel }) {
  const words = { sending: "Sending…", waiting: "Kept here; sent when the gateway is back.", refused: "Not sent." }[parcel.state];
  return (
    <div className="asked unsent">
      <div className="bubble">
        <Prose text={parcel.text} />
        {parcel.enclosed.length > 0 && <p className="quiet">With {parcel.enclosed.map((one) => one.name).join(", ")}</p>}
      </div>
      <div className="under" role={parcel.state === "refused" ? "alert" : "status"}>
        <span className={parcel.state === "refused" ? "bad" : undefined}>
          {words} {parcel.problem}
        </span>
        {parcel.state !== "sending" && (
          <>
            <button type="button" className="quiet-button" onClick={() => void again(parcel.id)}>
              <Icon name="again" /> Try now
            </button>
            <button type="button" className="quiet-button" onClick={() => takeBack(parcel.id)}>
              <Icon name="close" /> Discard
            </button>
          </>
        )}
      </div>
    </div>
  );
}

interface Steady {
  scroller: React.RefObject<HTMLDivElement | null>;
  atBottom: boolean;
  toBottom: () => void;
}

/**
 * At the bottom one stays at the bottom, whatever is said; further up nothing moves. Nor does it under the hand: what
 * is opened stays where it is, and while a button is held down what is said waits, or the click would miss its target.
 */
function useSteadyScroll(items: readonly Item[], run: Run | null, unsent: number, loaded: boolean): Steady {
  const scroller = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const held = useRef(false);
  const [atBottom, setAtBottom] = useState(true);

  const toBottom = useCallback(() => {
    const box = scroller.current;
    if (box === null) return;
    sticks.current = true;
    setAtBottom(true);
    box.scrollTop = box.scrollHeight;
  }, []);

  useLayoutEffect(() => {
    if (sticks.current && !held.current) toBottom();
  }, [items, run, unsent, loaded, toBottom]);

  useEffect(() => {
    const box = scroller.current;
    const inner = box?.firstElementChild ?? null;
    if (box === null || inner === null) return;
    let height = box.scrollHeight;
    const look = (): void => {
      // A list that grew is no sign that somebody scrolled away.
      const grew = box.scrollHeight !== height;
      height = box.scrollHeight;
      const near = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
      if (!near && grew && sticks.current) return;
      sticks.current = near;
      setAtBottom(near);
    };
    let opens = false;
    const settle = (): void => {
      if (opens) look();
      else if (sticks.current && !held.current) box.scrollTop = box.scrollHeight;
      opens = false;
      height = box.scrollHeight;
    };
    const open = (event: Event): void => {
      opens = event.target instanceof Element && event.target.closest("summary") !== null;
      if (opens) sticks.current = false;
    };
    const hold = (): void => {
      held.current = true;
    };
    const release = (): void => {
      if (!held.current) return;
      held.current = false;
      // The click comes after the button is let go.
      setTimeout(() => opens || settle());
    };
    const grown = new ResizeObserver(settle);
    grown.observe(inner);
    grown.observe(box);
    box.addEventListener("scroll", look, { passive: true });
    box.addEventListener("click", open, { capture: true });
    box.addEventListener("pointerdown", hold);
    addEventListener("pointerup", release);
    addEventListener("pointercancel", release);
    return () => {
      grown.disconnect();
      box.removeEventListener("scroll", look);
      box.removeEventListener("click", open, { capture: true });
      box.removeEventListener("pointerdown", hold);
      removeEventListener("pointerup", release);
      removeEventListener("pointercancel", release);
    };
  }, []);

  return { scroller, atBottom, toBottom };
}
