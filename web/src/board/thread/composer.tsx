/** Where a person writes: to the agent, in the place's own session, or a note that stays with the place. */
import { type KeyboardEvent, useState } from "react";

import { post } from "../../api/client";
import { asProblem, type Problem } from "../../api/problem";
import { Icon } from "../../parts/icon";
import { Trouble } from "../../parts/states";
import { useMayAsk, useMayWrite } from "../may";
import type { Entry } from "../types";
import { useDraft } from "./draft";

interface ComposerProps {
  topicId: string;
  taskId: string | null;
  sessionKey: string;
  onNote: (entry: Entry) => void;
}

export function Composer({ topicId, taskId, sessionKey, onNote }: ComposerProps) {
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();
  const mayAsk = useMayAsk();
  const mayWrite = useMayWrite();
  const { text, write } = useDraft(sessionKey, mayAsk);
  const nothing = busy || text.trim() === "";

  async function hand(act: () => Promise<unknown>): Promise<void> {
    if (nothing) return;
    setBusy(true);
    setProblem(undefined);
    try {
      await act();
      write("");
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  const ask = () => hand(() => post("/api/agent", { message: text, sessionKey }));
  const note = () =>
    hand(async () => {
      const place = { topicId, ...(taskId === null ? {} : { taskId }) };
      const body = { type: "note", content: text, agentId: "user", classificationStatus: "classified", ...place };
      onNote(await post<Entry>("/api/log", body));
    });

  function pressed(event: KeyboardEvent): void {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    void (mayAsk ? ask() : note());
  }

  if (!mayWrite) return null;
  return (
    <form className="composer" onSubmit={(event) => event.preventDefault()}>
      {problem !== undefined && <Trouble problem={problem} />}
      <textarea
        rows={2}
        aria-label={mayAsk ? "Message or note" : "Note"}
        placeholder={mayAsk ? "Write to the agent, or keep a note…" : "Write a note…"}
        value={text}
        onChange={(event) => write(event.target.value)}
        onKeyDown={pressed}
      />
      <div className="row">
        <span className="quiet grow hint">Enter sends, Shift and Enter begins a line.</span>
        <button type="button" disabled={nothing} onClick={() => void note()}>
          <Icon name="note" /> Keep as note
        </button>
        {mayAsk && (
          <button type="button" className="primary" disabled={nothing} onClick={() => void ask()}>
            Send
          </button>
        )}
      </div>
    </form>
  );
}
