import { type SyntheticEvent, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { Trouble } from "./states";

interface OneLineProps {
  label: string;
  placeholder: string;
  button: string;
  maxLength: number;
  /** What is done with the words; they stay in the field if it fails. */
  onSubmit: (text: string) => Promise<unknown>;
}

/** A form of one field, for making a thing from its name. */
export function OneLine({ label, placeholder, button, maxLength, onSubmit }: OneLineProps) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<Problem>();

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    setBusy(true);
    setProblem(undefined);
    try {
      await onSubmit(text.trim());
      setText("");
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  return (
    <form className="one-line" onSubmit={(event) => void submit(event)}>
      <div className="row">
        <input
          type="text"
          className="grow"
          aria-label={label}
          placeholder={placeholder}
          maxLength={maxLength}
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <button type="submit" disabled={busy || text.trim() === ""}>
          {button}
        </button>
      </div>
      {problem !== undefined && <Trouble problem={problem} />}
    </form>
  );
}
