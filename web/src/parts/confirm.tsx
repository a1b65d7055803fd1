import { useState } from "react";

interface ConfirmProps {
  label: string;
  /** What is asked before it is done. */
  question: string;
  onConfirm: () => void;
}

/** A button for what cannot be undone: it asks first, in its own place. */
export function Confirm({ label, question, onConfirm }: ConfirmProps) {
  const [asking, setAsking] = useState(false);
  if (!asking) {
    return (
      <button type="button" className="danger" onClick={() => setAsking(true)}>
        {label}
      </button>
    );
  }
  return (
    <span className="confirm" role="group" aria-label={question}>
      <span>{question}</span>
      <button type="button" className="danger" autoFocus onClick={onConfirm}>
        {label}
      </button>
      <button type="button" className="plain" onClick={() => setAsking(false)}>
        Keep
      </button>
    </span>
  );
}
