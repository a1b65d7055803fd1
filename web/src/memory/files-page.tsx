/** The files of an agent's workspace: read, edited, compared with what they were, put back. */
import "./memory.css";

import { lazy, Suspense, useState } from "react";

import { api } from "../api/client";
import type { VersionOut, WorkspaceTextOut } from "../api/schema";
import { askAgain, useApi } from "../live/query";
import { useChosenAgent } from "../parts/agent-choice";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { type PageProps } from "../router/router";
import { useLoggedIn } from "../shell/login-state";
import { isOwner } from "../shell/rights";
import { AskedFile, FilePick } from "./file-editor";
import { MemoryHead } from "./memory-head";

const Compared = lazy(() => import("../parts/compared"));

const MEANING: Record<string, string> = {
  "IDENTITY.md": "who the agent is",
  "SOUL.md": "how it is",
  "USER.md": "who you are",
  "AGENTS.md": "how it works",
  "TOOLS.md": "what it knows of its tools",
  "MEMORY.md": "what it always has in mind",
  "HEARTBEAT.md": "what it looks after",
  "BOOTSTRAP.md": "its first conversation",
  "BOOT.md": "what it does when it starts",
};

export default function FilesPage({ query }: PageProps) {
  const agent = useChosenAgent();
  const path = query.get("path");
  return (
    <>
      <MemoryHead />
      {agent !== undefined && (
        <div className={path === null ? "split" : "split opened"}>
          <FileList agent={agent} open={path} />
          {path === null ? (
            <Nothing>Choose a file. What you save is in force at the next turn; the text before is kept.</Nothing>
          ) : (
            <Opened key={`${agent} ${path}`} agent={agent} path={path} line={Number(query.get("line") ?? 0)} />
          )}
        </div>
      )}
    </>
  );
}

function FileList({ agent, open }: { agent: string; open: string | null }) {
  const { data, error, refetch } = useApi("/api/workspace/files", { query: { agentId: agent } }, { live: ["memory."] });
  if (error !== null) return <Trouble problem={error} again={() => void refetch()} />;
  if (data === undefined) return <Skeleton rows={8} what="the files" />;
  const missing = Object.keys(MEANING).filter((name) => name !== "BOOTSTRAP.md" && name !== "BOOT.md" && !data.some((file) => file.path === name));
  const to = (path: string): string => `/memory/files?agent=${encodeURIComponent(agent)}&path=${encodeURIComponent(path)}`;
  return (
    <FilePick
      files={[
        ...data.map(({ path, updatedAt }) => ({ name: path, to: to(path), about: MEANING[path] ?? <Ago at={updatedAt} />, open: path === open })),
        ...missing.map((name) => ({ name, to: to(name), about: `not there yet: ${MEANING[name] ?? ""}`, open: name === open, missing: true })),
      ]}
    />
  );
}

function Opened({ agent, path, line }: { agent: string; path: string; line: number }) {
  const owner = isOwner(useLoggedIn());
  const asked = useApi("/api/workspace/file", { query: { path, agentId: agent } });
  return (
    <AskedFile
      path={path}
      line={line}
      asked={asked}
      mayEdit={owner}
      save={async (text, before) => {
        const saved = await api.put("/api/workspace/file", { path, text, before, agentId: agent });
        void askAgain(["/api/workspace/files", "/api/workspace/history", "/api/workspace/file"]);
        return saved;
      }}
      readAgain={() => api.get("/api/workspace/file", { query: { path, agentId: agent } })}
      below={(now, take) => <History agent={agent} path={path} now={now} onTake={take} />}
    />
  );
}

interface HistoryProps {
  agent: string;
  path: string;
  now: WorkspaceTextOut | null;
  onTake: ((text: string) => void) | undefined;
}

function History({ agent, path, now, onTake }: HistoryProps) {
  const { data = [] } = useApi("/api/workspace/history", { query: { path, agentId: agent } });
  const [open, setOpen] = useState<number>();
  const before = data.filter((version) => version.digest !== now?.digest);
  return (
    <section className="history" aria-label="History">
      <h3>History</h3>
      {before.length === 0 && <p className="quiet">No earlier text is kept yet. Each save keeps the one before.</p>}
      <ul>
        {before.map((version) => (
          <li key={version.at}>
            <div className="row">
              <Ago at={version.since} /> <span className="quiet">{version.bytes.toLocaleString()} bytes</span>
              <button type="button" className="quiet-button" aria-expanded={open === version.at} onClick={() => setOpen(open === version.at ? undefined : version.at)}>
                Compare with now
              </button>
            </div>
            {open === version.at && <Version agent={agent} path={path} version={version} now={now?.text ?? ""} onTake={onTake} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface VersionProps {
  agent: string;
  path: string;
  version: VersionOut;
  now: string;
  onTake: ((text: string) => void) | undefined;
}

function Version({ agent, path, version, now, onTake }: VersionProps) {
  const { data, error } = useApi("/api/workspace/file", { query: { path, agentId: agent, at: version.at } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={3} what="that version" />;
  return (
    <Suspense fallback={<Skeleton rows={3} what="the difference" />}>
      <Compared before={data.text} after={now} label="What changed since" />
      {onTake !== undefined && (
        <button type="button" onClick={() => onTake(data.text)}>
          Put this text back
        </button>
      )}
    </Suspense>
  );
}
