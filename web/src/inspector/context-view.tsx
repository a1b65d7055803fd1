/** The X-ray: the window by section, the exact bytes of each message, and what changed since another turn. */
import { lazy, Suspense, useState } from "react";

import type { ContextOut, SectionOut } from "../api/schema";
import { useApi } from "../live/query";
import { CopyButton } from "../parts/copy";
import { Facts } from "../parts/facts";
import { Skeleton, Trouble } from "../parts/states";
import { Plain, Told } from "../parts/verbatim";
import type { ViewProps } from "./inspector";
import { colourOf, share } from "./sections";

const Difference = lazy(() => import("./difference"));

export function ContextView({ sessionKey, number }: ViewProps) {
  const [call, setCall] = useState<number | null>(null);
  const path = { key: sessionKey, number };
  const query = call === null ? {} : { call };
  const { data, error } = useApi("/api/sessions/{key}/turns/{number}/context", { path, query });
  const [against, setAgainst] = useState<number | null>(null);
  const [chosen, setChosen] = useState<SectionOut | null>(null);
  if (error !== null) return <Trouble problem={error} />;
  if (data === undefined) return <Skeleton rows={8} what="the context" />;
  const { manifest } = data;
  return (
    <>
      <WindowBar manifest={manifest} chosen={chosen} onChoose={setChosen} />
      <p className="window-words">
        <strong>{manifest.used.toLocaleString()}</strong> of {manifest.window.toLocaleString()} tokens
        <span className="quiet">
          {" "}
          · {share(manifest.stableTokens, manifest.used)} can be reused from the turn before
        </span>
      </p>
      {manifest.refused !== null && <p className="note">It was not sent: {manifest.refused}</p>}
      {manifest.warnings.length > 0 && (
        <ul className="note" aria-label="To know">
          {manifest.warnings.map((warning) => (
            <li key={warning}>
              <Told text={warning} />
            </li>
          ))}
        </ul>
      )}
      <Sections sections={manifest.sections} chosen={chosen} onChoose={setChosen} used={manifest.used} />
      <Facts
        rows={[
          ["Model", manifest.model],
          ["Engine", manifest.engine],
          ["Made again", data.identical ? "byte by byte the same" : "not the same bytes any more"],
          [
            "Model call",
            <CallChoice key="call" current={manifest.call} onChange={(next) => setCall(next)} chosen={call} />,
          ],
        ]}
      />
      <h3>What changed</h3>
      <div className="row">
        <label htmlFor="against">Compared with turn</label>
        <input
          id="against"
          type="number"
          className="short"
          min={1}
          value={against ?? ""}
          placeholder={String(Math.max(1, number - 1))}
          onChange={(event) => setAgainst(event.target.value === "" ? null : Number(event.target.value))}
        />
        {against === null && number > 1 && (
          <button type="button" onClick={() => setAgainst(number - 1)}>
            Compare with the turn before
          </button>
        )}
      </div>
      {against !== null && against >= 1 && (
        <Suspense fallback={<Skeleton rows={4} what="the difference" />}>
          <Difference sessionKey={sessionKey} from={against} to={data} />
        </Suspense>
      )}
      <h3>Exact bytes</h3>
      <Messages context={data} place={chosen?.place ?? null} />
    </>
  );
}

interface Choosing {
  chosen: SectionOut | null;
  onChoose: (section: SectionOut | null) => void;
}

function WindowBar({ manifest, chosen, onChoose }: { manifest: ContextOut["manifest"] } & Choosing) {
  const scale = Math.max(manifest.window, manifest.used);
  return (
    <div className="window-bar" role="group" aria-label="The window, section by section">
      {manifest.sections
        .filter((section) => section.tokens > 0)
        .map((section, index) => (
          <button
            key={`${index} ${section.name}`}
            type="button"
            className={section.stable ? "slice stable" : "slice"}
            style={{ flexGrow: section.tokens / manifest.used, background: colourOf(section) }}
            aria-pressed={chosen?.name === section.name}
            aria-label={`${section.name}: ${section.tokens.toLocaleString()} tokens`}
            title={`${section.name}: ${section.tokens.toLocaleString()} tokens`}
            onClick={() => onChoose(chosen?.name === section.name ? null : section)}
          />
        ))}
      <span className="spoken">{share(scale - manifest.used, scale)} of the window is free.</span>
    </div>
  );
}

function Sections({ sections, chosen, onChoose, used }: { sections: readonly SectionOut[]; used: number } & Choosing) {
  return (
    <div className="scroll sections-box" role="region" aria-label="Sections" tabIndex={0}>
      <table className="sections">
        <thead>
          <tr>
            <th scope="col">Section</th>
            <th scope="col" className="number">
              Tokens
            </th>
            <th scope="col">From</th>
            <th scope="col">Trust</th>
            <th scope="col">May be read by</th>
          </tr>
        </thead>
        <tbody>
          {sections.map((section, index) => (
            <tr key={`${index} ${section.name}`} className={chosen?.name === section.name ? "chosen" : undefined}>
              <td>
                <button type="button" className="section-name" onClick={() => onChoose(section)}>
                  <span className="dot" style={{ background: colourOf(section) }} />
                  <Told text={section.name} />
                  {section.count > 1 && <span className="quiet"> ×{section.count}</span>}
                </button>
                {section.stable && <span className="tag">stable</span>}
              </td>
              <td className="number">
                {section.tokens.toLocaleString()}
                <span className="quiet"> {share(section.tokens, used)}</span>
              </td>
              <td className="from" title={section.source}>
                <Told text={section.source} />
              </td>
              <td>{section.trust.replaceAll("_", " ")}</td>
              <td>
                <Told text={section.audience} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function CallChoice({ current, chosen, onChange }: { current: number; chosen: number | null; onChange: (call: number | null) => void }) {
  const most = Math.max(current, chosen ?? 0);
  if (most === 0) return <>the only one</>;
  return (
    <select aria-label="Which model call" value={chosen ?? "last"} onChange={(event) => onChange(event.target.value === "last" ? null : Number(event.target.value))}>
      <option value="last">the last</option>
      {Array.from({ length: most + 1 }, (_, index) => (
        <option key={index} value={index}>
          number {index + 1}
        </option>
      ))}
    </select>
  );
}

/** The messages in the order in which they were sent; those of a chosen place alone. */
function Messages({ context, place }: { context: ContextOut; place: string | null }) {
  const kinds = place === null ? null : KINDS[place];
  const shown = context.messages.filter((message) => kinds == null || kinds.includes(message.kind));
  return (
    <ol className="messages">
      {(place === null || place === "tools") && context.tools.length > 0 && (
        <li>
          <details>
            <summary>
              <span className="tag">tools</span> {context.tools.length} descriptions of tools
            </summary>
            <Plain text={JSON.stringify(context.tools, null, 2)} label="Tools" />
          </details>
        </li>
      )}
      {shown.map((message, index) => (
        <li key={index}>
          <details open={shown.length === 1}>
            <summary>
              <span className="tag">{message.kind.replaceAll("_", " ")}</span>{" "}
              <span className="quiet">
                {message.trust} · {message.content.length.toLocaleString()} characters
              </span>
              <span className="step-gist">
                <Told text={message.content.trim().split("\n", 1)[0] ?? ""} />
              </span>
            </summary>
            <CopyButton text={message.content} />
            <Plain text={message.content} label={`Message, ${message.kind}`} />
          </details>
        </li>
      ))}
    </ol>
  );
}

const KINDS: Record<string, readonly string[]> = {
  tools: [],
  system: ["system"],
  summary: ["summary"],
  history: ["user", "assistant", "tool_result"],
  carrier: ["carrier"],
  input: ["user", "carrier"],
  pending: ["assistant", "tool_result", "user"],
};
