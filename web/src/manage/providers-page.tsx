/** Where models come from: what the config names, who is logged in, and what was found on this machine. */
import "./manage.css";

import { useState } from "react";

import { api } from "../api/client";
import type { ProviderOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Confirm } from "../parts/confirm";
import { Facts } from "../parts/facts";
import { Icon } from "../parts/icon";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { Link } from "../router/router";
import { Keys, LogIn } from "./provider-login";
import { SettingsHead } from "./settings-head";

export default function ProvidersPage() {
  const { data, error, refetch } = useApi("/api/providers", {}, { live: ["config."] });
  const models = useApi("/api/models");
  return (
    <>
      <SettingsHead />
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={5} what="the providers" />}
      {data?.some(isUsed) === false && (
        <Nothing>
          No provider is set up; keys in the environment and servers on this machine are found by themselves.{" "}
          <Link to="/settings?section=models">Add one</Link>
        </Nothing>
      )}
      <ul className="cards" aria-label="Providers">
        {data?.filter(isUsed).map((provider) => (
          <li key={provider.name}>
            <Provider provider={provider} />
          </li>
        ))}
      </ul>
      {data !== undefined && <Others providers={data.filter((one) => !isUsed(one))} />}
      {models.data !== undefined && (
        <section className="panel more">
          <div className="head">
            <h2>Where models were looked for</h2>
            <button
              type="button"
              className="quiet-button"
              onClick={() => void attempt(() => api.get("/api/models", { query: { refresh: true } }), ["/api/models"], "Looked again.")}
            >
              <Icon name="again" /> Look again
            </button>
          </div>
          <p>
            {models.data.connected ? (
              <>
                <code>{models.data.default}</code> answers where nothing else is chosen.
              </>
            ) : (
              "No model is connected; what is asked is answered from memory alone."
            )}
          </p>
          <ul className="plain-list quiet">
            {models.data.lookedAt.map((line) => (
              <li key={line}>{line}</li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

/** In the config, or with something kept for it. */
function isUsed(provider: ProviderOut): boolean {
  return provider.configured || provider.keys.length > 0;
}

/** Those that come with Holdfast and only lack a key. */
function Others({ providers }: { providers: readonly ProviderOut[] }) {
  const [name, setName] = useState("");
  const chosen = providers.find((one) => one.name === name);
  return (
    <section className="panel more fields" aria-label="Add a provider">
      <h2>Add a provider</h2>
      <div className="segmented" role="group" aria-label="Provider">
        {providers.map((one) => (
          <button key={one.name} type="button" aria-pressed={one.name === name} onClick={() => setName(one.name)}>
            {one.name}
          </button>
        ))}
      </div>
      {chosen === undefined ? (
        <p className="quiet">
          Choose one to enter its key. It is kept for this home alone, readable by its owner only. Another server:{" "}
          <Link to="/settings?section=models">add it in the settings</Link>.
        </p>
      ) : (
        <Keys key={name} provider={chosen} />
      )}
    </section>
  );
}

function Provider({ provider }: { provider: ProviderOut }) {
  const profile = (id: string): string => id.slice(provider.name.length + 1);
  return (
    <article className="card">
      <header>
        <h2>{provider.name}</h2>
        <span className="quiet">{provider.api}</span>
        <span className={provider.hasKey || provider.keys.length > 0 || provider.logins.some((one) => !one.over) ? "tag good" : "tag"}>
          {provider.hasKey || provider.keys.length > 0 ? "has a key" : provider.logins.length > 0 ? "logged in" : "no key"}
        </span>
      </header>
      <Facts
        rows={[
          ...(provider.baseUrl === null ? [] : [["Address", <code key="url">{provider.baseUrl}</code>] as const]),
          ["Models", provider.models.length === 0 ? "those it lists" : provider.models.join(", ")],
        ]}
      />
      {provider.logins.map((one) => (
        <div key={one.id} className="row">
          <span className="grow">
            Login <strong>{profile(one.id)}</strong>{" "}
            <span className={one.over ? "bad" : "quiet"}>{one.over ? "is over: log in again" : one.refreshable ? "is renewed by itself" : "holds"}</span>
          </span>
          <Confirm
            label="Forget"
            question="You log in again to use it."
            onConfirm={() =>
              void attempt(
                () => api.delete("/api/providers/{id}/logins/{profile}", { path: { id: provider.name, profile: profile(one.id) } }),
                ["/api/providers"],
                "The login is forgotten.",
              )
            }
          />
        </div>
      ))}
      <Keys provider={provider} />
      {provider.oauth && <LogIn name={provider.name} />}
    </article>
  );
}
