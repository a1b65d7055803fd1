/** The config file as it is written, comments and all; secrets are masked and stay as they are. */
import "./manage.css";

import { lazy, Suspense, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { queries, useApi } from "../live/query";
import { Skeleton, Trouble } from "../parts/states";
import { toast } from "../parts/toast";
import { SettingsHead } from "./settings-head";
import { ConfigVersions } from "./versions";

const Compared = lazy(() => import("../parts/compared"));

export default function ConfigTextPage() {
  const { data, error, refetch } = useApi("/api/config/text");
  return (
    <>
      <SettingsHead />
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={10} what="the file" />}
      {data?.error != null && <p className="note">The file as it stands is not in use: {data.error}</p>}
      {(data?.restart.length ?? 0) > 0 && <p className="note">Counts when the gateway is started next: {data?.restart.join(", ")}</p>}
      {data !== undefined && <Editor key={data.text} path={data.shared ? "in the store, for every gateway on it" : data.path} read={data.text} />}
      <ConfigVersions />
    </>
  );
}

function Editor({ path, read }: { path: string; read: string }) {
  const [text, setText] = useState(read);
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);

  async function save(): Promise<void> {
    setBusy(true);
    try {
      await api.put("/api/config/text", { text, before: read });
      toast("The config is in force.");
      void queries.invalidateQueries({ queryKey: ["/api/config/text"] });
      void queries.invalidateQueries({ queryKey: ["/api/config"] });
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  return (
    <section className="config-text" aria-label="The file">
      <div className="row">
        <code className="grow">{path}</code>
        {text !== read && (
          <button type="button" onClick={() => setText(read)}>
            Undo all
          </button>
        )}
        <button type="button" className="primary" disabled={busy || text === read} onClick={() => void save()}>
          Save
        </button>
      </div>
      <p className="quiet">
        JSON with comments. What is masked (<code>***</code>) stays as it is unless you write over it. Nothing is saved unless all of it is right.
      </p>
      {problem !== undefined && (
        <Trouble problem={problem}>
          <ul>
            {problem.errors.map((one) => (
              <li key={one.path}>
                <code>{one.path}</code>: {one.expected}
              </li>
            ))}
          </ul>
        </Trouble>
      )}
      <textarea className="file-text" aria-label="Text of the config" spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
      {text !== read && (
        <details>
          <summary>What you changed</summary>
          <Suspense fallback={<Skeleton rows={3} what="the difference" />}>
            <Compared before={read} after={text} label="What you changed" />
          </Suspense>
        </details>
      )}
    </section>
  );
}
