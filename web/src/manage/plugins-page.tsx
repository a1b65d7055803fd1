/** Plugins: how each fares, what it brought, and a switch. */
import "./manage.css";

import { api } from "../api/client";
import type { PluginOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Facts } from "../parts/facts";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Told } from "../parts/verbatim";
import { SettingsHead } from "./settings-head";

export default function PluginsPage() {
  const { data, error, refetch } = useApi("/api/plugins", {}, { live: ["config.", "plugin"] });
  return (
    <>
      <SettingsHead />
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={5} what="the plugins" />}
      {data?.length === 0 && (
        <Nothing>
          No plugins are installed. <code>holdfast plugins install</code> takes a folder or a package.
        </Nothing>
      )}
      <ul className="cards" aria-label="Plugins">
        {data?.map((plugin) => (
          <li key={plugin.id}>
            <Plugin plugin={plugin} />
          </li>
        ))}
      </ul>
    </>
  );
}

function Plugin({ plugin }: { plugin: PluginOut }) {
  const off = plugin.state === "off";
  const bad = plugin.state === "failed" || plugin.state === "failing";
  const brought = Object.entries(plugin.registered).filter(([, names]) => names.length > 0);
  const turn = (): Promise<boolean> =>
    attempt(
      () => api.patch("/api/config", { plugins: { entries: { [plugin.id]: { enabled: off } } } }),
      ["/api/plugins"],
      `${plugin.name} is ${off ? "on" : "off"} from the next start.`,
    );
  return (
    <article className={off ? "card over" : "card"}>
      <header>
        <h2>{plugin.name}</h2>
        <span className="quiet">
          {plugin.version} from {plugin.from}
        </span>
        <span className={bad ? "tag bad" : off ? "tag" : "tag good"}>{plugin.state}</span>
      </header>
      {plugin.description !== "" && (
        <p>
          <Told text={plugin.description} />
        </p>
      )}
      {plugin.reason !== null && (
        <p className={bad ? "trouble" : "quiet"}>
          <Told text={plugin.reason} />
        </p>
      )}
      {plugin.troubles.map((one) => (
        <p key={one} className="note">
          <Told text={one} />
        </p>
      ))}
      <Facts
        rows={[
          ...(brought.length > 0 ? [["Brought", brought.map(([kind, names]) => `${kind}: ${names.join(", ")}`).join("; ")] as const] : []),
          ...(plugin.capabilities.length > 0 ? [["May", plugin.capabilities.join(", ")] as const] : []),
          ...(plugin.slots.length > 0 ? [["Stands for", plugin.slots.join(", ")] as const] : []),
        ]}
      />
      <div className="row">
        <button type="button" onClick={() => void turn()}>
          {off ? "Switch on" : "Switch off"}
        </button>
      </div>
    </article>
  );
}
