/** The config and the skills of a store: who changed them, what that changed, back to any of it; a skill is edited here too. */
import { lazy, Suspense, useState } from "react";

import { api } from "../api/client";
import type { SharedVersionOut } from "../api/schema";
import { askAgain, useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";

const FileEditor = lazy(() => import("../memory/file-editor").then(({ FileEditor: editor }) => ({ default: editor })));
const CodeBlock = lazy(() => import("../parts/code").then(({ CodeBlock: block }) => ({ default: block })));
const CONFIG = ["/api/config/versions", "/api/config/text", "/api/config"] as const;
const SKILLS = ["/api/skills/versions", "/api/skills"] as const;
/** What stands for a file that is no text, which a field cannot edit. */
const NO_TEXT = /^\(\d+ bytes, sha256 [0-9a-f]{64}\)$/u;

export function ConfigVersions() {
  const { data } = useApi("/api/config/versions", {}, { live: ["config."] });
  if (data?.shared !== true) return null;
  const back = (number: number) => () => api.post("/api/config/versions/{number}/rollback", {}, { path: { number } });
  return <Versions versions={data.versions} again={CONFIG} back={back} />;
}

export function SkillVersions({ name }: { name: string }) {
  const { data } = useApi("/api/skills/versions", { query: { name } }, { live: ["config.", "skill"] });
  if (data?.shared !== true || data.versions.length === 0) return null;
  const back = (number: number) => () => api.post("/api/skills/versions/{name}/{number}/rollback", {}, { path: { name, number } });
  return (
    <>
      <SkillFiles name={name} newest={data.versions[0]?.version ?? 0} />
      <Versions versions={data.versions} again={SKILLS} back={back} />
    </>
  );
}

/** The files of a skill, one at a time; what is saved is a new version in every gateway. */
function SkillFiles({ name, newest }: { name: string; newest: number }) {
  const [open, setOpen] = useState(false);
  return (
    <details className="more" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Edit</summary>
      {open && <SkillEditor name={name} newest={newest} />}
    </details>
  );
}

/** Begun with the version that was newest then: what others publish meanwhile takes no word from the field. */
function SkillEditor({ name, newest }: { name: string; newest: number }) {
  const [number] = useState(newest);
  const { data, error } = useApi("/api/skills/versions/{name}/{number}", { path: { name, number } });
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={6} what="its files" />;
  return <Editing name={name} read={{ files: data.files, version: number }} />;
}

interface SkillRead {
  files: Record<string, string>;
  version: number;
}

function Editing({ name, read }: { name: string; read: SkillRead }) {
  const [base, setBase] = useState(read);
  const [path, setPath] = useState("SKILL.md");
  const paths = Object.keys(base.files).filter((one) => !NO_TEXT.test(base.files[one] ?? ""));

  function took({ files, version }: SkillRead) {
    setBase({ files, version });
    return { text: files[path] ?? "", digest: String(version) };
  }

  async function save(text: string, before: string | null) {
    const made = await api.put("/api/skills/versions/{name}", { files: { [path]: text }, read: Number(before) }, { path: { name } });
    void askAgain(SKILLS);
    return took({ files: { ...base.files, [path]: text }, version: made.version });
  }

  async function readAgain() {
    const { versions } = await api.get("/api/skills/versions", { query: { name, limit: 1 } });
    const number = versions[0]?.version ?? base.version;
    const { files } = await api.get("/api/skills/versions/{name}/{number}", { path: { name, number } });
    return took({ files, version: number });
  }

  return (
    <Suspense fallback={<Skeleton rows={6} what="the editor" />}>
      {paths.length > 1 && (
        <label>
          File{" "}
          <select value={path} onChange={(event) => setPath(event.target.value)}>
            {paths.map((one) => (
              <option key={one}>{one}</option>
            ))}
          </select>
        </label>
      )}
      <FileEditor key={path} path={path} read={{ text: base.files[path] ?? "", digest: String(base.version) }} mayEdit save={save} readAgain={readAgain} />
    </Suspense>
  );
}

interface VersionsProps {
  versions: readonly SharedVersionOut[];
  again: readonly string[];
  back: (number: number) => () => Promise<unknown>;
}

function Versions({ versions, again, back }: VersionsProps) {
  return (
    <details className="more">
      <summary>
        History, {versions.length} {versions.length === 1 ? "version" : "versions"}
      </summary>
      <ul className="deciding" aria-label="Versions">
        {versions.map((one, index) => (
          <Version key={one.version} one={one} newest={index === 0} roll={() => void attempt(back(one.version), again, `Back to version ${one.version}.`)} />
        ))}
      </ul>
    </details>
  );
}

function Version({ one, newest, roll }: { one: SharedVersionOut; newest: boolean; roll: () => void }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
        <summary>
          {one.version} <Told text={one.what} />{" "}
          <span className="quiet">
            <Told text={one.by} />, <Ago at={one.at} />, {one.surface}
          </span>
        </summary>
        {open && <Changed one={one} />}
        {!newest && !one.removed && <Confirm label="Roll back" question={`Make version ${one.version} the newest, in every gateway?`} onConfirm={roll} />}
      </details>
    </li>
  );
}

function Changed({ one }: { one: SharedVersionOut }) {
  return one.name === "" ? <ConfigChange number={one.version} /> : <SkillChange name={one.name} number={one.version} />;
}

function ConfigChange({ number }: { number: number }) {
  const { data, error } = useApi("/api/config/versions/{number}", { path: { number } });
  if (error !== null) return <Trouble problem={error} />;
  return <Diff text={data?.diff} />;
}

function SkillChange({ name, number }: { name: string; number: number }) {
  const { data, error } = useApi("/api/skills/versions/{name}/{number}", { path: { name, number } });
  if (error !== null) return <Trouble problem={error} />;
  return <Diff text={data?.diff} />;
}

function Diff({ text }: { text: string | undefined }) {
  if (text === undefined) return <Skeleton rows={3} what="what it changed" />;
  if (text === "") return <p className="quiet">Nothing is other than before.</p>;
  return (
    <Suspense fallback={<Skeleton rows={3} what="what it changed" />}>
      <CodeBlock language="diff" text={text} />
    </Suspense>
  );
}
