import { useState } from "react";

import { Icon } from "./icon";

/** Puts a text on the clipboard, and says that it did. */
export function CopyButton({ text, label = "Copy" }: { text: string; label?: string }) {
  const [done, setDone] = useState(false);
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text);
      setDone(true);
      setTimeout(() => setDone(false), 1500);
    } catch {
      setDone(false);
    }
  }
  return (
    <button type="button" className="quiet-button" onClick={() => void copy()}>
      <Icon name={done ? "check" : "copy"} /> {done ? "Copied" : label}
    </button>
  );
}
