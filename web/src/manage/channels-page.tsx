/** Where people write from: how each channel stands, who waits to be let in, what is on its way and what failed. */
import "./manage.css";

import { useState } from "react";

import { api } from "../api/client";
import type { ChannelOut, DeliveryOut, PairingOut } from "../api/schema";
import { useApi } from "../live/query";
import { attempt } from "../parts/attempt";
import { Choice } from "../parts/choice";
import { Facts } from "../parts/facts";
import { Icon } from "../parts/icon";
import { Nothing, Skeleton, Trouble } from "../parts/states";
import { type Column, Table } from "../parts/table";
import { Ago } from "../parts/time";
import { Told } from "../parts/verbatim";
import { Link } from "../router/router";
import { AddChannel } from "./add-channel";

const STATES = { connected: "tag good", unconnected: "tag bad", disabled: "tag" } as const;
const SHOWN = [
  ["", "All"],
  ["failed", "Failed"],
  ["pending", "On their way"],
  ["delivered", "Arrived"],
] as const;

export default function ChannelsPage() {
  const [adding, setAdding] = useState(false);
  const { data, error, refetch } = useApi("/api/channels", {}, { live: ["delivery.", "config.", "turn."] });
  return (
    <>
      <div className="head">
        <h1>Channels</h1>
        <div className="row">
          <Link className="quiet-button" to="/settings?section=channels">
            <Icon name="gear" /> Settings of channels
          </Link>
          <button type="button" className="primary" aria-expanded={adding} onClick={() => setAdding(!adding)}>
            <Icon name="plus" /> Add a channel
          </button>
        </div>
      </div>
      {adding && <AddChannel close={() => setAdding(false)} />}
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={4} what="the channels" />}
      {data?.length === 0 && (
        <Nothing>
          No channel is set up. Through one, people write to your agents from where they are: chat services, webhooks, your own program.{" "}
          <button type="button" onClick={() => setAdding(true)}>
            Add one
          </button>
        </Nothing>
      )}
      <ul className="cards beside" aria-label="Channels">
        {data?.map((channel) => (
          <li key={channel.name}>
            <Channel channel={channel} />
          </li>
        ))}
      </ul>
      <Pairings />
      <Deliveries />
    </>
  );
}

function Channel({ channel }: { channel: ChannelOut }) {
  const asWord = (at: string | null) => (at === null ? "never" : <Ago at={at} />);
  return (
    <article className={channel.state === "disabled" ? "card over" : "card"}>
      <header>
        <h2>{channel.name}</h2>
        <span className={STATES[channel.state]}>{channel.state === "unconnected" ? "not connected" : channel.state}</span>
      </header>
      <Facts
        rows={[
          ["Heard last", asWord(channel.lastInboundAt)],
          ["Spoke last", asWord(channel.lastOutboundAt)],
          ["On their way", String(channel.pendingDeliveries)],
          ["Strangers", `direct: ${channel.dmPolicy}, groups: ${channel.groupPolicy}`],
          ...(channel.accounts.length > 0 ? [["Accounts", channel.accounts.join(", ")] as const] : []),
        ]}
      />
    </article>
  );
}

function Pairings() {
  const { data = [], error } = useApi("/api/pairings", {}, { live: ["delivery.", "channel.", "log."] });
  const waiting = data.filter((one) => one.status === "waiting");
  const paired = data.filter((one) => one.status === "approved");
  if (error !== null) return <Trouble problem={error} />;
  if (data.length === 0) return null;
  return (
    <section aria-labelledby="pairing-title">
      <h2 id="pairing-title" className="more">
        Who may write
      </h2>
      <ul className="cards">
        {waiting.map((one) => (
          <li key={one.code}>
            <Waiting one={one} />
          </li>
        ))}
      </ul>
      {paired.length > 0 && (
        <ul className="plain-list" aria-label="Let in">
          {paired.map((one) => (
            <li key={`${one.channel} ${one.sender}`}>
              <Told text={one.label ?? one.sender} /> <span className="quiet">on {one.channel}</span> {one.owner && <span className="tag">you</span>}
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

function Waiting({ one }: { one: PairingOut }) {
  const decide = (approve: boolean, owner = false): void =>
    void attempt(
      () => api.post("/api/pairings/{code}", { approve, owner }, { path: { code: one.code ?? "" } }),
      ["/api/pairings", "/api/channels"],
      approve ? "They are let in and told so." : "They are not let in.",
    );
  return (
    <article className="card">
      <header>
        <h3>
          <Told text={one.label ?? one.sender} />
        </h3>
        <span className="quiet">
          writes on {one.channel} as <code>{one.sender}</code>, <Ago at={one.createdAt} />
        </span>
      </header>
      <p>
        Their code is <code>{one.code}</code>. Let them in only if they told it to you themselves.
      </p>
      <div className="row decide">
        <button type="button" className="primary" onClick={() => decide(true)}>
          Let them in
        </button>
        <button type="button" onClick={() => decide(true, true)}>
          This is me
        </button>
        <button type="button" className="danger" onClick={() => decide(false)}>
          Refuse
        </button>
      </div>
    </article>
  );
}

function Deliveries() {
  const [status, setStatus] = useState<(typeof SHOWN)[number][0]>("");
  const { data, error, refetch } = useApi("/api/deliveries", { query: { limit: 100, ...(status === "" ? {} : { status }) } }, { live: ["delivery."] });
  return (
    <section aria-labelledby="deliveries-title">
      <div className="head more">
        <h2 id="deliveries-title">Deliveries</h2>
        <Choice label="Which deliveries" value={status} options={SHOWN} onChange={setStatus} />
      </div>
      {error !== null && <Trouble problem={error} again={() => void refetch()} />}
      {data === undefined && error === null && <Skeleton rows={4} what="the deliveries" />}
      {data?.length === 0 && <Nothing>Nothing was sent out{status === "" ? " yet" : " that stands so"}. What agents say to people on channels appears here.</Nothing>}
      {data !== undefined && data.length > 0 && <Table rows={data} keyOf={(row) => row.id} columns={COLUMNS} />}
    </section>
  );
}

const STANDS = { pending: ["on its way", "tag"], delivered: ["arrived", "tag good"], failed: ["given up", "tag bad"] } as const;
const COLUMNS: readonly Column<DeliveryOut>[] = [
  { name: "State", cell: (row) => <span className={STANDS[row.status][1]}>{STANDS[row.status][0]}</span> },
  { name: "To", named: true, as: "code", cell: (row) => row.target },
  { name: "Tries", named: true, cell: (row) => row.attempts + (row.status === "delivered" ? 1 : 0) },
  { name: "When", named: true, as: "nowrap", cell: (row) => <Ago at={row.updatedAt} /> },
  { name: "Why", as: "quiet", cell: (row) => row.error !== null && <Told text={row.error} /> },
  {
    name: "Do",
    as: "does",
    cell: (row) =>
      row.status === "failed" && (
        <button
          type="button"
          onClick={() => void attempt(() => api.post("/api/deliveries/{id}/retry", undefined, { path: { id: row.id } }), ["/api/deliveries"], "It is on its way again.")}
        >
          <Icon name="again" /> Try again
        </button>
      ),
  },
];
