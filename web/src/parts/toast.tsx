/** A word about what was done, with a way to take it back; it goes by itself. */
import { useSyncExternalStore } from "react";

import { Icon } from "./icon";

interface Toast {
  id: number;
  text: string;
  bad: boolean;
  undo: (() => void) | undefined;
}

const STAYS_MS = 7_000;
const MOST = 4;
const watchers = new Set<() => void>();
let toasts: readonly Toast[] = [];
let last = 0;

export function toast(text: string, options: { undo?: () => void; bad?: boolean } = {}): void {
  last += 1;
  const id = last;
  set([...toasts, { id, text, bad: options.bad ?? false, undo: options.undo }].slice(-MOST));
  setTimeout(() => dismiss(id), STAYS_MS);
}

function dismiss(id: number): void {
  set(toasts.filter((one) => one.id !== id));
}

function set(next: readonly Toast[]): void {
  toasts = next;
  for (const watcher of [...watchers]) watcher();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

export function Toasts() {
  const shown = useSyncExternalStore(watch, () => toasts);
  return (
    <div className="toasts" role="status" aria-live="polite">
      {shown.map((one) => (
        <div key={one.id} className={one.bad ? "toast bad-toast" : "toast"}>
          <span>{one.text}</span>
          {one.undo !== undefined && (
            <button
              type="button"
              onClick={() => {
                one.undo?.();
                dismiss(one.id);
              }}
            >
              Undo
            </button>
          )}
          <button type="button" className="quiet-button" aria-label="Dismiss" onClick={() => dismiss(one.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
