/** All that a person may change about a topic. Only what was changed is sent. */
import "./topic-form.css";

import { type SyntheticEvent, useState } from "react";

import { Confirm } from "../../parts/confirm";
import { endOfDay, fieldOf, inDays } from "../../parts/day";
import { live } from "../../live/live";
import { topics, useSpaces } from "../places";
import { PRIORITIES, wordFor } from "../statuses";
import { MAX_TITLE, type Priority, type Topic } from "../types";

interface TopicFormProps {
  topic: Topic;
  close: () => void;
  onUp?: (() => void) | undefined;
  onDown?: (() => void) | undefined;
  onDeleted?: () => void;
}

const COLOURS = ["#3f7fbf", "#2f8f6b", "#b7791f", "#c0504d", "#7d5fb2", "#5f6b73"];

interface Fields {
  name: string;
  description: string;
  priority: Priority;
  due: string;
  tags: string;
  spaceId: string;
  color: string;
}

export function TopicForm({ topic, close, onUp, onDown, onDeleted }: TopicFormProps) {
  const before = fieldsOf(topic);
  const [fields, setFields] = useState(before);
  const [begun] = useState(before);
  const spaces = useSpaces().rows;

  function set<K extends keyof Fields>(name: K, value: Fields[K]): void {
    setFields({ ...fields, [name]: value });
  }

  async function submit(event: SyntheticEvent): Promise<void> {
    event.preventDefault();
    const change = changeOf(begun, fields);
    close();
    if (Object.keys(change).length > 0) await topics.edit(topic.id, change);
  }

  function snooze(until: string | null): void {
    close();
    const change: Partial<Topic> = { snoozedUntil: until, status: until === null ? "active" : "snoozed" };
    void topics.edit(topic.id, change);
  }

  async function drop(): Promise<void> {
    if (await topics.delete(topic.id)) onDeleted?.();
  }

  return (
    <form className="topic-form" aria-label={`Edit ${topic.name}`} onSubmit={(event) => void submit(event)}>
      <label className="wide">
        Name
        <input
          type="text"
          autoFocus
          required
          maxLength={MAX_TITLE}
          value={fields.name}
          onChange={(event) => set("name", event.target.value)}
        />
      </label>
      <label className="wide">
        Description
        <textarea
          rows={2}
          value={fields.description}
          onChange={(event) => set("description", event.target.value)}
        />
      </label>
      <label>
        Priority
        <select value={fields.priority} onChange={(event) => set("priority", event.target.value as Priority)}>
          {PRIORITIES.map((priority) => (
            <option key={priority} value={priority}>
              {wordFor(priority)}
            </option>
          ))}
        </select>
      </label>
      <label>
        Due
        <input type="date" value={fields.due} onChange={(event) => set("due", event.target.value)} />
      </label>
      <label>
        Space
        <select value={fields.spaceId} onChange={(event) => set("spaceId", event.target.value)}>
          {spaces.map((space) => (
            <option key={space.id} value={space.id}>
              {space.name}
            </option>
          ))}
        </select>
      </label>
      <label>
        Tags
        <input type="text" value={fields.tags} onChange={(event) => set("tags", event.target.value)} />
      </label>
      <Colours value={fields.color} onChange={(color) => set("color", color)} />
      <div className="row wide">
        <button type="submit" className="primary">
          Save
        </button>
        <button type="button" onClick={close}>
          Cancel
        </button>
        <span className="grow" />
        {onUp !== undefined && (
          <button type="button" onClick={onUp}>
            Move up
          </button>
        )}
        {onDown !== undefined && (
          <button type="button" onClick={onDown}>
            Move down
          </button>
        )}
      </div>
      <Rest topic={topic} snooze={snooze} />
      <div className="row wide">
        {topic.status !== "archived" && (
          <button type="button" onClick={() => void topics.edit(topic.id, { status: "archived" })}>
            Archive
          </button>
        )}
        <Confirm
          label="Delete"
          question="Its tasks go too; what was logged under it stays in the log."
          onConfirm={() => void drop()}
        />
      </div>
    </form>
  );
}

/** Snooze until a moment that is a choice or a date away; wake what is snoozed. */
function Rest({ topic, snooze }: { topic: Topic; snooze: (until: string | null) => void }) {
  const now = live.now();
  if (topic.status === "snoozed") {
    return (
      <div className="row wide">
        <button type="button" onClick={() => snooze(null)}>
          Wake now
        </button>
      </div>
    );
  }
  return (
    <fieldset className="row wide">
      <legend>Snooze</legend>
      <button type="button" onClick={() => snooze(inDays(now, 1, 9))}>
        Until tomorrow
      </button>
      <button type="button" onClick={() => snooze(inDays(now, 7, 9))}>
        For a week
      </button>
      <button type="button" onClick={() => snooze(inDays(now, 30, 9))}>
        For a month
      </button>
      <input
        type="datetime-local"
        aria-label="Snooze until"
        min={fieldOf(new Date(now).toISOString(), true)}
        onChange={(event) => {
          const until = new Date(event.target.value);
          if (until.getTime() > live.now()) snooze(until.toISOString());
        }}
      />
    </fieldset>
  );
}

function Colours({ value, onChange }: { value: string; onChange: (color: string) => void }) {
  return (
    <fieldset className="colours">
      <legend>Colour</legend>
      {["", ...COLOURS].map((color) => (
        <label key={color} title={color === "" ? "No colour" : color}>
          <input
            type="radio"
            name="colour"
            checked={value.toLowerCase() === color}
            onChange={() => onChange(color)}
            aria-label={color === "" ? "No colour" : color}
          />
          <span className="dot large" style={color === "" ? undefined : { background: color }} />
        </label>
      ))}
    </fieldset>
  );
}

function fieldsOf(topic: Topic): Fields {
  return {
    name: topic.name,
    description: topic.description ?? "",
    priority: topic.priority,
    due: fieldOf(topic.dueDate),
    tags: topic.tags.join(", "),
    spaceId: topic.spaceId,
    color: topic.color ?? "",
  };
}

function changeOf(before: Fields, after: Fields): Partial<Topic> {
  const is = (name: keyof Fields): boolean => before[name] !== after[name];
  return {
    ...(is("name") && { name: after.name.trim() }),
    ...(is("description") && { description: after.description === "" ? null : after.description }),
    ...(is("priority") && { priority: after.priority }),
    ...(is("due") && { dueDate: endOfDay(after.due) }),
    ...(is("tags") && { tags: after.tags.split(",").map((tag) => tag.trim()).filter((tag) => tag !== "") }),
    // New tags alone would move the topic to the first space that they name.
    ...((is("spaceId") || is("tags")) && { spaceId: after.spaceId }),
    ...(is("color") && { color: after.color === "" ? null : after.color }),
  };
}
