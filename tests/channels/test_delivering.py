"""The outbox is carried out in order, each piece once, with waits that are kept to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.channels import Abilities, Message, SendFailed, Surface, post, progress
from holdfast.channels.connecting import Connected
from holdfast.channels.delivering import Deliverer
from holdfast.clock import ManualClock
from holdfast.config.channels import ChannelConfig
from holdfast.log import OWNER, Store, Threads, agenda, outbox
from holdfast.log.outbox import MAX_ATTEMPTS, Delivery, DeliveryStatus

ADA, BEN = Surface("pier", "dm", "ada"), Surface("pier", "dm", "ben")


@dataclass
class Shore:
    """A service in memory. `trouble` is what the next calls run into, None for a call that goes well."""

    name: str = "pier"
    abilities: Abilities = field(default_factory=lambda: Abilities(most_chars=100))
    trouble: list[SendFailed | None] = field(default_factory=list)
    taken: list[Message] = field(default_factory=list)

    async def send(self, message: Message) -> str | None:
        failure = self.trouble.pop(0) if self.trouble else None
        if failure is not None:
            raise failure
        self.taken.append(message)
        return f"id-{len(self.taken)}"

    async def edit(self, message_id: str, message: Message) -> None:
        raise SendFailed("no edits", final=True)

    react = edit

    async def open_thread(self, surface: Surface, name: str, key: str, about: str | None = None) -> str:
        raise SendFailed("no threads", final=True)

    @property
    def texts(self) -> list[str]:
        return [f"{message.surface.peer}: {message.text}" for message in self.taken]


def harbour(store: Store, threads: Threads, shore: Shore, **rules: int) -> Callable[[], None]:
    """Deliver all that is due now."""
    config = ChannelConfig(**rules)  # type: ignore[arg-type]

    def connect(surface: Surface) -> Connected:
        if surface.channel != "pier":
            raise SendFailed(f"nothing connects channel {surface.channel}")
        return Connected("pier", config, shore)

    deliverer = Deliverer(store, threads, connect)

    def sail() -> None:
        async def drained() -> None:
            runner = agenda.Runner(store, threads)
            runner.register(outbox.KIND, deliverer.kind())
            await runner.drain()

        asyncio.run(drained())

    return sail


def say(store: Store, surface: Surface, *texts: str) -> list[Delivery]:
    with store.write(OWNER) as tx:
        return [post(tx, surface, text, f"{surface.address}/{text}") for text in texts]


def now(store: Store, delivery: Delivery) -> Delivery:
    with store.read(OWNER) as tx:
        return outbox.get(tx, delivery.id)


def test_each_surface_is_in_order_and_waits_for_no_other(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    shore = Shore(trouble=[SendFailed("later", wait_ms=30_000)])
    sail = harbour(store, threads, shore)
    first, second, _ = say(store, ADA, "one", "two", "three")
    sail()
    assert shore.texts == []
    say(store, BEN, "hello")
    clock.advance(seconds=5)
    sail()
    assert shore.texts == ["ben: hello"]
    assert (now(store, first).attempts, now(store, first).error) == (1, "later")
    assert now(store, second).status is DeliveryStatus.PENDING
    clock.advance(seconds=30)
    sail()
    clock.advance(ms=10)
    sail()
    assert shore.texts == ["ben: hello", "ada: one", "ada: two", "ada: three"]


def test_a_message_in_pieces_goes_on_where_it_was(store: Store, threads: Threads, clock: ManualClock) -> None:
    shore = Shore(trouble=[None, SendFailed("later")])
    sail = harbour(store, threads, shore)
    (made,) = say(store, ADA, "a" * 90 + "\n\n" + "b" * 90 + "\n\n" + "c" * 90)
    sail()
    with store.read(OWNER) as tx:
        assert (progress.sent(tx, made.id), progress.is_ours(tx, "pier", "id-1")) == (1, True)
    clock.advance(seconds=2)
    sail()
    assert [message.text[0] for message in shore.taken] == ["a", "b", "c"]
    assert [message.key[-2:] for message in shore.taken] == ["#0", "#1", "#2"]
    assert (now(store, made).status, now(store, made).receipt) == (DeliveryStatus.DELIVERED, "id-3")


def test_what_no_channel_takes_is_given_up_after_a_while(
    store: Store, threads: Threads, clock: ManualClock
) -> None:
    sail = harbour(store, threads, Shore())
    (lost,) = say(store, Surface("nowhere", "dm", "ada"), "hello")
    for _ in range(MAX_ATTEMPTS):
        assert now(store, lost).status is DeliveryStatus.PENDING
        sail()
        clock.advance(minutes=2)
    assert now(store, lost).status is DeliveryStatus.FAILED
    assert now(store, lost).error == "nothing connects channel nowhere"


def test_a_channel_sends_so_many_a_minute(store: Store, threads: Threads, clock: ManualClock) -> None:
    shore = Shore()
    sail = harbour(store, threads, shore, outbound_per_minute=2)
    say(store, ADA, "one", "two", "three")
    sail()
    assert len(shore.taken) == 2
    clock.advance(seconds=61)
    sail()
    assert shore.texts == ["ada: one", "ada: two", "ada: three"]
