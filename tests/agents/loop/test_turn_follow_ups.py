"""What goes into a turn besides the message, and what follows from it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from loop_stage import ask, staged

from builders import KEY, rows, soon, until
from holdfast.agents import Origin
from holdfast.agents.loop import Deliver
from holdfast.clock import ManualClock
from holdfast.context import Image
from holdfast.log import OWNER, Store, Threads, agenda, entries, outbox, turns
from holdfast.log.transcripts import line_of_entry
from holdfast.log.transcripts.lines import dump_line
from holdfast.testing import Call, Say, Used


def test_what_a_turn_writes_waits_to_be_sorted_like_anything_that_is_logged(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("look", {"word": "a"}, text="I look."), Say("The boiler needs a new valve.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            await stage.say("what is wrong with the boiler?")
            by_role = [(e.role, e.status, e.turn_id is not None) for e in stage.log()]
            assert by_role == [
                ("user", "pending", True),
                ("assistant", "pending", True),
                ("toolResult", "failed", True),
                ("assistant", "pending", True),
            ]
            waiting = rows(sqlite_store, "SELECT count(*) FROM agenda WHERE kind = 'board.classify'")
            assert waiting == [(1,)]

    asyncio.run(main())


def test_a_turn_is_exported_as_openclaw_has_it(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    async def main() -> None:
        script = [Call("look", {"word": "a"}, id="c1", thinking="hm"), Say("Seen.", used=Used(70, 7))]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            picture = Image("image/png", "aGVsbG8=")
            await stage.say("look at it", images=(picture,))
            lines = [json.loads(dump_line(line_of_entry(e, None))) for e in stage.log()]
            user, call, result, reply = (line["message"] for line in lines)
            assert [block["type"] for block in user["content"]] == ["text", "image"]
            assert [block["type"] for block in call["content"]] == ["thinking", "toolCall"]
            assert (call["stopReason"], result["toolCallId"], result["toolName"]) == ("toolUse", "c1", "look")
            assert (reply["provider"], reply["model"], reply["usage"]["totalTokens"]) == (
                "scripted",
                "scripted",
                77,
            )

    asyncio.run(main())


def test_the_reply_goes_to_its_surface_with_the_commit_and_a_silent_one_does_not(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    to = Deliver(kind="discord", target="discord:42", payload={"replyTo": "m1"})

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Here you are."), Say("NO_REPLY")]) as stage:
            first = await stage.say("hello", deliver=to)
            second = await stage.say("thanks", deliver=to)
            assert (first.silent, second.silent) == (False, True)
            third = await stage.say("more", deliver=to)
            assert third.status == "failed"
            with sqlite_store.read(OWNER) as tx:
                found = sorted(outbox.listing(tx), key=lambda d: d.id)
            assert [d.payload["text"] for d in found] == ["Here you are.", ""]
            assert found[0].payload["replyTo"] == "m1"
            assert (found[0].target, found[0].payload["turnId"]) == ("discord:42", first.run_id)
            assert found[1].payload["error"]

    asyncio.run(main())


def test_near_the_line_a_silent_turn_writes_notes_and_past_it_history_is_compacted(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    """The flush comes first, once for each cycle, and neither runs beside the next turn."""
    defaults = {"compaction": {"keepRecentTokens": 200, "recentTurnsPreserve": 1, "reserveTokens": 2000}}
    script = [Say("word " * 100, used=Used(100, 10)) for _ in range(3)]
    full = Say("nearly full", used=Used(19_000, 10))
    flush = [Call("look", {"word": "notes"}, used=Used(19_100, 10)), Say("NO_REPLY", used=Used(19_200, 10))]

    async def main() -> None:
        options = {"config": {"defaults": defaults}, "window": 20_000}
        async with staged(
            store, threads, tmp_path, [*script, full, *flush, Say("fresh")], **options
        ) as stage:
            for number in range(3):
                await stage.say(f"message {number}")
            await stage.say("the last straw")
            await until(lambda: stage.session().compaction_count == 1)
            flushed = [t for t in stage.turns() if t.trigger == "flush"]
            assert [t.status for t in flushed] == ["committed"]
            assert "memory/2026-01-01.md" in stage.server.requests[4].last_text
            assert "NO_REPLY" not in [text for _, text in stage.spoken()]
            assert stage.session().memory_flush_compaction_count == 0
            assert (await stage.say("hello again")).reply == "fresh"
            assert any(
                "earlier part of this conversation" in str(m) for m in stage.server.requests[-1].messages
            )

    asyncio.run(main())


def test_lasting_notes_are_written_to_the_end_though_the_session_is_left(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    defaults = {"compaction": {"keepRecentTokens": 200, "recentTurnsPreserve": 1, "reserveTokens": 2000}}
    full = Say("nearly full", used=Used(15_000, 10))
    script = [full, Call("wait", used=Used(15_100, 10)), Say("NO_REPLY", used=Used(15_200, 10)), Say("Anew.")]

    async def main() -> None:
        options = {"config": {"defaults": defaults}, "window": 20_000}
        async with staged(sqlite_store, threads, tmp_path, script, **options) as stage:
            await stage.say("the last straw")
            await soon(stage.begun.wait())
            left = stage.session()
            said = await stage.runs.accept(ask("/new"))
            assert said.reply == "A new session has begun."
            stage.gate.set()
            assert (await stage.say("hello again")).reply == "Anew."
            with sqlite_store.read(OWNER) as tx:
                ends = [(t.trigger, t.status) for t in turns.listing(tx, left.id)]
            assert ("flush", "committed") in ends

    asyncio.run(main())


def test_a_stale_session_is_left_behind_by_the_next_message(
    sqlite_store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    config = {"session": {"reset": {"mode": "idle", "idleMinutes": 60}}}

    async def main() -> None:
        script = [Say("One."), Say("Two."), Say("Three.")]
        async with staged(sqlite_store, threads, tmp_path, script, config=config) as stage:
            await stage.say("first")
            clock.advance(minutes=61)
            accepted = await stage.runs.accept(ask("second"))
            assert accepted.reset == "idle"
            await soon(stage.runs.wait(accepted.run_id))
            assert not any("first" in str(m.get("content")) for m in stage.server.requests[1].messages)
            third = await stage.say("/new third")
            assert third.session_id != accepted.session_id
            assert "second" not in json.dumps(stage.server.requests[2].messages)
            assert stage.server.requests[2].last_text == "third"

    asyncio.run(main())


def test_the_prompt_has_tools_skills_and_the_board_and_the_clock_only_behind_the_history(
    sqlite_store: Store, threads: Threads, tmp_path: Path, clock: ManualClock
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("One."), Say("Two.")], board=True) as stage:
            await stage.say("the boiler is broken")
            clock.advance(hours=1)
            await stage.say("what about the boiler?")
            one, two = stage.server.requests
            assert one.tools == ["act", "asking", "broken", "fetch", "finish", "look", "wait"]
            system = one.messages[0]["content"]
            assert "<available_skills>" in system
            assert "Rules of AGENTS.md." in system
            assert "2026-01-01" not in system
            assert two.messages[:2] == [one.messages[0], one.messages[-1]]
            carrier = str(two.messages[-2]["content"])
            assert "Now: Thursday 2026-01-01 01:00" in carrier
            assert "Model: scripted/scripted" in carrier
            assert "the boiler is broken" in carrier
            manifest = stage.context.stored(stage.session()).manifest
            trust = {section.name: section.trust for section in manifest.sections}
            assert trust["continuity"] == "other_session"

    asyncio.run(main())


def test_a_message_finds_its_agent_and_session_by_where_it_comes_from(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    config = {
        "agents": {
            "defaults": {"model": "scripted/scripted"},
            "list": [{"id": "home", "default": True}, {"id": "work"}],
        },
        "bindings": [{"agentId": "work", "match": {"channel": "slack", "teamId": "T1"}}],
        "session": {"identityLinks": {"ann": ["telegram:7"]}},
        "messages": {"queue": {"debounceMs": 0}},
    }

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("x")] * 5, config=config) as stage:

            async def key(**origin: str) -> str:
                accepted = await stage.runs.accept(ask("hi", session_key=None, origin=Origin(**origin)))  # type: ignore[arg-type]
                await soon(stage.runs.wait(accepted.run_id))
                return accepted.session_key

            assert (
                await key(channel="slack", team_id="T1", peer_kind="channel", peer_id="C9")
                == "agent:work:slack:channel:C9"
            )
            assert await key(channel="discord", peer_kind="dm", peer_id="5") == "agent:home:discord:dm:5"
            assert await key(channel="telegram", peer_kind="dm", peer_id="7") == "agent:home:dm:ann"
            assert (
                await key(channel="telegram", peer_kind="group", peer_id="g") == "agent:home:telegram:group:g"
            )
            assert await key(channel="web") == "agent:home:main"

    asyncio.run(main())


def test_the_same_message_delivered_twice_by_its_channel_is_answered_once(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Once.")]) as stage:
            source = {"messageId": "m-1", "channel": "discord"}
            first = await stage.say("hello", source=source)
            second = await stage.say("hello", source=source)
            assert first.run_id == second.run_id
            assert len(stage.server.requests) == 1

    asyncio.run(main())


def test_payload_and_trajectory_are_written_where_they_are_switched_on(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    env = {"HOLDFAST_PAYLOAD_LOG": "1", "HOLDFAST_RAW_STREAM": "1"}

    async def main() -> None:
        script = [Call("look", {"word": "a"}), Say("Seen.")]
        async with staged(sqlite_store, threads, tmp_path, script, env=env) as stage:
            await stage.say("look")
            lines = (tmp_path / "logs" / "payload.jsonl").read_text().splitlines()
            payload = [json.loads(line) for line in lines]
            assert [p["event"] for p in payload] == ["request", "response"] * 2
            assert payload[0]["messages"][-1]["content"] == "look"
            raw = (tmp_path / "logs" / "raw-stream.jsonl").read_text().splitlines()
            assert json.loads(raw[0])["data"]["phase"] == "start"
            steps = tmp_path / "logs" / "trajectory" / f"{stage.session().id}.jsonl"
            await until(lambda: "turn.end" in steps.read_text())
            assert [json.loads(s)["type"] for s in steps.read_text().splitlines()] == [
                "turn.start",
                "model",
                "tool",
                "model",
                "turn.end",
            ]

    asyncio.run(main())


def test_a_turn_in_the_log_that_nobody_asked_for_here_is_run_by_its_own_terms(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    """A message that another program put on the agenda with the log's own means."""

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Yes.")]) as stage:
            from builders import accept

            turn = accept(sqlite_store, "hello", key="foreign")
            assert (await soon(stage.runs.wait(turn.id))).reply == "Yes."
            with sqlite_store.read(OWNER) as tx:
                assert agenda.get(tx, turn.agenda_id or "").status == "done"
                assert turns.get(tx, turn.id).input_id is not None
                assert entries.head(tx) == 2
            assert stage.session(KEY).turn_count == 1

    asyncio.run(main())
