"""Heartbeats through the real loop, with a scripted model and a clock turned by hand."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from heart_stage import HOME, KEY, HeartStage, ask
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from builders import soon
from holdfast.agents.heartbeat import beats
from holdfast.agents.loop import Deliver, turn
from holdfast.log import (
    FOR_OWNER,
    OWNER,
    Audience,
    Store,
    Threads,
    Tx,
    agenda,
    changes,
    entries,
    entry_model,
    for_group,
    for_peer,
)
from holdfast.testing import Call, Say, broken

LONG = "The nightly build is broken since commit abc, and nobody has looked at it yet."


def test_an_idle_checklist_never_calls_the_model_and_keeps_one_item_on_the_agenda(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(store, threads, tmp_path, [Say("HEARTBEAT_OK")]) as stage:
            stage.checklist("# Nothing\n<!-- yet -->\n")
            assert stage.heartbeats.schedule() == 1
            for _ in range(3):
                state = await stage.beat(minutes=30)
                assert (state.last_status, state.last_reason) == ("skipped", "empty")
                assert len(stage.due()) == 1
            assert stage.server.requests == []

    asyncio.run(main())


def test_an_acknowledged_heartbeat_leaves_nothing_behind_and_a_report_goes_where_people_last_spoke_once(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [Say("hi"), Say("**HEARTBEAT_OK**"), *[Say(LONG)] * 3]

    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, script) as stage:
            stage.checklist("- Look at the build\n")
            await stage.say("hello", deliver=HOME)
            fresh, before = stage.session().last_external_at, stage.spoken()
            stage.heartbeats.schedule()
            state = await stage.beat(minutes=30)
            assert state.last_status == "ok"
            assert stage.spoken() == before
            prompt = json.dumps(stage.server.requests[1].messages)
            assert "- Look at the build" in prompt
            assert "HEARTBEAT_OK and nothing else" in prompt
            assert (await stage.beat(minutes=30)).last_status == "reported"
            assert (await stage.beat(minutes=30)).last_status == "repeated"
            assert (await stage.beat(hours=24)).last_status == "reported"
            reports = [payload for target, payload in stage.posted()[1:] if target == "chat:42"]
            assert [p["text"] for p in reports] == [LONG, LONG]
            assert [(p["room"], p.get("replyTo")) for p in reports] == [("42", None)] * 2
            assert stage.session().last_external_at == fresh
            assert stage.state().day_tokens > 0
            (told,) = stage.heartbeats.statuses()
            assert (told["delivery"], told["lastStatus"], told["enabled"]) == ("pending", "reported", True)
            with stage.store.read(OWNER) as tx:
                seen = {c.type for c in changes.since(tx, 0) if c.entity_id == "main"}
            assert "heartbeat.updated" in seen

    asyncio.run(main())


def test_what_the_main_session_has_to_say_reaches_the_owners_newest_direct_chat_and_no_stranger(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [*[Say("hi")] * 3, Say(LONG), Say(LONG + " Still.")]
        ) as stage:
            stage.checklist("look")
            mine = Deliver(kind="chat", target="chat:me")
            guest = for_peer("chat", None, "you")
            stranger = Deliver(kind="chat", target="chat:stranger", heard=guest)
            await stage.say("hello", session_key="agent:main:chat:dm:me", deliver=mine)
            await stage.say(
                "x", session_key="agent:main:chat:dm:you", deliver=stranger, owner=False, heard=guest
            )
            await stage.say("x", session_key="agent:main:chat:group:g", deliver=stranger)
            stage.heartbeats.schedule()
            await stage.beat(minutes=30)
            stage.configure(target="discord:77")
            await stage.beat(minutes=30)
            assert [target for target, _ in stage.posted()[3:]] == ["chat:me", "discord:77"]
            assert stage.posted()[-1][1]["to"] == "77"

    asyncio.run(main())


def test_a_busy_session_defers_the_heartbeat_instead_of_queueing_it(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("wait", {"word": "x"}), Say("waited"), Say("HEARTBEAT_OK")]
        async with HeartStage(sqlite_store, threads, tmp_path, script) as stage:
            stage.checklist("look")
            stage.heartbeats.schedule()
            busy = await stage.runs.accept(ask("wait for me"))
            await soon(stage.begun.wait())
            for _ in range(3):
                stage.clock.advance(minutes=30)
                await stage.until(lambda: stage.due()[0].due_at > stage.clock.now())
                assert stage.state().last_status == "deferred"
            assert [item.status for item in stage.due()] == [agenda.Status.QUEUED]
            stage.gate.set()
            await soon(stage.runs.wait(busy.run_id))
            assert (await stage.beat(seconds=31)).last_status == "ok"
            assert len(stage.turns()) == 2

    asyncio.run(main())


def test_quiet_hours_pass_without_a_call_and_somebody_may_ask_at_any_hour(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    hours = {"start": "09:00", "end": "17:00", "timezone": "UTC"}

    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [Say("HEARTBEAT_OK")] * 2, heartbeat={"activeHours": hours}
        ) as stage:
            stage.checklist("look")
            stage.heartbeats.schedule()
            midnight = stage.clock.now()
            state = await stage.beat(minutes=30)
            assert (state.last_status, state.last_reason) == ("skipped", "quiet_hours")
            assert [item.due_at - midnight for item in stage.due()] == [9 * 3_600_000]
            stage.heartbeats.now("main")
            assert (await stage.beat()).last_status == "ok"
            assert [item.due_at - midnight for item in stage.due()] == [3_600_000]
            await stage.beat(minutes=30)
            assert (await stage.beat(hours=8)).last_status == "ok"
            assert len(stage.server.requests) == 2

    asyncio.run(main())


def test_each_item_has_its_own_time_and_one_whose_turn_failed_stays_due(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [Say("HEARTBEAT_OK"), *[broken()] * 12]

    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, script) as stage:
            stage.checklist("- every 2h: check the mail\n- daily at 01:30: look at the sky\n- [x] old\n")
            stage.heartbeats.schedule()
            assert (await stage.beat(minutes=30)).last_status == "ok"
            first = json.dumps(stage.server.requests[0].messages)
            assert "Due now, and nothing else of the list:\\n- every 2h: check the mail" in first
            assert (await stage.beat(minutes=30)).last_reason == "nothing_due"
            assert len(stage.server.requests) == 1
            assert (await stage.beat(minutes=30)).last_status == "failed"
            assert "- daily at 01:30: look at the sky" in json.dumps(stage.server.requests[1].messages)
            (told,) = stage.heartbeats.statuses()
            due = {item["text"]: item["due"] for item in told["items"]}
            assert due["daily at 01:30: look at the sky"]

    asyncio.run(main())


def test_a_reload_changes_the_rhythm_at_once_and_off_is_off(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path) as stage:
            start = stage.clock.now()
            stage.heartbeats.schedule()
            for every, minutes in (("30m", 30), ("4h", 240), ("5m", 5)):
                stage.configure(every=every)
                assert [item.due_at - start for item in stage.due()] == [minutes * 60_000]
            stage.configure(enabled=False)
            assert stage.due() == []
            stage.configure(enabled=True, every=0)
            assert stage.due() == []

    asyncio.run(main())


def test_the_day_has_a_price_limit(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    async def main() -> None:
        async with HeartStage(
            sqlite_store, threads, tmp_path, [Say("HEARTBEAT_OK")] * 2, heartbeat={"maxTokensPerDay": 1}
        ) as stage:
            stage.checklist("look")
            stage.heartbeats.schedule()
            assert (await stage.beat(minutes=30)).last_status == "ok"
            assert (await stage.beat(minutes=30)).last_reason == "spend_cap"
            assert (await stage.beat(hours=24)).last_status == "ok"
            assert len(stage.server.requests) == 2

    asyncio.run(main())


def test_boot_md_is_followed_once_for_each_start(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, [Say("NO_REPLY"), Say(LONG)]) as stage:
            stage.checklist("# Boot\n\n", "BOOT.md")
            assert stage.heartbeats.boot() == []
            stage.checklist("# Boot\nSay whether the disk is full.\n", "BOOT.md")
            assert len(stage.heartbeats.boot()) == 1
            assert stage.heartbeats.boot() == []
            await stage.beat()
            assert stage.spoken() == []
            assert "Say whether the disk is full." in json.dumps(stage.server.requests[0].messages)
            assert len(stage.heartbeats.boot()) == 1
            assert (await stage.beat()).last_status == "logged"
            assert stage.spoken() == [("assistant", LONG)]

    asyncio.run(main())


def test_a_heartbeat_of_another_agents_session_is_refused(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        config: dict[str, Any] = {"session": "agent:other:main"}
        async with HeartStage(sqlite_store, threads, tmp_path, heartbeat=config) as stage:
            stage.checklist("look")
            stage.heartbeats.schedule()
            await stage.beat(minutes=30)
            assert stage.server.requests == []
            with stage.store.read(OWNER) as tx:
                assert entries.listing(tx, entry_model.EntryFilter(session_key=KEY)).entries == []

    asyncio.run(main())


def test_the_turn_of_a_heartbeat_runs_under_its_span(
    sqlite_store: Store, threads: Threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    for module in (beats, turn):
        monkeypatch.setattr(module, "tracer", provider.get_tracer("tests"))

    async def main() -> None:
        async with HeartStage(sqlite_store, threads, tmp_path, [Say("HEARTBEAT_OK")]) as stage:
            stage.checklist("- look at the tide\n")
            stage.heartbeats.schedule()
            await stage.beat(minutes=30)

    asyncio.run(main())
    found = {span.name: span for span in spans.get_finished_spans()}
    assert (found["heartbeat"].attributes or {})["heartbeat.due"] == 1
    parent, own = found["holdfast.turn"].parent, found["heartbeat"].context
    assert parent is not None
    assert own is not None
    assert (parent.trace_id, parent.span_id) == (own.trace_id, own.span_id)


def test_a_report_is_not_posted_where_others_hear_it(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    def heard_at(_: Tx, target: str) -> Audience:
        return for_group("chat", None, "g") if target == "chat:group:g" else FOR_OWNER

    async def main() -> None:
        script = [Say(LONG), Say(LONG + " Still.")]
        async with HeartStage(sqlite_store, threads, tmp_path, script, heard_at=heard_at) as stage:
            stage.checklist("look")
            stage.configure(target="chat:group:g")
            stage.heartbeats.schedule()
            await stage.beat(minutes=30)
            assert stage.posted() == []
            stage.configure(target="chat:dm:me")
            await stage.beat(minutes=30)
            assert [target for target, _ in stage.posted()] == ["chat:dm:me"]

    asyncio.run(main())
