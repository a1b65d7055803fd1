/** The editor of a file: of an agent's workspace, a team's, a skill in the store. */
import "./memory.css";

import { lazy, type ReactNode, Suspense, useEffect, useRef, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { Skeleton, Trouble } from "../parts/states";
import { toast } from "../parts/toast";

const Compared = lazy(() => import("../parts/compared"));

/** A text as it was read, and what is said when it is saved to show that it is still that. */
export interface ReadText {
  text: string;
  digest: string;
}

interface EditorProps<T extends ReadText> {
  path: string;
  line?: number;
  /** Null: there is no such file yet. */
  read: T | null;
  mayEdit: boolean;
  save: (text: string, before: string | null) => Promise<T>;
  readAgain: () => Promise<T>;
  /** What stands below it, such as its history; `take` puts another text into the field. */
  below?: (now: T | null, take: ((text: string) => void) | undefined) => ReactNode;
}

/** One file: edited, compared, and not written over what somebody else saved meanwhile. */
export function FileEditor<T extends ReadText>({ path, line = 0, read, mayEdit, save, readAgain, below }: EditorProps<T>) {
  const [base, setBase] = useState(read);
  const [text, setText] = useState(read?.text ?? "");
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const changed = text !== (base?.text ?? "");
  useLine(field, line);

  async function keep(): Promise<void> {
    setBusy(true);
    try {
      setBase(await save(text, base?.digest ?? null));
      setProblem(undefined);
      toast(`${path} is saved.`);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  async function compareAnew(): Promise<void> {
    setBase(await readAgain());
    setProblem(undefined);
  }

  return (
    <section className="editor" aria-label={path}>
      <header className="row">
        <h2>{path}</h2>
        <span className="quiet" role="status">
          {changed ? "changed, not saved" : base === null ? "not there yet" : "saved"}
        </span>
        <span className="grow" />
        {changed && (
          <button type="button" onClick={() => setText(base?.text ?? "")}>
            Undo all
          </button>
        )}
        {mayEdit && (
          <button type="button" className="primary" disabled={!changed || busy} aria-keyshortcuts="Control+S" onClick={() => void keep()}>
            Save
          </button>
        )}
      </header>
      {problem !== undefined && (
        <Trouble problem={problem}>
          {(problem.code === "file_changed" || problem.code === "skill_changed") && (
            <button type="button" onClick={() => void compareAnew()}>
              Keep my text, compare it with what is there now
            </button>
          )}
        </Trouble>
      )}
      <textarea
        ref={field}
        className="file-text"
        aria-label={`Text of ${path}`}
        spellCheck
        readOnly={!mayEdit}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if ((event.ctrlKey || event.metaKey) && event.key === "s") {
            event.preventDefault();
            if (changed && mayEdit) void keep();
          }
        }}
      />
      {changed && base !== null && (
        <details>
          <summary>What you changed</summary>
          <Suspense fallback={<Skeleton rows={3} what="the difference" />}>
            <Compared before={base.text} after={text} label="What you changed" />
          </Suspense>
        </details>
      )}
      {below?.(base, mayEdit ? setText : undefined)}
    </section>
  );
}

/** Put the cursor where a search or a quote led to. */
function useLine(field: React.RefObject<HTMLTextAreaElement | null>, line: number): void {
  useEffect(() => {
    const box = field.current;
    if (box === null || line < 1) return;
    const lines = box.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    box.focus();
    box.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    box.scrollTo({ top: (box.scrollHeight * (line - 3)) / Math.max(1, lines.length) });
  }, [field, line]);
}
