/** A team's files: its members read and edit them, as its agents do in the team's session; a viewer reads. */
import "./memory.css";

import { api } from "../api/client";
import { askAgain, useApi } from "../live/query";
import { OneLine } from "../parts/one-line";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { go, type PageProps } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { writesForTeams } from "../shell/rights";
import { AskedFile, FilePick } from "./file-editor";

export default function TeamFilesPage({ params, query }: PageProps) {
  const team = params.id ?? "";
  const path = query.get("path");
  const mayEdit = writesForTeams(useLoggedIn());
  const { data: teams = [] } = useApi("/api/teams");
  const { data, error, refetch } = useApi("/api/teams/{id}/files", { path: { id: team } });
  const to = (file: string): string => `/teams/${encodeURIComponent(team)}/files?path=${encodeURIComponent(file)}`;
  const name = teams.find((one) => one.id === team)?.name ?? team;
  return (
    <>
      <div className="head">
        <h1>
          Files of <Told text={name} />
        </h1>
        {mayEdit && error === null && (
          <OneLine
            label="Name of the file"
            placeholder="A new file, such as plan.md"
            button="Begin"
            maxLength={200}
            onSubmit={(file) => {
              go(to(file));
              return Promise.resolve();
            }}
          />
        )}
      </div>
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={6} what="the files" />}
      {data !== undefined && (
        <div className={path === null ? "split" : "split opened"}>
          <FilePick files={data.map((file) => ({ name: file.path, to: to(file.path), about: <Ago at={file.updatedAt} />, open: file.path === path }))} />
          {path === null ? (
            <Nothing>{data.length === 0 ? "No file yet. The team's agents write here too, in the team's session." : "Choose a file."}</Nothing>
          ) : (
            <Opened key={path} team={team} path={path} mayEdit={mayEdit} />
          )}
        </div>
      )}
    </>
  );
}

function Opened({ team, path, mayEdit }: { team: string; path: string; mayEdit: boolean }) {
  const where = { path: { id: team }, query: { path } };
  const asked = useApi("/api/teams/{id}/file", where);
  return (
    <AskedFile
      path={path}
      asked={asked}
      mayEdit={mayEdit}
      save={async (text, before) => {
        const saved = await api.put("/api/teams/{id}/file", { path, text, before }, { path: { id: team } });
        void askAgain(["/api/teams/{id}/files", "/api/teams/{id}/file"]);
        return saved;
      }}
      readAgain={() => api.get("/api/teams/{id}/file", where)}
    />
  );
}
