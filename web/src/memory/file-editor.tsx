/** The editor of a file: of an agent's workspace, a team's, a skill in the store, the config. */
import "./memory.css";

import { lazy, type ReactNode, Suspense, useState } from "react";

import { asProblem, type Problem } from "../api/problem";
import { Skeleton, Trouble } from "../parts/states";
import { useTitle } from "../parts/title";
import { toast } from "../parts/toast";
import { Link } from "../router/router";

type EditorLanguage = "markdown" | "json" | "text";

const Editor = lazy(() => import("../parts/editor"));
const Compared = lazy(() => import("../parts/compared"));

/** A text as it was read, and what is said when it is saved to show that it is still that. */
export interface ReadText {
  text: string;
  digest: string;
}

interface EditorProps<T extends ReadText> {
  path: string;
  /** What it is called, where that is not its path. */
  name?: string;
  /** What is to be known before one writes. */
  note?: ReactNode;
  done?: string;
  language?: EditorLanguage;
  line?: number;
  /** Null: there is no such file yet. */
  read: T | null;
  mayEdit: boolean;
  save: (text: string, before: string | null) => Promise<T>;
  /** How it stands now, to be compared with what was written meanwhile. */
  readAgain?: () => Promise<T>;
  /** What stands below it, such as its history; `take` puts another text into the field. */
  below?: (now: T | null, take: ((text: string) => void) | undefined) => ReactNode;
}

/** Files to choose from; on a phone a strip above the one that is open. */
export function FilePick({ files }: { files: readonly { name: string; to: string; about: ReactNode; open: boolean; missing?: boolean }[] }) {
  return (
    <nav className="pick" aria-label="Files">
      <ul>
        {files.map(({ name, to, about, open, missing = false }) => (
          <li key={name}>
            <Link to={to} aria-current={open ? "page" : undefined} className={missing ? "not-there" : undefined}>
              <span>{name}</span>
              <small>{about}</small>
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}

interface AskedProps<T extends ReadText> extends Omit<EditorProps<T>, "read"> {
  /** What the gateway answered when it was asked for the file, or why not. */
  asked: { data: T | undefined; error: Problem | null };
}

/** A file that was asked for: one that is not there yet is begun by writing it. */
export function AskedFile<T extends ReadText>({ asked, ...rest }: AskedProps<T>) {
  useTitle(rest.path);
  const fresh = asked.error?.code === "unknown_file";
  if (asked.error !== null && !fresh) return <Trouble problem={asked.error} />;
  if (asked.data === undefined && !fresh) return <Skeleton rows={10} what={rest.path} />;
  return <FileEditor read={asked.data ?? null} {...rest} />;
}

/** One file: edited, compared, and not written over what somebody else saved meanwhile. */
export function FileEditor<T extends ReadText>(props: EditorProps<T>) {
  const { path, name = path, note, done = `${path} is saved.`, language = languageOf(path), line = 0, read, mayEdit, save, readAgain, below } = props;
  const [base, setBase] = useState(read);
  const [text, setText] = useState(read?.text ?? "");
  const [put, setPut] = useState(0);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);
  const changed = text !== (base?.text ?? "");

  function take(other: string): void {
    setText(other);
    setPut((times) => times + 1);
  }

  async function keep(): Promise<void> {
    setBusy(true);
    try {
      setBase(await save(text, base?.digest ?? null));
      setProblem(undefined);
      toast(done);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  async function compareAnew(): Promise<void> {
    if (readAgain === undefined) return;
    setBase(await readAgain());
    setProblem(undefined);
  }

  return (
    <section className="editor" aria-label={name}>
      <header className="row">
        <h2>{path}</h2>
        <span className="quiet" role="status">
          {changed ? "changed, not saved" : base === null ? "not there yet" : "saved"}
        </span>
        <span className="grow" />
        {changed && (
          <button type="button" onClick={() => take(base?.text ?? "")}>
            Undo all
          </button>
        )}
        {mayEdit && (
          <button type="button" className="primary" disabled={!changed || busy} aria-keyshortcuts="Control+S" onClick={() => void keep()}>
            Save
          </button>
        )}
      </header>
      {note !== undefined && <p className="quiet">{note}</p>}
      {problem !== undefined && (
        <Trouble problem={problem}>
          {problem.errors.length > 0 && (
            <ul>
              {problem.errors.map((one) => (
                <li key={one.path}>
                  <code>{one.path}</code>: {one.expected}
                </li>
              ))}
            </ul>
          )}
          {readAgain !== undefined && (problem.code === "file_changed" || problem.code === "skill_changed") && (
            <button type="button" onClick={() => void compareAnew()}>
              Keep my text, compare it with what is there now
            </button>
          )}
        </Trouble>
      )}
      <Suspense fallback={<Skeleton rows={10} what="the editor" />}>
        <Editor
          label={`Text of ${name}`}
          value={text}
          put={put}
          language={language}
          readOnly={!mayEdit}
          line={line}
          onChange={setText}
          onSave={() => {
            if (changed && mayEdit && !busy) void keep();
          }}
        />
      </Suspense>
      {changed && base !== null && (
        <details>
          <summary>What you changed</summary>
          <Suspense fallback={<Skeleton rows={3} what="the difference" />}>
            <Compared before={base.text} after={text} label="What you changed" />
          </Suspense>
        </details>
      )}
      {below?.(base, mayEdit ? take : undefined)}
    </section>
  );
}

function languageOf(path: string): EditorLanguage {
  return /\.(md|markdown)$/i.test(path) ? "markdown" : /\.json5?$/i.test(path) ? "json" : "text";
}
