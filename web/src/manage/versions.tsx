/** How the config, or a skill, was before: who changed it, what that changed, and back to any of it. */
import { lazy, Suspense, useState } from "react";

import { api } from "../api/client";
import type { SharedVersionOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { Skeleton, Trouble } from "../parts/states";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";

const CodeBlock = lazy(() => import("../parts/code").then(({ CodeBlock: block }) => ({ default: block })));
const CONFIG = ["/api/config/versions", "/api/config/text", "/api/config"] as const;
const SKILLS = ["/api/skills/versions", "/api/skills"] as const;

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
  return <Versions versions={data.versions} again={SKILLS} back={back} />;
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
