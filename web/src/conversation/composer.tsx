/** Where a person writes: to the agent, or a note that stays with the place. */
import { type ClipboardEvent, type DragEvent, type KeyboardEvent, useEffect, useId, useRef, useState } from "react";

import { api } from "../api/client";
import { asProblem } from "../api/problem";
import { useApi } from "../live/query";
import { Icon } from "../parts/icon";
import { toast } from "../parts/toast";
import { Told } from "../parts/verbatim";
import { type Attached, attached, withTexts } from "./attachments";
import { CommandList, useCommands } from "./commands";
import { begunWith, tookOver, useDraft } from "./draft";
import { type Enclosure, send } from "./outbox";

/** What is to stand in the field, such as a message that is to be sent otherwise; each count is another. */
export interface Seed {
  text: string;
  enclosed: readonly Enclosure[];
  count: number;
}

interface ComposerProps {
  sessionKey: string;
  /** Whom it goes to, for a session that is not there yet. */
  agentId: string | null;
  /** Where a note is kept; without one nothing is. */
  note?: { topicId: string; taskId: string | null } | undefined;
  mayAsk: boolean;
  running: boolean;
  onStop: () => void;
  seed: Seed;
}

const NOTHING: Attached = { enclosed: [], texts: [], refused: [] };
const USUAL = { maxBytes: 10_000_000, maxFiles: 8 };

export function Composer({ sessionKey, agentId, note, mayAsk, running, onStop, seed }: ComposerProps) {
  const { text, write } = useDraft(sessionKey, mayAsk);
  const [files, setFiles] = useState<Attached>(() => ({ ...NOTHING, enclosed: [...begunWith(sessionKey)] }));
  const [sown, setSown] = useState(seed.count);
  if (seed.count !== sown) {
    setSown(seed.count);
    setFiles({ ...NOTHING, enclosed: [...seed.enclosed] });
  }
  const [over, setOver] = useState(false);
  const [mode, setMode] = useState<"steer" | "queue" | "interrupt">("steer");
  const [model, setModel] = useChosenModel(sessionKey);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const commands = useCommands(mayAsk);
  const list = useId();
  const empty = text.trim() === "" && files.enclosed.length === 0 && files.texts.length === 0;
  const { data: limits = USUAL } = useApi("/api/attachments/policy");

  useEffect(() => {
    if (seed.count === 0) return;
    write(seed.text);
    field.current?.focus();
    // Only a new seed is one.
    // eslint-disable-next-line react-hooks/exhaustive-deps
  }, [seed.count]);

  useEffect(() => tookOver(sessionKey), [sessionKey]);

  function ask(): void {
    if (empty || !mayAsk) return;
    void send({
      sessionKey,
      text: withTexts(text, files.texts),
      enclosed: files.enclosed,
      agentId,
      model: model === "" ? null : model,
      mode: running ? mode : null,
    });
    write("");
    setFiles(NOTHING);
  }

  async function keep(): Promise<void> {
    if (note === undefined || text.trim() === "") return;
    const place = { topicId: note.topicId, ...(note.taskId === null ? {} : { taskId: note.taskId }) };
    try {
      await api.post("/api/log", {
        type: "note",
        content: text,
        agentId: "user",
        classificationStatus: "classified",
        ...place,
      });
      write("");
      toast("Note kept.");
    } catch (error) {
      toast(asProblem(error).message, { bad: true });
    }
  }

  async function take(given: FileList | null): Promise<void> {
    if (given === null || given.length === 0) return;
    const found = await attached([...given], files.enclosed, limits);
    setFiles((old) => ({
      enclosed: [...old.enclosed, ...found.enclosed],
      texts: [...old.texts, ...found.texts],
      refused: [],
    }));
    for (const why of found.refused) toast(why, { bad: true });
  }

  function pressed(event: KeyboardEvent): void {
    if (commands.pressed(event, text, write)) return;
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (mayAsk) ask();
    else void keep();
  }

  function pasted(event: ClipboardEvent): void {
    if (event.clipboardData.files.length === 0 || !mayAsk) return;
    event.preventDefault();
    void take(event.clipboardData.files);
  }

  function dropped(event: DragEvent): void {
    event.preventDefault();
    setOver(false);
    void take(event.dataTransfer.files);
  }

  const shown = commands.shown(text);
  return (
    <form
      className={over ? "composer over" : "composer"}
      aria-label="Write"
      onSubmit={(event) => event.preventDefault()}
      onDragOver={(event) => {
        if (!mayAsk || !event.dataTransfer.types.includes("Files")) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={dropped}
    >
      {shown.length > 0 && <CommandList id={list} shown={shown} at={commands.at} onChoose={(name) => write(`/${name} `)} />}
      <Files files={files} onChange={setFiles} />
      <textarea
        ref={field}
        rows={1}
        dir="auto"
        aria-label={mayAsk ? "Message" : "Note"}
        placeholder={mayAsk ? "Write a message, or / for commands" : "Write a note"}
        role={shown.length > 0 ? "combobox" : undefined}
        aria-expanded={shown.length > 0 ? true : undefined}
        aria-controls={shown.length > 0 ? list : undefined}
        aria-activedescendant={shown.length > 0 ? `${list}-${commands.at}` : undefined}
        value={text}
        onChange={(event) => write(event.target.value)}
        onKeyDown={pressed}
        onPaste={pasted}
      />
      <div className="composer-row">
        {mayAsk && (
          <>
            <button type="button" className="quiet-button" onClick={() => picker.current?.click()}>
              <Icon name="clip" /> <span className="beside-sign">Attach</span>
              <span className="spoken">files</span>
            </button>
            <input
              ref={picker}
              type="file"
              multiple
              hidden
              aria-label="Files to attach"
              onChange={(event) => {
                void take(event.target.files);
                event.target.value = "";
              }}
            />
            <ModelChoice chosen={model} onChange={setModel} />
          </>
        )}
        <span className="grow" />
        {note !== undefined && (
          <button type="button" className="quiet-button" disabled={text.trim() === ""} onClick={() => void keep()}>
            <Icon name="note" /> <span className="beside-sign">Keep as note</span>
            <span className="only-phone" aria-hidden="true">
              Note
            </span>
          </button>
        )}
        {running && mayAsk && (
          <>
            <select aria-label="When it is heard" value={mode} onChange={(event) => setMode(event.target.value as typeof mode)}>
              <option value="steer">Now, into this turn</option>
              <option value="queue">After this turn</option>
              <option value="interrupt">Instead of this turn</option>
            </select>
            <button type="button" className="stop-button" onClick={onStop}>
              <Icon name="stop" filled /> Stop
            </button>
          </>
        )}
        {mayAsk && (
          <button type="button" className="send-button" disabled={empty} onClick={ask}>
            <Icon name="up" /> Send
          </button>
        )}
      </div>
    </form>
  );
}

function Files({ files, onChange }: { files: Attached; onChange: (files: Attached) => void }) {
  const all = [...files.enclosed.map((file) => file.name), ...files.texts.map((file) => file.name)];
  if (all.length === 0) return null;
  function without(index: number): void {
    const enclosed = files.enclosed.filter((_, at) => at !== index);
    const texts = files.texts.filter((_, at) => at + files.enclosed.length !== index);
    onChange({ enclosed, texts, refused: [] });
  }
  return (
    <ul className="chips" aria-label="Goes along">
      {all.map((name, index) => (
        <li key={`${index} ${name}`} className="chip">
          <Sign of={files.enclosed[index]} />
          <Told text={name} />
          <button type="button" className="quiet-button" aria-label={`Leave out ${name}`} onClick={() => without(index)}>
            <Icon name="close" />
          </button>
        </li>
      ))}
    </ul>
  );
}

function Sign({ of }: { of: Enclosure | undefined }) {
  if (of === undefined || of.mimeType === "") return <Icon name="clip" />;
  return <img src={`data:${of.mimeType};base64,${of.data}`} alt="" />;
}

function ModelChoice({ chosen, onChange }: { chosen: string; onChange: (model: string) => void }) {
  const { data } = useApi("/api/models");
  if (data === undefined || data.models.length < 2) return null;
  return (
    <select className="plain-select" aria-label="Model" value={chosen} onChange={(event) => onChange(event.target.value)}>
      <option value="">{short(data.default)} (default)</option>
      {data.models
        .filter((model) => model.id !== data.default)
        .map((model) => (
          <option key={model.id} value={model.id}>
            {short(model.id)}
          </option>
        ))}
    </select>
  );
}

function short(id: string): string {
  return id.split("/").slice(1).join("/") || id;
}

const MODEL = "holdfast.model.";

/** The model that a person chose for a session in this browser; null for the default. */
export function chosenModel(sessionKey: string): string | null {
  return localStorage.getItem(MODEL + sessionKey);
}

function useChosenModel(sessionKey: string): [string, (model: string) => void] {
  const name = MODEL + sessionKey;
  const [model, setModel] = useState(() => chosenModel(sessionKey) ?? "");
  return [
    model,
    (next) => {
      if (next === "") localStorage.removeItem(name);
      else localStorage.setItem(name, next);
      setModel(next);
    },
  ];
}

