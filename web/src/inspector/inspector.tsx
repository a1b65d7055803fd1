/** Beside a turn: what the model saw, what was recalled, what ran when, and what followed. Each view has an address. */
import "./inspector.css";

import type { ComponentType } from "react";

import { Icon } from "../parts/icon";
import { Tabs } from "../parts/tabs";
import { Link } from "../router/router";
import { ContextView } from "./context-view";
import { FollowUps } from "./follow-ups";
import { RecallView } from "./recall-view";
import { TraceView } from "./trace-view";
import { WhatIfView } from "./what-if";

export interface ViewProps {
  sessionKey: string;
  number: number;
  /** The address of this turn with another view or more of it. */
  to: (change: Record<string, string>) => string;
}

interface InspectorProps extends ViewProps {
  view: string;
  onClose: () => void;
}

type Named = readonly [string, string, ComponentType<ViewProps>];

const FIRST: Named = ["context", "Context", ContextView];
const VIEWS: readonly Named[] = [
  FIRST,
  ["whatif", "What if", WhatIfView],
  ["recall", "Recall", RecallView],
  ["trace", "Trace", TraceView],
  ["followups", "Follow-ups", FollowUps],
];

export default function Inspector({ sessionKey, number, view, to, onClose }: InspectorProps) {
  const [name, , View] = VIEWS.find(([one]) => one === view) ?? FIRST;
  const address = (one: string): string => to({ turn: String(number), view: one });
  return (
    <aside className="inspector" aria-label={`Turn ${number}`}>
      <header className="inspector-head">
        <h2>Turn {number}</h2>
        <Link
          className="quiet-button"
          aria-label="The turn before"
          aria-disabled={number <= 1}
          to={to({ turn: String(Math.max(1, number - 1)), view: name })}
        >
          <Icon name="back" />
        </Link>
        <Link className="quiet-button" aria-label="The next turn" to={to({ turn: String(number + 1), view: name })}>
          <Icon name="next" />
        </Link>
        <span className="grow" />
        <button type="button" className="quiet-button" onClick={onClose}>
          <Icon name="close" /> Close
        </button>
      </header>
      <Tabs
        label="What to look at"
        tabs={VIEWS.map(([one, word]) => ({ to: address(one), name: word }))}
        current={address(name)}
      />
      <div className="inspector-body" tabIndex={0} role="region" aria-label="Details">
        <View key={`${sessionKey} ${number}`} sessionKey={sessionKey} number={number} to={to} />
      </div>
    </aside>
  );
}
