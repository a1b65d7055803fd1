/** The config as a form, made from its JSON Schema, in the words of its docs. */
import "./manage.css";

import { useMemo, useState } from "react";

import { api } from "../api/client";
import { asProblem, type Problem } from "../api/problem";
import { askAgain, useApi } from "../live/query";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { toast } from "../parts/toast";
import { Quoted } from "../parts/verbatim";
import { Link, type PageProps } from "../router/router";
import { patchOf, plain, readAs, type Schema, type Setting, settingsOf, shownAs, valueAt } from "./schema-form";
import { SettingsHead } from "./settings-head";

const MASK = "***";
const HIDDEN = new Set(["compaction", "contextPruning", "heartbeat", "continuation", "subagents"]);

export default function SettingsPage({ query }: PageProps) {
  const schema = useApi("/api/config/schema");
  const config = useApi("/api/config", {}, { live: ["config."] });
  const error = schema.error ?? config.error;
  return (
    <>
      <SettingsHead />
      {error !== null && <Trouble problem={error} />}
      {(schema.data === undefined || config.data === undefined) && error === null && <Skeleton rows={10} what="the settings" />}
      {config.data?.error != null && (
        <p className="note">The file as it stands is not in use, the last good one is: {config.data.error}</p>
      )}
      {schema.data !== undefined && config.data !== undefined && (
        <Sections root={schema.data.jsonSchema} config={config.data.config} chosen={query.get("section") ?? "agents"} words={query.get("q") ?? ""} />
      )}
    </>
  );
}

interface SectionsProps {
  root: Schema;
  config: Record<string, unknown>;
  chosen: string;
  words: string;
}

function Sections({ root, config, chosen, words: given }: SectionsProps) {
  const [words, setWords] = useState(given);
  const names = useMemo(() => Object.keys(root.properties ?? {}).filter((name) => !HIDDEN.has(name)), [root]);
  const all = useMemo(() => names.flatMap((name) => settingsOf(root, name)), [root, names]);
  const wanted = words.trim().toLowerCase();
  const shown = wanted === "" ? all.filter((one) => one.path[0] === chosen) : all.filter((one) => `${one.path.join(".")} ${one.description}`.toLowerCase().includes(wanted));
  return (
    <div className="split opened">
      <div>
        <input
          type="search"
          aria-label="Find a setting"
          placeholder={`Find one of ${all.length} settings`}
          value={words}
          onChange={(event) => setWords(event.target.value)}
        />
        <nav className="pick more" aria-label="Sections">
          <ul>
            {names.map((name) => (
              <li key={name}>
                <Link to={`/settings?section=${name}`} aria-current={wanted === "" && name === chosen ? "page" : undefined} onClickCapture={() => setWords("")}>
                  <span>{name}</span>
                  <small>{wordsOf(root, name)}</small>
                </Link>
              </li>
            ))}
          </ul>
        </nav>
      </div>
      <Form key={`${chosen} ${wanted === "" ? "" : "found"}`} settings={shown.slice(0, 200)} config={config} />
    </div>
  );
}

/** What a section is about, where the docs say more than its name. */
function wordsOf(root: Schema, name: string): string {
  const given = root.properties?.[name];
  const words = given?.description ?? root.$defs?.[given?.$ref?.replace("#/$defs/", "") ?? ""]?.description ?? "";
  return words.replace(/^The /, "").toLowerCase() === `${name.toLowerCase()}.` ? "" : words;
}

function Form({ settings, config }: { settings: readonly Setting[]; config: Record<string, unknown> }) {
  const [typed, setTyped] = useState<ReadonlyMap<string, string>>(new Map());
  const [wrong, setWrong] = useState<ReadonlyMap<string, string>>(new Map());
  const [problem, setProblem] = useState<Problem>();
  const [busy, setBusy] = useState(false);

  function change(setting: Setting, text: string | undefined): void {
    const next = new Map(typed);
    const name = setting.path.join(".");
    if (text === undefined || text === shownAs(setting, valueAt(config, setting.path))) next.delete(name);
    else next.set(name, text);
    setTyped(next);
  }

  async function save(): Promise<void> {
    const values = new Map<string, unknown>();
    const faults = new Map<string, string>();
    for (const setting of settings) {
      const name = setting.path.join(".");
      const text = typed.get(name);
      if (text === undefined) continue;
      try {
        values.set(name, setting.kind === "switch" ? text === "true" : readAs(setting, text));
      } catch (error) {
        faults.set(name, (error as Error).message);
      }
    }
    setWrong(faults);
    if (faults.size > 0) return;
    setBusy(true);
    try {
      await api.patch("/api/config", patchOf(values));
      toast(values.size === 1 ? "The setting is in force." : `${values.size} settings are in force.`);
      setTyped(new Map());
      setProblem(undefined);
      void askAgain(["/api/config"]);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      setBusy(false);
    }
  }

  if (settings.length === 0) return <Nothing>No setting has these words.</Nothing>;
  return (
    <form
      className="settings"
      aria-label="Settings"
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      {settings.map((setting) => {
        const name = setting.path.join(".");
        return (
          <Field
            key={name}
            setting={setting}
            value={valueAt(config, setting.path)}
            typed={typed.get(name)}
            wrong={wrong.get(name)}
            onType={(text) => change(setting, text)}
          />
        );
      })}
      {problem !== undefined && <Trouble problem={problem} />}
      {typed.size > 0 && (
        <div className="save-bar" role="status">
          <span className="grow">{typed.size === 1 ? "One change is" : `${typed.size} changes are`} not saved.</span>
          <button type="button" onClick={() => setTyped(new Map())}>
            Undo all
          </button>
          <button type="submit" className="primary" disabled={busy}>
            Save
          </button>
        </div>
      )}
    </form>
  );
}

interface FieldProps {
  setting: Setting;
  value: unknown;
  typed: string | undefined;
  wrong: string | undefined;
  onType: (text: string | undefined) => void;
}

function Field({ setting, value, typed, wrong, onType }: FieldProps) {
  const id = `setting-${setting.path.join("-")}`;
  const name = setting.path.join(".");
  const text = typed ?? shownAs(setting, value);
  const usual = JSON.stringify(value ?? null) === JSON.stringify(setting.fallback ?? null);
  return (
    <div className={typed === undefined ? "setting" : "setting changed"}>
      <label htmlFor={id}>{name}</label>
      <p className="quiet" id={`${id}-words`}>
        <Quoted text={`${setting.description} ${fallbackWords(setting)}`} />
      </p>
      <div className="setting-side">
        <Control id={id} setting={setting} text={text} onType={onType} />
        <p className="quiet setting-state">
          {wrong !== undefined ? <span className="bad">{wrong}</span> : typed !== undefined ? "changed" : usual ? "default" : value === MASK ? "set; a secret is not shown" : "set"}
          {setting.kind !== "switch" && !usual && typed === undefined && setting.path.length > 1 && (
            <button type="button" className="quiet-button" onClick={() => onType("")}>
              Back to the default<span className="spoken">: {name}</span>
            </button>
          )}
        </p>
      </div>
    </div>
  );
}

function Control({ id, setting, text, onType }: { id: string; setting: Setting; text: string; onType: (text: string) => void }) {
  const common = { id, "aria-describedby": `${id}-words` };
  switch (setting.kind) {
    case "switch":
      return <input {...common} type="checkbox" className="switch" checked={text === "true"} onChange={(event) => onType(String(event.target.checked))} />;
    case "choice":
      return (
        <select {...common} value={text} onChange={(event) => onType(event.target.value)}>
          {(setting.optional || text === "") && <option value="">not set</option>}
          {setting.options.map((option) => (
            <option key={option} value={option}>
              {option}
            </option>
          ))}
        </select>
      );
    case "lines":
    case "json":
      return (
        <textarea
          {...common}
          className="code"
          rows={Math.min(14, Math.max(2, text.split("\n").length))}
          placeholder={setting.kind === "lines" ? "one a line" : "JSON"}
          value={text}
          onChange={(event) => onType(event.target.value)}
        />
      );
    default:
      return <input {...common} type="text" inputMode={setting.kind === "number" ? "decimal" : "text"} value={text} onChange={(event) => onType(event.target.value)} />;
  }
}

function fallbackWords({ fallback, kind }: Setting): string {
  if (fallback === undefined || fallback === null || fallback === "") return "";
  if (kind === "json" || (Array.isArray(fallback) && fallback.length === 0)) return "";
  return `Default: ${Array.isArray(fallback) ? fallback.join(", ") : plain(fallback)}.`;
}
