/** One turn: what was asked, what was done about it step by step, what was answered, and how it ended. */
import { memo, type ReactNode, useState } from "react";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import type { Approval, Spoken, Turn } from "../api/types";
import { ApprovalCard } from "../approvals/card";
import { useAgentNames } from "../parts/agents";
import { CopyButton } from "../parts/copy";
import { withoutMarks } from "../parts/gist";
import { Icon } from "../parts/icon";
import { Prose } from "../parts/prose";
import { Ago, useNow } from "../parts/time";
import { toast } from "../parts/toast";
import { Plain, Told, Verbatim } from "../parts/verbatim";
import { Link } from "../router/router";
import { wordsOf } from "./attachments";
import { type Call, duration, gist, type Item, type Step } from "./items";
import { Enclosed } from "./pictures";
import type { LiveTool, Run } from "./run";

export interface TurnProps {
  item: Extract<Item, { kind: "turn" }>;
  run: Run | null;
  approvals: readonly Approval[];
  mayDecide: boolean;
  mayAsk: boolean;
  /** Where one looks into a turn; null where this login may not. */
  inspect: ((turn: Turn) => string) | null;
  onAgain: (asked: Spoken) => void;
  onEdit: (asked: Spoken, turn: Turn | null) => void;
}

const STOPPED = new Set<string>(["failed", "cancelled", "interrupted"]);

export const TurnView = memo(function TurnView(props: TurnProps) {
  const { item, run, approvals, mayDecide } = props;
  const groups = grouped(item.steps);
  const recorded = new Set(item.steps.flatMap((step) => (step.kind === "tool" ? [step.call.callId] : [])));
  return (
    <article className="turn" data-turn={item.key} aria-label={item.turn === null ? "Turn" : `Turn ${item.turn.number}`}>
      {groups.map((group) =>
        group.kind === "steps" ? (
          <ul key={group.key} className="steps" aria-label="Steps">
            {group.steps.map((step) => (
              <StepRow key={step.key} step={step} turn={item.turn} waitsFor={approvals} />
            ))}
          </ul>
        ) : group.step.kind === "said" ? (
          <Answered key={group.step.key} entry={group.step.entry} />
        ) : isOfTheRuntime(group.step.entry) || beganByItself(item.turn, group.step.entry) ? (
          <Prompted key={group.step.key} entry={group.step.entry} trigger={item.turn?.trigger ?? ""} />
        ) : (
          <Asked key={group.step.key} entry={group.step.entry} onEdit={props.mayAsk ? (asked) => props.onEdit(asked, item.turn) : null} />
        ),
      )}
      {run !== null && <Live run={run} recorded={recorded} said={item.steps} waits={approvals.length > 0} />}
      {approvals.map((approval) => (
        <ApprovalCard key={approval.id} approval={approval} mayDecide={mayDecide} inPlace />
      ))}
      <Ending {...props} />
    </article>
  );
});

type Group =
  | { kind: "steps"; key: string; steps: Step[] }
  | { kind: "words"; step: Extract<Step, { kind: "asked" | "said" }> };

/** Thoughts and calls that follow each other stand in one list. */
function grouped(steps: readonly Step[]): Group[] {
  const groups: Group[] = [];
  for (const step of steps) {
    const last = groups.at(-1);
    if (step.kind === "asked" || step.kind === "said") groups.push({ kind: "words", step });
    else if (last?.kind === "steps") last.steps.push(step);
    else groups.push({ kind: "steps", key: step.key, steps: [step] });
  }
  return groups;
}

function Asked({ entry, onEdit }: { entry: Spoken; onEdit: ((asked: Spoken) => void) | null }) {
  return (
    <div className="asked" data-entry={entry.id}>
      <div className="bubble">
        <Prose text={wordsOf(entry)} />
        <Enclosed entry={entry} />
      </div>
      <div className="under">
        <span className="who-said">
          <Told text={entry.agentLabel ?? (entry.agentId === "user" ? "You" : (entry.agentId ?? "Somebody"))} />
        </span>
        <Ago at={entry.createdAt} />
        {onEdit !== null && (
          <button type="button" className="quiet-button on-hover" onClick={() => onEdit(entry)}>
            <Icon name="edit" /> Edit and send again
          </button>
        )}
      </div>
    </div>
  );
}

/** As the log names who speaks when nobody does, what began such a turn, and what is laid beside it. */
const RUNTIME = "holdfast";
const BEGAN_BY: Record<string, string> = {
  continuation: "Went on by itself",
  delegate: "A delegate came back",
  "subagent-return": "A subagent came back",
  cron: "A standing task ran",
  heartbeat: "Heartbeat",
  boot: "What is done at the start",
  hook: "A webhook called",
};
const NOTES: Record<string, string> = {
  "continuation-account": "How the delegate fared",
  "continuation-return": "What the delegate says",
  "subagent-account": "How the subagent fared",
  subagent: "What the subagent says",
};

function isOfTheRuntime(entry: Spoken): boolean {
  return entry.agentId === RUNTIME || (entry.agentId !== "user" && noteOf(entry) !== null);
}

/** The words that a turn was begun with when nobody asked: what the gateway itself knows of the turn, not the words. */
function beganByItself(turn: Turn | null, entry: Spoken): boolean {
  return turn !== null && turn.inputId === entry.id && Object.hasOwn(BEGAN_BY, turn.trigger);
}

function noteOf(entry: Spoken): string | null {
  const note: unknown = entry.source?.note;
  return typeof note === "string" ? note : null;
}

/** What an agent was told by the runtime, for nobody spoke: one line, and the words to the letter for who opens it. */
function Prompted({ entry, trigger }: { entry: Spoken; trigger: string }) {
  const note = noteOf(entry);
  const name = note === null ? BEGAN_BY[trigger] : (NOTES[note] ?? "Laid beside it");
  return (
    <div className="steps" data-entry={entry.id}>
      <details className="step">
        <summary>
          <Icon name={note === null ? "again" : "note"} /> <span className="step-name">{name ?? <Told text={entry.agentLabel ?? "Holdfast"} />}</span>
          <span className="step-gist">
            <Told text={note === "subagent-account" ? accountLine(entry.content) : firstLine(withoutMarks(entry.content))} />
          </span>
          <Ago at={entry.createdAt} />
        </summary>
        <div className="step-body">
          <Prose text={entry.content} />
        </div>
      </details>
    </div>
  );
}

/** How delegated work ended and what it was: of the lines of its account, the two that a person looks for. */
function accountLine(account: string): string {
  const told = ["Status", "Task"].map((name) => new RegExp(`^${name}: (.+)$`, "m").exec(account)?.[1]);
  return told.every((line) => line !== undefined) ? told.join(": ") : firstLine(account);
}

function Answered({ entry }: { entry: Spoken }) {
  if (entry.content.trim() === "" && entry.files.length === 0) return <p className="quiet silent">The agent chose to say nothing.</p>;
  return (
    <div className="answered" data-entry={entry.id}>
      <Prose text={entry.content} />
      <Enclosed entry={entry} />
      {entry.cutOff && <p className="note">The answer broke off here.</p>}
    </div>
  );
}

function StepRow({ step, turn, waitsFor }: { step: Step; turn: Turn | null; waitsFor: readonly Approval[] }) {
  if (step.kind === "thinking") {
    return (
      <li>
        <details className="step">
          <summary>
            <Icon name="spark" /> <span className="step-name">Thought</span>
            <span className="step-gist">
              <Told text={firstLine(step.text)} />
            </span>
          </summary>
          <div className="step-body thinking">
            <Prose text={step.text} />
          </div>
        </details>
      </li>
    );
  }
  if (step.kind !== "tool") return null;
  const { call, result, entry } = step;
  const waits = waitsFor.some((approval) => approval.status === "pending" && approval.tool === call.name);
  const state = result === null ? (isOver(turn) ? "no result" : waits ? "needs you" : "running") : result.result?.isError === true ? "failed" : "done";
  const took = result === null ? "" : duration(Date.parse(result.createdAt) - Date.parse(entry.createdAt));
  return (
    <li>
      <details className={`step is-${state.replace(" ", "-")}`}>
        <summary>
          <Icon name="tool" /> <span className="step-name">{call.name}</span>
          <span className="step-gist">
            <Told text={firstLine(gist(call))} />
          </span>
          <State state={state} took={took} />
        </summary>
        <div className="step-body">
          <Verbatim text={given(call)} label="What it was given" />
          {result !== null && <Result entry={result} sessionKey={turn?.sessionKey ?? null} />}
        </div>
      </details>
    </li>
  );
}

function State({ state, took }: { state: string; took: string }) {
  return (
    <span className={`step-state ${state === "failed" ? "bad" : state === "done" ? "good" : "quiet"}`}>
      {state === "done" ? <Icon name="check" /> : state === "failed" ? <Icon name="close" /> : null}
      {state === "done" ? <span className="spoken">done</span> : state} {took}
    </span>
  );
}

function Result({ entry, sessionKey }: { entry: Spoken; sessionKey: string | null }) {
  const [whole, setWhole] = useState<string>();
  const { chars = 0, outputs = [] } = entry.result ?? {};
  async function showAll(): Promise<void> {
    try {
      setWhole((await api.get("/api/log/{id}", { path: { id: entry.id } })).content);
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }
  return (
    <>
      <p className="quiet step-label">Result, {chars.toLocaleString()} characters</p>
      <Plain text={whole ?? entry.content} label="Result" />
      <div className="row">
        {whole === undefined && chars > entry.content.length && (
          <button type="button" className="plain" onClick={() => void showAll()}>
            Show all that the model got
          </button>
        )}
        {sessionKey !== null &&
          outputs.map((id) => (
            <Link key={id} to={`/tools/output/${encodeURIComponent(id)}?session=${encodeURIComponent(sessionKey)}`}>
              Read the whole output
            </Link>
          ))}
      </div>
    </>
  );
}

/** What a running turn says and does that the log does not have yet. */
function Live({ run, recorded, said, waits }: { run: Run; recorded: Set<string>; said: readonly Step[]; waits: boolean }) {
  const tools = run.tools.filter((tool) => !recorded.has(tool.callId));
  const last = said.findLast((step) => step.kind === "said");
  const words = last?.entry.content === run.text ? "" : run.text;
  const known = said.some((step) => step.kind === "thinking" && step.text.startsWith(run.thinking.slice(0, 200)));
  const thinks = run.thinking !== "" && !known;
  return (
    <div className="live">
      {(thinks || tools.length > 0) && (
        <ul className="steps" aria-label="Steps under way">
          {thinks && (
            <li>
              <details className="step is-running" open={words === "" && tools.length === 0}>
                <summary>
                  <Icon name="spark" /> <span className="step-name">Thinking</span>
                  <span className="step-gist">
                    <Told text={firstLine(run.thinking.slice(-120))} />
                  </span>
                </summary>
                <div className="step-body thinking">
                  <Prose text={run.thinking} />
                </div>
              </details>
            </li>
          )}
          {tools.map((tool) => (
            <LiveToolRow key={tool.callId} tool={tool} />
          ))}
        </ul>
      )}
      {words !== "" && (
        <div className="answered streaming" aria-live="off">
          <Prose text={words} />
        </div>
      )}
      <p className="working" role="status">
        <span className="pulse" aria-hidden="true" />
        {waits ? "Waiting for your decision" : doing(run, tools)}
      </p>
    </div>
  );
}

function LiveToolRow({ tool }: { tool: LiveTool }) {
  const now = useNow();
  const took = duration((tool.endedAt ?? Math.max(now, tool.startedAt)) - tool.startedAt);
  return (
    <li>
      <details className={`step is-${tool.state}`}>
        <summary>
          <Icon name="tool" /> <span className="step-name">{tool.name}</span>
          <span className="step-gist">
            <Told text={firstLine(tool.progress === "" ? tool.text : tool.progress)} />
          </span>
          <State state={tool.state === "announced" ? "about to run" : tool.state} took={took} />
        </summary>
        <div className="step-body">
          <Verbatim text={tool.text} label="What it was given" />
        </div>
      </details>
    </li>
  );
}

function doing(run: Run, tools: readonly LiveTool[]): string {
  if (run.restarted !== null) return `Asking again (${run.restarted.replaceAll("_", " ")})`;
  const busy = tools.find((tool) => tool.endedAt === null);
  if (busy !== undefined) return `Using ${busy.name}`;
  return run.text !== "" ? "Answering" : run.thinking !== "" ? "Thinking" : "Working";
}

/** How it ended: a failure stays, with its reason and a way to try it again. */
function Ending({ item, run, mayAsk, inspect, onAgain }: TurnProps) {
  const { turn, steps } = item;
  const nameOfAgent = useAgentNames();
  if (turn === null || run !== null) return null;
  const asked = steps.find((step) => step.kind === "asked");
  const answer = steps.findLast((step) => step.kind === "said");
  return (
    <>
      {STOPPED.has(turn.status) && (
        <div className={turn.status === "cancelled" ? "ended" : "ended trouble"} role={turn.status === "failed" ? "alert" : "note"}>
          <p>
            <strong>{ENDED[turn.status]}</strong> {turn.error !== null && <Told text={turn.error} />}
          </p>
          {mayAsk && (
            <div className="row">
              {turn.status === "interrupted" ? (
                <button type="button" onClick={() => void resume(turn)}>
                  <Icon name="again" /> Go on
                </button>
              ) : (
                asked !== undefined && (
                  <button type="button" onClick={() => onAgain(asked.entry)}>
                    <Icon name="again" /> Try again
                  </button>
                )
              )}
            </div>
          )}
        </div>
      )}
      <footer className="turn-foot">
        {answer !== undefined && (
          <span className="who-said">
            <Told text={nameOfAgent(turn.agentId)} />
          </span>
        )}
        <Ago at={turn.endedAt ?? turn.acceptedAt} />
        {turn.model !== null && <span className="turn-model">{turn.model}</span>}
        <Spent turn={turn} />
        <span className="turn-does">
          {answer !== undefined && <CopyButton text={answer.entry.content} />}
          {inspect !== null && turn.trigger !== "command" && (
            <Link className="quiet-button" to={inspect(turn)} aria-label={`Inspect turn ${turn.number}`}>
              <Icon name="eye" /> Inspect
            </Link>
          )}
        </span>
      </footer>
    </>
  );
}

const ENDED: Record<string, string> = {
  failed: "No answer came.",
  cancelled: "Stopped.",
  interrupted: "The answer was cut off.",
};

function Spent({ turn }: { turn: Turn }): ReactNode {
  const used = (turn.usage ?? {}) as { inputTokens?: number; outputTokens?: number; cost?: number };
  const tokens = (used.inputTokens ?? 0) + (used.outputTokens ?? 0);
  if (tokens === 0) return null;
  const took = turn.startedAt === null || turn.endedAt === null ? "" : duration(Date.parse(turn.endedAt) - Date.parse(turn.startedAt));
  return (
    <span className="turn-spent">
      {tokens.toLocaleString()} tokens{took === "" ? "" : ` · ${took}`}
      {used.cost === undefined ? "" : ` · $${used.cost.toFixed(used.cost < 0.1 ? 4 : 2)}`}
    </span>
  );
}

async function resume(turn: Turn): Promise<void> {
  try {
    await api.post("/api/agent/{runId}/resume", undefined, { path: { runId: turn.turnId } });
  } catch (error) {
    toast(asProblem(error).message, { bad: true });
  }
}

function isOver(turn: Turn | null): boolean {
  return turn !== null && turn.endedAt !== null;
}

function firstLine(text: string): string {
  return text.trim().split("\n", 1)[0] ?? "";
}

/** A command as it is; of other tools, their arguments. */
function given(call: Call): string {
  const { command } = call.arguments;
  if (call.name === "exec" && typeof command === "string") return command;
  return JSON.stringify(call.arguments, null, 2);
}
