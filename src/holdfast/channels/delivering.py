"""Carrying out what the outbox holds: each surface in order, each piece once as far as services can tell."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlalchemy as sa

from holdfast.agents.plugin_hooks import NO_HOOKS, HookBus, MessageSending, MessageSent
from holdfast.channels import progress
from holdfast.channels.chunking import Limits
from holdfast.channels.connecting import Connected
from holdfast.channels.files import require_sendable
from holdfast.channels.speech import Mark, left_of_turn, remaining
from holdfast.channels.surface import Surface
from holdfast.channels.transport import File, Message, SendFailed
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.log import SYSTEM, EntryFilter, Store, Threads, Tx, agenda, entries, outbox, turns
from holdfast.log.outbox import Delivery, DeliveryStatus
from holdfast.log.tables import outbox as table

log = logging.getLogger(__name__)

RETRY: Final = agenda.Retry(base_ms=1_000, factor=2.0, ceiling_ms=60_000)
PREVIEW: Final = "preview"
MINUTE: Final = 60_000
MOST_SAID: Final = 500
SORRY: Final = "Something went wrong, and I could not answer. Please try again."

CUT_OFF: Final = "cut off while it was sent"
_META: Final = ("turnId", "sessionKey", "block", "agentId")
_ASKED: Final = ("choices", "about")
SETTLED: Final = "settled"


@dataclass(frozen=True, slots=True)
class Order:
    """A delivery made ready: the pieces that are its messages, how many were sent, and what they replace.

    `known` is there if the next piece may have been taken before: ids on its surface from before it.
    """

    delivery: Delivery
    surface: Surface
    pieces: Sequence[str]
    sent: int
    preview: str | None = None
    quotes: str | None = None
    files: tuple[File, ...] = ()
    known: tuple[str, ...] | None = None

    @property
    def carries_files(self) -> int:
        """Files go with the last piece, so that the words stand before them."""
        return len(self.pieces) - 1


class Deliverer:
    """Handles the agenda's `deliver` items, whatever channel they are for."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        connect: Callable[[Surface], Connected],
        plugin_hooks: HookBus = NO_HOOKS,
        files: Callable[[Sequence[Any]], tuple[File, ...]] = lambda kept: (),
    ) -> None:
        self._store = store
        self._threads = threads
        self._connect = connect
        self._plugin_hooks = plugin_hooks
        self._files = files
        self._pace = Pace(store.clock)

    def kind(self) -> agenda.Kind:
        return agenda.Kind(self.handle, relative=True, limit=8, retry=RETRY, on_interrupt=_given_up)

    async def handle(self, job: agenda.Job) -> None:
        """One attempt at a delivery. A failure is noted with it and tried again, up to a ceiling."""
        id_ = str(job.item.payload["outboxId"])
        try:
            order, connected = await self._threads(self._prepared, id_)
            if order is not None:
                await self._carry_out(job, order, connected)
        except HoldfastError as error:
            failure = error if isinstance(error, SendFailed) else SendFailed(error.message)
            await self._threads(self._store.run, SYSTEM, lambda tx: _failed(tx, job, id_, failure))
            await self._threads(self._tell_failed, id_, failure)

    def _tell_failed(self, id_: str, failure: SendFailed) -> None:
        if not self._plugin_hooks.wants(MessageSent):
            return
        with self._store.read(SYSTEM) as tx:
            delivery = outbox.get(tx, id_)
        if delivery.status is DeliveryStatus.FAILED:
            self._plugin_hooks.tell(
                MessageSent(
                    target=delivery.target,
                    channel=delivery.kind,
                    text=str(delivery.payload.get("text") or ""),
                    ok=False,
                    error=failure.message,
                )
            )

    def _prepared(self, id_: str) -> tuple[Order | None, Connected]:
        with self._store.read(SYSTEM) as tx:
            delivery = outbox.get(tx, id_)
            surface = _surface(delivery)
            connected = self._connect(surface)
            if delivery.status is not DeliveryStatus.PENDING:
                return None, connected
            before = _earlier(tx, delivery)
            if before is not None:
                raise agenda.PostponeJob(before, "an earlier message is still on its way")
            order = _order(tx, delivery, surface, connected)
            unsure = (delivery.error or "").startswith(CUT_OFF) and connected.channel.abilities.finds
            known = _known(tx, delivery, order) if unsure else None
        return replace(order, files=self._files(delivery.payload.get("files") or ()), known=known), connected

    async def _carry_out(self, job: agenda.Job, order: Order, connected: Connected) -> None:
        delivery = order.delivery
        if len(order.pieces) <= order.sent:
            await self._threads(
                self._store.run, SYSTEM, lambda tx: _done(tx, job, delivery.id, "nothing to send")
            )
            return
        for number in range(order.sent, len(order.pieces)):
            self._pace.take(connected.name, connected.config.outbound_per_minute)
            asked = await self._asked_plugins(order, number, connected)
            message_id = f"not sent: {asked.blocked}" if asked.blocked else None
            if asked.blocked is None:
                message_id = await _sent(order, number, connected, asked.text)
                self._plugin_hooks.tell(_told_sent(asked))
            last = number == len(order.pieces) - 1
            await self._threads(self._store.run, SYSTEM, _noted(job, order, number, message_id, last))

    async def _asked_plugins(self, order: Order, number: int, connected: Connected) -> MessageSending:
        """What plugins make of a piece; other words than the service takes are left out."""
        event = MessageSending(
            target=order.surface.address,
            channel=connected.name,
            text=order.pieces[number],
            session_key=order.delivery.payload.get("sessionKey"),
        )
        if not self._plugin_hooks.wants(MessageSending):
            return event
        found = await self._plugin_hooks.ask(event)
        if len(found.text) > connected.most_chars:
            log.warning("a plugin's words for %s are too long to be sent", connected.name)
            return event
        return found


def _told_sent(asked: MessageSending) -> MessageSent:
    return MessageSent(audience=asked.audience, target=asked.target, channel=asked.channel, text=asked.text)


class Pace:
    """How many messages of a channel went out within a minute, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sent: dict[str, deque[int]] = {}

    def take(self, channel: str, most: int) -> None:
        """One more; `PostponeJob` until there is room for it."""
        now = self._clock.now()
        sent = self._sent.setdefault(channel, deque())
        while sent and sent[0] <= now - MINUTE:
            sent.popleft()
        if len(sent) >= most:
            raise agenda.PostponeJob(sent[0] + MINUTE, f"channel {channel} sends {most} messages a minute")
        sent.append(now)


async def _sent(order: Order, number: int, connected: Connected, text: str) -> str | None:
    """Send one piece; the first takes the place of a preview where there is one."""
    payload = order.delivery.payload
    last = number == len(order.pieces) - 1
    wanted = (*_META, *_ASKED) if last else _META
    meta: dict[str, Any] = {name: payload[name] for name in wanted if name in payload}
    message = Message(
        key=f"{order.delivery.key}#{number}",
        surface=order.surface,
        text=text,
        reply_to=_quoted(order, connected.config.reply_to_mode, number),
        files=order.files if number == order.carries_files else (),
        meta={**meta, "final": _is_final(order, number)},
    )
    require_sendable(message.files, connected.channel.abilities.most_file_bytes, connected.name)
    if order.known is not None and number == order.sent:
        found = await connected.channel.find(message, order.known)
        if found is not None:
            return found
    if number == 0 and order.preview is not None and connected.channel.abilities.edits:
        await connected.channel.edit(order.preview, message)
        return order.preview
    return await connected.channel.send(message)


def _quoted(order: Order, mode: str, number: int) -> str | None:
    """The message that a piece quotes, as `replyToMode` has it."""
    first = number == 0 and order.delivery.payload.get("block", 1) == 1
    return order.quotes if mode == "all" or (mode != "off" and first) else None


def _answered(tx: Tx, turn_id: str, mode: str) -> str | None:
    """The channel's id of the message that a turn answers."""
    found = turns.get_many(tx, [turn_id]) if turn_id and mode != "off" else []
    if not found or found[0].input_id is None:
        return None
    source = entries.get(tx, found[0].input_id).source or {}
    said = source.get("messageId")
    return str(said) if said else None


def _is_final(order: Order, number: int) -> bool:
    within = order.delivery.payload.get("block") is not None
    return not within and number == len(order.pieces) - 1


def _surface(delivery: Delivery) -> Surface:
    try:
        return Surface.parse(delivery.target)
    except InvalidInput as error:
        raise SendFailed(error.message) from error


def _earlier(tx: Tx, delivery: Delivery) -> int | None:
    """When the message before this one is tried next, if one for the same surface is still on its way."""
    mine = sa.tuple_(sa.literal(delivery.created_at), sa.literal(delivery.id))
    before = (
        sa.select(table.c.agenda_id)
        .where(
            table.c.target == delivery.target,
            table.c.status == sa.literal_column("'pending'"),
            sa.tuple_(table.c.created_at, table.c.id) < mine,
        )
        .order_by(table.c.created_at, table.c.id)
        .limit(1)
    )
    found = tx.conn.execute(before).scalar()
    item = None if found is None else agenda.find(tx, found)
    if item is None or item.status.ended:
        return None
    return max(item.due_at, tx.now) + 1


def _order(tx: Tx, delivery: Delivery, surface: Surface, connected: Connected) -> Order:
    payload = delivery.payload
    turn_id = str(payload.get("turnId") or "")
    stream = progress.get(tx, turn_id)
    sent = progress.sent(tx, delivery.id)
    text = str(payload.get("text") or "")
    if payload.get("op") == PREVIEW:
        return Order(delivery, surface, [text], sent, stream.preview)
    if payload.get("op") == SETTLED:
        return _settled(tx, delivery, surface, connected)
    if payload.get("error"):
        return Order(delivery, surface, [_apology(payload)], sent, stream.preview)
    quotes = _answered(tx, turn_id, connected.config.reply_to_mode)
    if payload.get("block") is not None:
        return Order(delivery, surface, [text], sent, quotes=quotes)
    limits = Limits(connected.most_chars)
    if delivery.key != reply_key(turn_id):
        return Order(delivery, surface, remaining(text, Mark(), limits), sent, quotes=quotes)
    earlier = _said_before(tx, turn_id) if stream.followed and not connected.previews else []
    pieces = left_of_turn(earlier, text, stream.mark, limits)
    return Order(delivery, surface, pieces, sent, stream.preview, quotes)


def _settled(tx: Tx, delivery: Delivery, surface: Surface, connected: Connected) -> Order:
    """How a question ended: in its own message where the service can change one, so that no button stays."""
    text, sent = str(delivery.payload["text"]), progress.sent(tx, delivery.id)
    asked = outbox.last_begun(tx, f"approval:{delivery.payload['about']['id']}:", delivery.target)
    if asked is None or asked.receipt is None or not connected.channel.abilities.edits:
        return Order(delivery, surface, [text], sent)
    whole = f"{asked.payload.get('text') or ''}\n\n{text}"
    return Order(
        delivery, surface, [whole if len(whole) <= connected.most_chars else text], sent, asked.receipt
    )


def _known(tx: Tx, delivery: Delivery, order: Order) -> tuple[str, ...]:
    """First the last message that certainly stands before it, then others that it is not."""
    answered = _answered(tx, str(delivery.payload.get("turnId") or ""), "all")
    before = [id_ for id_ in (progress.newest_on(tx, delivery.target), answered) if id_ is not None]
    key = str(delivery.payload.get("sessionKey") or "")
    heard = entries.listing(tx, EntryFilter(session_key=key), limit=MOST_SAID).entries if key else ()
    others = [str(id_) for one in heard if (id_ := (one.source or {}).get("messageId"))]
    return (*before, *others)


def reply_key(turn_id: str) -> str:
    """The key of the parcel that is posted with a turn's commit."""
    return f"reply:{turn_id}"


def _said_before(tx: Tx, turn_id: str) -> list[str]:
    """What a turn said before its last words, in order."""
    reply = turns.get(tx, turn_id).reply_id
    own = entries.listing(tx, EntryFilter(turn_id=turn_id), limit=MOST_SAID).entries
    return [e.content for e in reversed(own) if e.is_answer and e.id != reply]


def _apology(payload: Mapping[str, Any]) -> str:
    """What went wrong is told to the owner alone: it may say more of this machine than others should know."""
    if not payload.get("owner"):
        return SORRY
    hint = str(payload.get("hint") or "")
    return f"I could not answer: {payload['error']}. {hint}".rstrip(" ")


def _noted(
    job: agenda.Job, order: Order, number: int, message_id: str | None, last: bool
) -> Callable[[Tx], None]:
    """A piece that was taken is noted at once; the last one ends the delivery in the same transaction."""
    delivery = order.delivery

    def write(tx: Tx) -> None:
        progress.receipt(tx, delivery.id, number, order.surface.channel, message_id)
        if delivery.payload.get("op") == PREVIEW and message_id is not None:
            progress.save(tx, replace(progress.get(tx, str(delivery.payload["turnId"])), preview=message_id))
        if last:
            _done(tx, job, delivery.id, message_id)

    return write


def _done(tx: Tx, job: agenda.Job, id_: str, receipt: str | None) -> None:
    outbox.delivered(tx, id_, receipt=receipt)
    job.settle(tx)


def _failed(tx: Tx, job: agenda.Job, id_: str, error: SendFailed) -> None:
    """Attempts are counted with the delivery; a wait that the service asked for is kept to."""
    delivery = outbox.get(tx, id_)
    if delivery.status is not DeliveryStatus.PENDING:
        job.settle(tx)
        return
    tried = delivery.attempts + 1
    final = error.final or tried >= outbox.MAX_ATTEMPTS
    said = f"{CUT_OFF}: {error.message}" if error.unsure else error.message
    outbox.attempt_failed(tx, id_, said, final=final)
    log.warning("delivery %s to %s: %s", id_, delivery.target, error.message)
    if final:
        job.settle(tx)
        return
    assert job.item.owner is not None
    wait = RETRY.delay(tried) if error.wait_ms is None else error.wait_ms
    job.settle(tx, agenda.Postpone(job.item.owner, tx.now + wait, error.message))


def _given_up(tx: Tx, item: agenda.Item) -> None:
    """An attempt was cut off; if it was the last that the agenda allows, the delivery has failed too."""
    delivery = outbox.get(tx, str(item.payload["outboxId"]))
    if delivery.status is not DeliveryStatus.PENDING:
        return
    if item.status.ended:
        outbox.attempt_failed(tx, delivery.id, item.error or "interrupted", final=True)
    else:
        outbox.remark(tx, delivery.id, CUT_OFF)
