/** The config file as it is written, comments and all; secrets are masked and stay as they are. */
import "./manage.css";

import { api } from "../api/client";
import { askAgain, useApi } from "../live/query";
import { FileEditor } from "../memory/file-editor";
import { Skeleton, Trouble } from "../parts/states";
import { SettingsHead } from "./settings-head";
import { ConfigVersions } from "./versions";

export default function ConfigTextPage() {
  const { data, error, refetch } = useApi("/api/config/text");
  return (
    <>
      <SettingsHead />
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={10} what="the file" />}
      {data?.error != null && <p className="note">The file as it stands is not in use: {data.error}</p>}
      {(data?.restart.length ?? 0) > 0 && <p className="note">Counts when the gateway is started next: {data?.restart.join(", ")}</p>}
      {data !== undefined && (
        <FileEditor
          key={data.text}
          path={data.shared ? "in the store, for every gateway on it" : data.path}
          name="the config"
          language="json"
          note={
            <>
              JSON with comments. What is masked (<code>***</code>) stays as it is unless you write over it. Nothing is saved unless all of it is right.
            </>
          }
          done="The config is in force."
          read={{ text: data.text, digest: data.text }}
          mayEdit
          save={save}
        />
      )}
      <ConfigVersions />
    </>
  );
}

/** Its own text stands for its digest: what was changed meanwhile is found by it. */
async function save(text: string, before: string | null) {
  await api.put("/api/config/text", { text, before: before ?? "" });
  void askAgain(["/api/config/text", "/api/config"]);
  return { text, digest: text };
}
