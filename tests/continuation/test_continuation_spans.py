"""A chain as one trace: parents through the queue, links across sessions, no words of the agent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from continuation_play import KEY, Play, home_config
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from builders import until
from holdfast import traces
from holdfast.agents.loop import Ask
from holdfast.agents.loop import turn as turn_loop
from holdfast.clock import ManualClock
from holdfast.log import OWNER, Store, Threads, entries, sessions
from holdfast.runtime import open_home
from holdfast.services import Services
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI, Turn

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

PRIVATE = "agent:main:discord:dm:42"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(traces, "_tracer", lambda: provider.get_tracer("tests"))
    yield exporter
    provider.shutdown()


@pytest.fixture
def play(sqlite_store: Store, clock: ManualClock, threads: Threads, tmp_path: Path) -> Play:
    return Play(sqlite_store, clock, threads, tmp_path / "payloads", crossSessionTargeting="enabled")


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def test_a_chain_is_one_tree_through_the_queue_and_a_restart(play: Play, spans: InMemorySpanExporter) -> None:
    play.turn(("continue_work", {"reason": "a secret plan", "traceparent": TRACE}))
    play.room = play.opened()
    play.later(15)
    woken = play.begin()
    assert woken is not None
    with play.store.read(OWNER) as tx:
        assert woken.turn.input_id is not None
        source = entries.get(tx, woken.turn.input_id).source or {}
    play.call(woken, "continue_work", reason="go on")
    play.end(woken)
    play.later(15)

    first, second = named(spans, "continuation.work")
    fired = named(spans, "continuation.work.fire")
    enqueued = named(spans, "continuation.queue.enqueue")
    assert f"{parent_of(first):016x}" == "00f067aa0ba902b7"
    assert parent_of(enqueued[0]) == id_of(first)
    assert parent_of(fired[0]) == id_of(first)
    assert parent_of(second) == id_of(first)
    assert parent_of(fired[1]) == id_of(second)
    assert source["traceparent"].split("-")[2] == f"{id_of(fired[0]):016x}"
    assert len({span.context.trace_id for span in spans.get_finished_spans() if span.context}) == 1
    facts = first.attributes or {}
    assert (facts["delay.ms"], facts["chain.step.remaining"]) == (15_000, 9)
    assert (facts["reason.length"], facts["reason.redacted"]) == (13, True)
    assert (fired[0].attributes or {})["fire.deferred_ms"] == 0
    assert "secret" not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_delegate_is_dispatched_under_its_election_and_each_delivery_is_linked_to_the_fan_out(
    play: Play, spans: InMemorySpanExporter
) -> None:
    with play.store.write(OWNER) as tx:
        sessions.ensure(tx, PRIVATE)
    play.turn(
        (
            "continue_delegate",
            {"task": "a secret task", "targetSessionKeys": [KEY, PRIVATE], "delaySeconds": 9},
        )
    )
    play.later(9)
    [order] = play.nursery.orders
    play.returned(order, "a secret answer")

    [elected] = named(spans, "continuation.delegate")
    [fired] = named(spans, "continuation.delegate.fire")
    [sent] = named(spans, "continuation.delegate.dispatch")
    [fan] = named(spans, "continuation.queue.fanout")
    delivered = named(spans, "continuation.queue.deliver")
    assert parent_of(fired) == parent_of(sent) == id_of(elected)
    assert (sent.attributes or {})["delegate.delivery"] == "timer"
    [record] = play.records()
    assert record.traceparent is not None
    assert record.traceparent.split("-")[2] == f"{id_of(sent):016x}"
    [queued] = [span for span in named(spans, "continuation.queue.enqueue") if parent_of(span) == id_of(sent)]
    [told] = named(spans, "continuation.queue.announce")
    assert parent_of(told) == id_of(queued)
    assert parent_of(fan) == id_of(told)
    assert [parent_of(span) for span in delivered] == [id_of(fan)] * 2
    assert [[link.context.span_id for link in span.links] for span in delivered] == [[id_of(fan)]] * 2
    assert "secret" not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_release_and_a_signal_while_switched_off_leave_a_span(
    play: Play, spans: InMemorySpanExporter
) -> None:
    play.turn(("continue_delegate", {"task": "later", "mode": "post-compaction"}))
    play.compacted()
    [released] = named(spans, "continuation.compaction.released")
    assert (released.attributes or {})["queue.drained_count"] == 1
    play.given["enabled"] = False
    play.turn(said="CONTINUE_WORK")
    [off] = named(spans, "continuation.disabled")
    assert (off.attributes or {})["signal.kind"] == "work"


def test_without_anyone_who_records_a_given_trace_is_still_carried(play: Play) -> None:
    play.turn(("continue_work", {"reason": "x", "traceparent": TRACE}))
    assert play.records()[0].traceparent == TRACE


class Chain:
    """A model that sends off two delegates and goes on twice by itself, the second time by a token."""

    def __call__(self, asked: Asked) -> Turn:
        said, last = json.dumps(asked.messages), asked.messages[-1]
        if "You are a subagent" in said:
            return Say(f"Found {'one' if 'berth one' in said else 'two'}.")
        if "Turn 1/10" in said or "delegate-return" in said:
            return Say("Enough for now.")
        if last["role"] == "tool":
            return Say("More later. CONTINUE_WORK:5")
        fan = {"task": "berth one", "mode": "silent", "targetSessionKeys": [KEY, PRIVATE]}
        own = {"task": "berth two", "mode": "silent-wake"}
        return Calls(Call("continue_delegate", fan), Call("continue_delegate", own))


def test_turns_and_delegates_of_a_chain_are_one_tree(
    spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tracer = traces._tracer()
    monkeypatch.setattr(turn_loop, "tracer", tracer)
    clock = ManualClock()

    async def main() -> None:
        with ScriptedOpenAI(Chain(), models=["scripted"]) as server:
            (tmp_path / "holdfast.json").write_text(home_config(server.url, crossSessionTargeting="enabled"))
            with open_home(tmp_path, clock=clock) as hold:
                with hold.store.write(OWNER) as tx:
                    sessions.ensure(tx, PRIVATE)
                async with Services(hold).running():
                    await hold.runs.accept(Ask(text="go", session_key=KEY))
                    await until(lambda: len(named(spans, "holdfast.turn")) == 4)
                    clock.advance(seconds=5)
                    hold.store.signals.notify_all()
                    await until(lambda: len(named(spans, "holdfast.turn")) == 5)

    asyncio.run(main())
    by_id = {id_of(span): span for span in spans.get_finished_spans()}

    def above(span: ReadableSpan) -> list[str]:
        """The names of a span's ancestors, nearest first."""
        found: list[str] = []
        while span.parent is not None:
            span = by_id[span.parent.span_id]
            found.append(span.name)
        return found

    first, *others = sorted(named(spans, "holdfast.turn"), key=lambda span: span.start_time or 0)
    assert first.parent is None
    assert {span.context.trace_id for span in by_id.values() if span.context} == {first.context.trace_id}
    sent = ["continuation.delegate.dispatch", "continuation.delegate", "holdfast.turn"]
    home = ["continuation.queue.deliver", "continuation.queue.fanout", "continuation.queue.announce"]
    assert sorted(above(span) for span in others) == sorted(
        [
            sent,
            sent,
            [*home, "continuation.queue.enqueue", *sent],
            ["continuation.work.fire", "continuation.work", "holdfast.turn"],
        ]
    )
    fans = named(spans, "continuation.queue.fanout")
    assert sorted((fan.attributes or {})["queue.recipients"] for fan in fans) == [1, 2]
    for delivered in named(spans, "continuation.queue.deliver"):
        assert [link.context.span_id for link in delivered.links] == [parent_of(delivered)]
    drained = [span.attributes or {} for span in named(spans, "continuation.queue.drain")]
    assert sum(int(str(facts["queue.drained_count"])) for facts in drained) == 3
    assert "berth" not in "".join(span.to_json() for span in by_id.values())
