"""Channels: surfaces where people see messages, what comes in from them, and what goes out to them.

channels = Channels(store, threads, config, runs=lambda: runs, children=lambda: spawner, context=lambda: room)
channels.register(runner)
received = await channels.receive(Inbound(surface=Surface("slack", "dm", "U7"), message_id="1", ...))
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

import sqlalchemy as sa
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.agents.approvals import ApprovalStatus, workflow
from holdfast.agents.cron import webhooks
from holdfast.agents.loop import Deliver, Runs, TurnHook
from holdfast.agents.loop.asks import Terms
from holdfast.agents.plugin_hooks import NO_HOOKS, HookBus
from holdfast.agents.subagents.registry import Run
from holdfast.agents.tools.types import Tool
from holdfast.channels import pairing, progress, receiving, records, web
from holdfast.channels.connecting import Adapter, ChannelContext, Connected, Connections
from holdfast.channels.delivering import Deliverer
from holdfast.channels.files import FileRoom
from holdfast.channels.inbound import Changed, Inbound, Pressed
from holdfast.channels.pairing import Pairing
from holdfast.channels.receiving import Children, Receiver, ReceivingParts
from holdfast.channels.records import Received
from holdfast.channels.streaming import Attempt, Streams
from holdfast.channels.surface import Surface
from holdfast.channels.tool import MessageTool
from holdfast.channels.transport import Abilities, BaseChannel, Channel, File, Message, Said, SendFailed
from holdfast.channels.web import WebChannel
from holdfast.channels.webhook import secret_of
from holdfast.clock import iso
from holdfast.config import Config
from holdfast.config.channels import WEB, WEB_CHAT, ChannelConfig
from holdfast.context import ContextRoom, Occasion
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Audience, Origin, Session, Store, Threads, Turn, Tx, outbox
from holdfast.log.agenda import Runner
from holdfast.log.outbox import Delivery, DeliveryStatus, Parcel
from holdfast.log.tables import outbox as table
from holdfast.records import Iso, record

__all__ = [
    "Abilities",
    "BaseChannel",
    "Changed",
    "Channel",
    "ChannelAdmin",
    "ChannelContext",
    "Channels",
    "File",
    "Inbound",
    "Message",
    "Pressed",
    "Received",
    "Said",
    "SendFailed",
    "Surface",
]


class ChannelHook(TurnHook):
    """A spawned session never streams: its words reach people by its parent, or by an explicit target."""

    name = "channels"

    def __init__(self, streams: Streams, connect: Callable[[Surface], Connected]) -> None:
        self._streams = streams
        self._connect = connect

    def begun(self, tx: Tx, turn: Turn, session: Session, terms: Terms) -> None:
        to = terms.deliver
        if to is None or turn.trigger != "user" or terms.occasion is not Occasion.MESSAGE:
            return
        if parse_key(session.key).is_subagent:
            return
        try:
            connected = self._connect(Surface.parse(to.target))
        except (InvalidInput, SendFailed):  # nobody carries it there now; the outbox will say so
            return
        if connected.streams:
            progress.save(tx, progress.get(tx, turn.id))
        if connected.streams or connected.channel.abilities.types:
            attempt = Attempt(turn.id, turn.attempt, session.key, to)
            tx.on_commit(lambda: self._streams.follow(attempt, connected))


MOST_COUNTED: Final = 1_000


@record
class ChannelOut(TypedDict):
    name: str
    state: Literal["connected", "unconnected", "disabled"]
    adapter: str | None
    streaming: str
    dmPolicy: str
    groupPolicy: str
    accounts: list[str]
    lastInboundAt: Iso | None
    lastOutboundAt: Iso | None
    pendingDeliveries: Annotated[int, Field(description="A thousand stands for more, too.")]
    waitingPairings: int


@record
class PairingOut(TypedDict):
    channel: str
    sender: str
    label: str | None
    surface: str
    code: str | None
    status: Literal["waiting", "approved", "denied"]
    owner: bool
    createdAt: Iso
    expiresAt: Iso
    decidedAt: Iso | None


@record
class DeliveryOut(TypedDict):
    id: str
    key: str
    channel: str
    target: str
    status: DeliveryStatus
    attempts: int
    error: str | None
    receipt: str | None
    turnId: str | None
    createdAt: Iso
    updatedAt: Iso
    deliveredAt: Iso | None


def channel_json(tx: Tx, name: str, config: ChannelConfig, connections: Connections) -> ChannelOut:
    """One channel as it stands; a count stops at a thousand."""
    adapter = connections.adapter(name)
    state: Literal["connected", "unconnected", "disabled"] = (
        "disabled" if not config.enabled else "connected" if adapter is not None else "unconnected"
    )
    return {
        "name": name,
        "state": state,
        "adapter": adapter,
        "streaming": config.streaming,
        "dmPolicy": config.dm_policy,
        "groupPolicy": config.group_policy,
        "accounts": sorted(config.accounts),
        "lastInboundAt": _iso(web.last_inbound(tx) if name == WEB else records.last_arrival(tx, name)),
        "lastOutboundAt": _iso(progress.last_sent(tx, name)),
        "pendingDeliveries": pending(tx, name),
        "waitingPairings": len(pairing.listing(tx, channel=name)),
    }


def pending(tx: Tx, channel: str) -> int:
    waiting = table.c.status == sa.literal_column("'pending'"), table.c.kind == channel
    some = sa.select(table.c.id).where(*waiting).limit(MOST_COUNTED)
    return int(tx.conn.execute(sa.select(sa.func.count()).select_from(some.subquery())).scalar() or 0)


def delivery_json(delivery: Delivery) -> DeliveryOut:
    """The state of a delivery; not its words, which are in the log."""
    return {
        "id": delivery.id,
        "key": delivery.key,
        "channel": delivery.kind,
        "target": delivery.target,
        "status": delivery.status,
        "attempts": delivery.attempts,
        "error": delivery.error,
        "receipt": delivery.receipt,
        "turnId": delivery.payload.get("turnId"),
        "createdAt": iso(delivery.created_at),
        "updatedAt": iso(delivery.updated_at),
        "deliveredAt": _iso(delivery.delivered_at),
    }


def pairing_json(pair: Pairing) -> PairingOut:
    return {
        "channel": pair.channel,
        "sender": pair.sender,
        "label": pair.label,
        "surface": pair.surface,
        "code": pair.code or None,
        "status": pair.status.value,
        "owner": pair.owner,
        "createdAt": iso(pair.created_at),
        "expiresAt": iso(pair.expires_at),
        "decidedAt": _iso(pair.decided_at),
    }


def _iso(at: int | None) -> str | None:
    return None if at is None else iso(at)


WELCOME = "You are paired now: write to me."


class ChannelAdmin:
    """What needs no turn loop: how channels stand, who is let in, a message by hand. For the command line."""

    def __init__(
        self, store: Store, config: Callable[[], Config], env: Mapping[str, str] = os.environ
    ) -> None:
        self._store = store
        self._config = config
        self._env = env
        self.connections = Connections(config, store.clock, env)

    def listing(self) -> list[ChannelOut]:
        """Every channel in the config, and the pages' own, by name."""
        found = sorted({WEB: WEB_CHAT, **self._config().channels}.items())
        with self._store.read(SYSTEM) as tx:
            return [channel_json(tx, name, config, self.connections) for name, config in found]

    def deliveries(
        self, *, status: DeliveryStatus | None = None, target: str | None = None, limit: int = 100
    ) -> list[DeliveryOut]:
        """The newest first."""
        with self._store.read(SYSTEM) as tx:
            found = outbox.listing(tx, status=status, target=target, limit=limit)
            return [delivery_json(delivery) for delivery in found]

    def retry(self, tx: Tx, id_: str) -> DeliveryOut:
        """Try a delivery again that was given up."""
        return delivery_json(outbox.retry(tx, id_))

    def pairings(self, channel: str | None = None) -> list[PairingOut]:
        """Who waits to be let in, and who was."""
        with self._store.read(SYSTEM) as tx:
            waiting = pairing.listing(tx, channel=channel)
            approved = pairing.listing(tx, channel=channel, status=pairing.Status.APPROVED)
            return [pairing_json(pair) for pair in (*waiting, *approved)]

    def approve(self, code: str, *, owner: bool = False, channel: str | None = None) -> PairingOut:
        """Let a person in, and tell them."""

        def write(tx: Tx) -> PairingOut:
            pair = pairing.decide(tx, code, approve=True, owner=owner, channel=channel)
            post(tx, Surface.parse(pair.surface), WELCOME, f"paired:{pair.id}")
            return pairing_json(pair)

        return self._store.run(SYSTEM, write)

    def deny(self, code: str, *, channel: str | None = None) -> PairingOut:
        return self._store.run(
            SYSTEM,
            lambda tx: pairing_json(pairing.decide(tx, code, approve=False, channel=channel)),
        )

    def send(self, target: str, text: str) -> DeliveryOut:
        """Words for an explicit target; they go out where a gateway serves."""
        surface = Surface.parse(target)
        web.require_whole(surface)
        self.connections.settings(surface.channel, surface.account)
        if not text.strip():
            raise InvalidInput("there is nothing to say", hint="Give some text.")
        return self._store.run(
            SYSTEM,
            lambda tx: delivery_json(post(tx, surface, text, f"by-hand:{uuid7()}")),
        )

    def verify(self, channel: str, headers: Mapping[str, str], body: bytes) -> None:
        """Whether a call is signed by the channel's secret; as much work for a channel that is not there."""
        found = self._config().channels.get(channel)
        secret = b"" if found is None or not found.enabled else secret_of(found, self._env)
        tolerance = 0 if found is None else found.tolerance_seconds * 1000
        webhooks.signed_call(secret, headers, body, self._store.clock.now(), tolerance)

    def heard_at(self, tx: Tx, target: str) -> Audience | None:
        """Who hears an address; None for what is no surface of a channel that there is."""
        try:
            surface = Surface.parse(target)
            rules = self.connections.settings(surface.channel, surface.account)
        except (InvalidInput, NotFound):
            return None
        if surface.channel == WEB:
            chat = web.chat_at(tx, surface, web.chosen(self._config(), surface), self._config())
            return None if chat is None else chat.heard
        return receiving.heard_at(tx, surface, rules)

    def prune(self, tx: Tx, before: int) -> int:
        """Forget what is over."""
        gone = records.prune_arrivals(tx) + pairing.prune(tx) + records.prune_bindings(tx, before)
        return gone + progress.prune(tx, before)


class Channels(ChannelAdmin):
    """Built with the turn loop, whose hook and tool it gives; `register` hands its work to the runner."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        config: Callable[[], Config],
        *,
        runs: Callable[[], Runs],
        children: Callable[[], Children],
        context: Callable[[], ContextRoom],
        files: FileRoom,
        plugin_hooks: HookBus = NO_HOOKS,
        env: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__(store, config, env)
        self._threads = threads
        self._plugin_hooks = plugin_hooks
        self.files = files
        self._streams = Streams(store, threads, lambda: runs().hub)
        self._receiver = Receiver(
            ReceivingParts(
                store=store,
                threads=threads,
                config=config,
                connections=self.connections,
                accept=lambda ask: runs().accept(ask),
                cancel=lambda run_id: runs().cancel(run_id, reason="the message was deleted"),
                files=files,
                children=children,
                context=context,
            )
        )
        self.connections.register(WEB, lambda *_: WebChannel(store, threads, config, files))
        self.hook = ChannelHook(self._streams, self.connections.of)

    def tools(self) -> tuple[Tool[Any], ...]:
        made = MessageTool(self._store, self._threads, self.connections.of, self.heard_at, self.files)
        return (made.tool(),)

    def register(self, runner: Runner) -> None:
        """Have this runner carry out deliveries, and follow replies while they are written."""
        deliverer = Deliverer(
            self._store, self._threads, self.connections.of, self._plugin_hooks, self.files.read
        )
        runner.register(outbox.KIND, deliverer.kind())
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._streams.serve()

    def plug_in(self, name: str, adapter: Adapter) -> None:
        """Have an adapter serve the channels whose `adapter` is this name."""
        self.connections.register(name, adapter)

    async def receive(self, message: Inbound, *, may_own: bool = True) -> Received:
        """See to a message from outside, once."""
        return await self._receiver.receive(message, may_own=may_own)

    async def changed(self, change: Changed) -> bool:
        """Follow what somebody did to a message that came in, or to one of ours."""
        return await self._receiver.changed(change)

    async def pressed(self, press: Pressed) -> str:
        """Take somebody's choice; what they are told. Refused for those who may not choose."""
        kind, _, rest = press.value.partition(":")
        id_, _, choice = rest.rpartition(":")
        if kind != "approval":
            raise InvalidInput("this button does nothing here", code="bad_choice")

        def write(tx: Tx) -> str:
            tx.origin = Origin(press.surface.channel)
            handle = f"{press.surface.channel}:{press.sender}"
            found = workflow.answer(tx, self._config(), handle, id_, choice)
            waits = found.status is ApprovalStatus.PENDING
            return "Noted; it waits for others." if waits else f"{found.tool} is {found.status}."

        return await self._threads(self._store.run, SYSTEM, write)

    async def open_thread(self, session: Session, to: Deliver | None, name: str) -> Deliver:
        """A thread where a session is spoken to, for a child of it."""
        connected, surface = self._place(session, to)
        heard = session.audience if to is None else to.heard
        if not connected.channel.abilities.threads or surface.thread is not None or surface.direct:
            raise _no_thread()
        thread = await connected.channel.open_thread(surface, name[:100], f"thread:{uuid7()}")
        return surface.in_thread(thread).deliver(heard)

    def bind(self, tx: Tx, run: Run) -> None:
        """Give a child the surface that was opened for it."""
        if run.binding is not None:
            records.bind_session(tx, Surface.parse(str(run.binding["target"])), run.child_key)

    async def aclose(self) -> None:
        await self._streams.aclose()
        await self.connections.aclose()

    def _place(self, session: Session, to: Deliver | None) -> tuple[Connected, Surface]:
        try:
            surface = Surface.of_key(session.key) if to is None else Surface.parse(to.target)
            if surface is None:
                raise _no_thread()
            return self.connections.of(surface), surface
        except (NotFound, SendFailed) as error:
            raise _no_thread() from error


def post(tx: Tx, surface: Surface, text: str, key: str) -> Delivery:
    to = surface.deliver()
    return outbox.post(tx, Parcel(key=key, kind=to.kind, target=to.target, payload={"text": text}))


def _no_thread() -> InvalidInput:
    return InvalidInput(
        "threads cannot be opened from here",
        code="thread_unavailable",
        hint="Leave out thread; the result comes back to this session.",
    )
