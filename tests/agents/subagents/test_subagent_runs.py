"""Delegated work through the real loop: sent off, done, brought back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from subagent_stage import THREAD, TO, World, spawn, spawns

from builders import KEY
from holdfast.agents.loop import Ask
from holdfast.board import lineage, supervision
from holdfast.context import ContextRoom, Rollback, SpawnParams
from holdfast.errors import Unavailable
from holdfast.log import FOR_OWNER, OWNER, Store, Threads, notes, outbox, sessions
from holdfast.testing import Call, Fail, Say, Stall
from holdfast.testing.script import Asked

Play = Callable[[World], Awaitable[None]]
Stage = Callable[..., None]


@pytest.fixture
def play(sqlite_store: Store, threads: Threads, tmp_path: Path) -> Stage:
    def run(work: Play, **options: object) -> None:
        async def main() -> None:
            async with World(sqlite_store, threads, tmp_path, **options) as world:
                world.when("return", Say("All told."))
                await work(world)

        asyncio.run(main())

    return run


def result(world: World, words: str) -> str:
    """What the last call brought that the model made when it was asked with these words."""
    found = json.loads(world.requests(words)[-1])
    text = str(next(m for m in found[::-1] if m["role"] == "tool")["content"])
    return text.split("\n")[1] if text.startswith("<holdfast:data") else text


def test_a_task_is_sent_off_at_once_and_its_result_comes_back_in_one_turn(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("count the boats", Call("hold"), Say("There are 12 boats."))
        world.when("how many", spawn("count the boats", label="boats"), Say("Someone counts."))
        world.when("return", Say("It is twelve."))
        first = await world.say("how many boats?", deliver=TO)
        world.gate.set()
        assert first.reply == "Someone counts."
        (run,) = await world.settled()
        answer = json.loads(result(world, "how many"))
        assert (answer["status"], answer["runId"]) == ("accepted", run.run_id)
        assert answer["childSessionKey"] == run.child_key
        (request,) = world.requests("return")
        for line in ("Subagent: boats", "Status: success", "tokens 20 in, 10 out, 30 in all", "cost $0.0000"):
            assert line in request
        assert 'trust=\\"other_session\\"' in request
        assert request.count("There are 12 boats.") == 1
        assert [turn.trigger for turn in world.turns()] == ["user", "subagent-return"]
        assert (run.outcome, run.announce, run.asks) == ("success", "delivered", 1)
        with world.store.read(OWNER) as tx:
            sent = sorted(outbox.listing(tx), key=lambda parcel: parcel.id)
            assert [(p.target, p.payload["text"]) for p in sent] == [
                ("chat:42", "Someone counts."),
                ("chat:42", "It is twelve."),
            ]
            assert run.run_id is not None
            assert supervision.get(tx, run.run_id).status is supervision.RunStatus.DONE
            assert supervision.open_runs(tx) == []
            link = lineage.find(tx, run.child_key)
            assert link is not None
            assert link.parent_key == KEY

    play(work)


def test_children_run_so_many_at_once_and_think_as_the_config_says(play: Stage) -> None:
    async def work(world: World) -> None:
        for place in ("bow", "stern"):
            world.when(f"look at the {place}", Call("hold"), Say("Seen."))
        world.when("send off", spawns("look at the bow", "look at the stern"), Say("Gone."))
        world.when("hello", Say("Hi."))
        await world.say("send off")
        await world.begun.wait()
        for _ in range(3):
            await world.say("hello")
        assert world.holding == 1
        world.gate.set()
        runs = await world.settled(2)
        assert [(world.session(run.child_key).meta or {})["thinking"] for run in runs] == ["low", "low"]

    play(work, subagents={"maxConcurrent": 1, "thinking": "low"})


def test_a_child_is_told_its_place_and_has_neither_the_session_tools_nor_more_rights(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("look around", Say("Seen."))
        world.when("send off", spawn("look around", model="scripted/other", thinking="low"), Say("Gone."))
        await world.say("send off", sender="bob", owner=False, heard=FOR_OWNER)
        (run,) = await world.settled()
        child = world.session(run.child_key)
        assert (child.parent_key, child.chat_type) == (KEY, "direct")
        assert child.meta is not None
        assert (child.meta["depth"], child.meta["model"], child.meta["thinking"]) == (
            1,
            "scripted/other",
            "low",
        )
        (turn,) = world.turns(run.child_key)
        assert turn.meta is not None
        assert (turn.meta["ask"]["sender"], turn.meta["ask"]["owner"]) == ("bob", False)
        assert (turn.trigger, turn.model) == ("subagent", "scripted/other")
        back = world.returns()[0].meta
        assert back is not None
        assert (back["ask"]["sender"], back["ask"]["owner"]) == ("bob", False)
        (request,) = world.requests("look around")
        assert "You are a subagent: session agent:main:main" in request
        assert "send off" not in [m["content"] for m in json.loads(request)]
        assert world.tools_of("look around") == {"session_status", "hold"}
        assert {"sessions_spawn", "subagents"} <= world.tools_of("send off")

    play(work)


def test_silence_where_a_result_is_waited_for_is_an_error_whatever_the_model_says(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("be silent", Say("NO_REPLY"))
        world.when("boast", Say("Status: error. I failed completely."))
        world.when("break", Fail(400, "no", trouble="bad_request"))
        world.when("send off", spawns("be silent", "boast", "break"), Say("Gone."))
        await world.say("send off")
        silent, boast, broken = await world.settled(3)
        assert (silent.outcome, boast.outcome, broken.outcome) == ("error", "success", "error")
        assert silent.error is not None
        assert "missing deliverable" in silent.error
        assert "Status: success" in (boast.announcement or "").splitlines()[1]
        assert "Result: none" in (broken.announcement or "")

    play(work)


def test_what_expects_no_message_lies_ready_and_wakes_nobody(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("quietly", Say("NO_REPLY"))
        world.when("softly", Say("Done softly."))
        asks = spawns("quietly", "softly", expectsCompletionMessage=False)
        world.when("send off", asks, Say("Gone."))
        world.when("anything new?", Say("Yes."))
        await world.say("send off")
        quiet, soft = await world.settled(2)
        assert (quiet.outcome, soft.outcome, world.returns()) == ("success", "success", [])
        await world.say("anything new?")
        (request,) = world.requests("anything new?")
        assert request.count("Done softly.") == 1
        assert [run.announce for run in world.children()] == ["delivered", "delivered"]

    play(work)


def test_children_that_end_while_the_parent_is_busy_give_one_turn(play: Stage) -> None:
    async def work(world: World) -> None:
        for n in range(3):
            world.when(f"part {n}", Say(f"result {n}"))
        world.when("be busy", Call("hold"), Say("Was busy."))
        busy = asyncio.create_task(world.say("be busy"))
        await world.begun.wait()
        for n in range(3):
            await world.spawned(f"part {n}")
        await world.until(lambda: all(not run.live for run in world.children()))
        assert world.returns() == []
        world.gate.set()
        await busy
        await world.settled(3)
        requests = [*world.requests("be busy"), *world.requests("return")]
        assert [sum(f"\\nresult {n}\\n" in r for r in requests) for n in range(3)] == [1, 1, 1]
        assert len(world.returns()) <= 1

    play(work)


def test_a_spawn_that_may_not_be_is_refused_by_name_and_leaves_nothing(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("a stranger", spawn("x", agentId="work"), Say("No."))
        world.when("a phantom", spawn("x", model="nowhere/nothing"), Say("No."))
        world.when("a thread", spawn("x", thread=True), Say("No."))
        world.when("two at once", spawns("hang about", "hang on"), Say("One."))
        world.when("hang", Call("hold"), Say("Held."))
        for words, told in (
            ("a stranger", "may not spawn agent 'work'"),
            ("a phantom", "cannot be used"),
            ("a thread", "threads cannot be opened"),
        ):
            await world.say(words)
            assert told in result(world, words)
            assert world.children() == []
        await world.say("two at once")
        assert "which is the most" in result(world, "two at once")
        assert len(world.children()) == 1
        with world.store.read(OWNER) as tx:
            assert len(sessions.listing(tx, parent_key=KEY)) == 1

    play(work, agents=[{"id": "work"}], subagents={"maxChildrenPerAgent": 1})


def test_a_fork_begins_with_the_history_and_an_isolated_child_without(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("the secret word is plum", Say("Noted."))
        world.when("forked child", Say("plum"))
        world.when("lonely child", Say("what word?"))
        world.when(
            "send off", Call("sessions_spawn", {"task": "forked child", "context": "fork"}), Say("Gone.")
        )
        world.when("again", spawn("lonely child"), Say("Gone."))
        await world.say("the secret word is plum")
        await world.say("send off")
        await world.settled()
        await world.say("again")
        await world.settled(2)
        (forked,) = world.requests("forked child")
        (lonely,) = world.requests("lonely child")
        assert "the secret word is plum" in forked
        assert "the secret word is plum" not in lonely

    play(work)


class Unready(ContextRoom):
    """A context room whose engine fails to ready a child, or counts what it takes back."""

    taken_back = 0
    broken = False

    async def prepare_subagent_spawn(self, params: SpawnParams) -> Rollback:
        if self.broken:
            raise Unavailable("the engine is not ready")
        rollback = await super().prepare_subagent_spawn(params)

        async def counted() -> None:
            self.taken_back += 1
            await rollback()

        return counted


def test_a_spawn_that_fails_half_way_is_taken_back_whole(
    play: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(world: World) -> None:
        world.context.__class__ = Unready
        room = world.context
        assert isinstance(room, Unready)
        world.when("engine", spawn("x", context="fork"), Say("No."))
        world.when("store", spawn("x", context="fork"), Say("No."))
        room.broken = True
        await world.say("engine fails")
        assert "the engine is not ready" in result(world, "engine")
        room.broken = False

        def fails(*_: object, **__: object) -> None:
            raise Unavailable("the disk is full")

        monkeypatch.setattr(supervision, "watch", fails)
        await world.say("store fails")
        assert "the disk is full" in result(world, "store")
        assert room.taken_back == 1
        for run in world.children():
            assert (run.status, run.outcome, run.run_id) == ("ended", "error", None)
            assert world.session(run.child_key).status == "archived"
            assert world.log(run.child_key) == []
        assert world.returns() == []
        with world.store.read(OWNER) as tx:
            assert notes.waiting(tx, KEY) == []

    play(work)


def test_stopping_a_turn_stops_what_it_sent_off_and_asks_for_no_turn(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Say("Held."))
        world.when("send off", spawns("hang about"), Call("hold"), Say("Gone."))
        accepted = await world.runs.accept(Ask(text="send off", session_key=KEY))
        await world.live()
        await world.until(lambda: len(world.asked) >= 3)
        status = await world.runs.cancel(accepted.run_id)
        assert status.run_id == accepted.run_id
        (run,) = await world.settled()
        assert (run.outcome, run.announce) == ("cancelled", "quiet")
        assert [turn.status for turn in world.turns(run.child_key)] == ["cancelled"]
        assert world.returns() == []

    play(work)


def test_a_run_that_takes_too_long_is_ended_and_its_requester_is_told(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold", text="I begin."), Say("Held."))
        world.when("send off", spawn("hang about", runTimeoutSeconds=60), Say("Gone."))
        await world.say("send off")
        await world.live()
        await world.begun.wait()
        began = world.children()[0].started_at
        assert began is not None
        assert world.due("subagent.stop") == [began + 60_000]
        world.forward(61_000)
        (run,) = await world.settled()
        assert (run.outcome, run.announce) == ("timeout", "delivered")
        (request,) = world.requests("return")
        assert "Status: timeout (it took longer than 60 seconds)" in request
        assert "I begin." in request
        assert "runtime 1m 1s" in request

    play(work)


def test_a_finished_session_is_archived_in_its_time_and_a_deleted_one_at_once(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("stay", Say("Stayed."))
        world.when("vanish", Say("Vanished."))
        world.when("linger", Say("Lingers."))
        world.when("job one", spawn("stay"), Say("Gone."))
        world.when("job two", spawn("vanish", cleanup="delete"), Say("Gone."))
        world.when("job three", spawn("linger", mode="session"), Say("Gone."))
        for count, words in enumerate(("job one", "job two", "job three"), 1):
            await world.say(words)
            await world.settled(count)
        stay, vanish, linger = world.children()
        await world.until(lambda: world.session(vanish.child_key).status == "archived")
        assert world.session(stay.child_key).status == "active"
        assert stay.ended_at is not None
        await world.until(lambda: world.due("subagent.sweep") == [stay.ended_at + 60 * 60_000])
        world.forward(60 * 60_000)
        await world.until(lambda: world.children()[0].archived_at is not None)
        assert world.session(stay.child_key).archive_cause == "subagent_keep"
        assert world.session(linger.child_key).status == "active"
        assert [e.content for e in world.log(vanish.child_key) if e.role == "assistant"] == ["Vanished."]

    play(work)


def test_a_child_that_delegates_comes_back_when_its_own_children_have(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("leaf work", Say("leaf result"))
        world.when("middle work", spawn("leaf work"), Say("I wait for a leaf."))
        world.when("send off", spawn("middle work"), Say("Gone."))

        def back(asked: Asked) -> Say:
            middle = "whole result of your own" in json.dumps(asked.messages)
            return Say("middle result with leaf result" if middle else "All told.")

        world.answers["return"] = back
        await world.say("send off")
        (middle,) = await world.settled()
        (leaf,) = world.children(middle.child_key)
        assert (leaf.depth, leaf.outcome, leaf.announce) == (2, "success", "delivered")
        assert (middle.outcome, middle.said) == ("success", "middle result with leaf result")
        assert [turn.trigger for turn in world.turns(middle.child_key)] == ["subagent", "subagent-return"]
        assert len(world.returns()) == 1
        assert middle.usage is not None
        assert middle.usage["inputTokens"] == 30
        assert "sessions_spawn" not in world.tools_of("leaf work")
        assert "sessions_list" in world.tools_of("middle work")

    play(work, subagents={"maxSpawnDepth": 2})


def test_a_thread_bound_child_is_answered_in_its_thread_or_speaks_there_itself(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("headless", Say("Found it."))
        world.when("speaker", Say("Hello, thread."))
        world.when("job one", spawn("headless", thread=True), Say("Gone."))
        world.when("job two", spawn("speaker", thread=True, expectsCompletionMessage=False), Say("Gone."))
        world.when("return", Fail(400, "no", trouble="bad_request"), Say("They found it."))
        await world.say("job one", deliver=TO)
        await world.until(lambda: [turn.status for turn in world.returns()] == ["failed"])
        world.forward(120_000)
        await world.settled()
        await world.say("job two", deliver=TO)
        await world.settled(2)
        with world.store.read(OWNER) as tx:
            sent = [(p.target, p.payload["text"]) for p in outbox.listing(tx) if p.payload["text"]]
        assert sorted(sent) == [
            (TO.target, "Gone."),
            (TO.target, "Gone."),
            (THREAD.target, "Hello, thread."),
            (THREAD.target, "They found it."),
        ]
        for request in world.requests("return"):
            assert request.count("Found it.") == 1
            assert 'trust=\\"other_session\\"' in request
        world.when("anything new?", Say("Yes."))
        await world.say("anything new?")
        assert [run.announce for run in world.children()] == ["delivered", "delivered"]
        assert [run.mode for run in world.children()] == ["session", "session"]

    play(work, thread=True)


def test_a_requester_that_was_reset_is_reached_under_its_key_and_one_that_is_gone_loses_nothing(
    play: Stage,
) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Call("hold"), Say("Late result."))
        world.when("send off", spawn("hang about"), Say("Gone."), spawn("hang about"), Say("Gone."))
        world.when("anything new?", Say("Yes."))
        other = "agent:main:chat:dm:7"
        await world.say("send off")
        await world.say("send off", session_key=other)
        await world.until(lambda: bool(world.children()) and bool(world.children(other)))
        await world.until(lambda: all(world.children(key)[0].status == "running" for key in (KEY, other)))
        with world.store.write(OWNER) as tx:
            sessions.reset(tx, sessions.find(tx, KEY), cause="daily")
            sessions.archive(tx, sessions.find(tx, other), cause="test")
        world.gate.set()
        (run,) = await world.settled()
        assert (run.announce, len(world.returns())) == ("delivered", 1)
        (kept,) = await world.settled(key=other)
        assert (kept.outcome, kept.announce) == ("success", "quiet")
        await world.say("anything new?", session_key=other)
        assert world.children(other)[0].announce == "delivered"
        assert world.requests("anything new?")[0].count("Late result.") == 1

    play(work)


def test_a_return_that_cannot_be_answered_is_asked_for_again_a_few_times_and_then_kept(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("count", Say("Twelve."))
        world.when("send off", spawn("count"), Say("Gone."))
        world.when("return", Fail(400, "no", trouble="bad_request"))
        world.when("anything new?", Say("Yes."))
        await world.say("send off")
        for asked in (1, 2, 3):
            await world.until(lambda asked=asked: len(world.returns()) == asked)
            await world.until(lambda: all(turn.status == "failed" for turn in world.returns()))
            await world.until(lambda: world.children()[0].announce != "asked")
            world.forward(120_000 * asked)
        (run,) = await world.settled()
        assert (run.announce, run.asks) == ("quiet", 3)
        await world.say("anything new?")
        assert world.requests("anything new?")[0].count("Twelve.") == 1
        assert world.children()[0].announce == "delivered"

    play(work)


def test_subagents_are_listed_stopped_and_spoken_to_by_model_and_user(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Say("Held and heard."), Call("hold"))
        world.when("more of it", Call("hold"), Say("Second result."))
        sent = (spawn("hang about", label="hanger", mode="session"), Say("Gone."))
        world.when("send off", *sent, *sent)
        world.when("list them", Call("subagents"), Say("Listed."))
        world.when("show sessions", Call("sessions_list"), Say("Shown."))
        world.when(
            "tell it",
            Call("subagents", {"action": "send", "target": "hanger", "message": "hurry"}),
            Say("Told."),
        )
        world.when(
            "ask it",
            Call("subagents", {"action": "send", "target": "hanger", "message": "more of it"}),
            Say("Asked."),
        )
        await world.say("send off")
        await world.live()
        await world.begun.wait()
        shown = await world.say("/subagents")
        assert shown.reply is not None
        assert "hanger: running" in shown.reply
        await world.say("list them")
        listed = json.loads(result(world, "list them"))["subagents"]
        assert [(row["label"], row["status"]) for row in listed] == [("hanger", "running")]
        await world.say("show sessions")
        seen = json.loads(result(world, "show sessions"))["sessions"]
        assert (world.children()[0].child_key, KEY) in [(row["key"], row["parentKey"]) for row in seen]
        await world.say("tell it")
        assert json.loads(result(world, "tell it"))["status"] == "joined"
        world.gate.set()
        (run,) = await world.settled()
        assert "hurry" in [e.content for e in world.log(run.child_key)]
        world.gate.clear()
        await world.say("ask it")
        world.gate.set()
        first, second = await world.settled(2)
        assert second.child_key == first.child_key
        assert second.said == "Second result."
        assert len(world.returns()) == 2
        world.gate.clear()
        await world.say("send off")
        await world.until(lambda: world.children()[-1].status == "running")
        stopped = await world.say("/subagents stop all")
        assert stopped.reply == "Stopping hanger."
        runs = await world.settled(3)
        assert (runs[-1].outcome, runs[-1].announce) == ("cancelled", "quiet")
        wrong = await world.say("/subagents stop nobody")
        assert wrong.reply is not None
        assert "no subagent 'nobody'" in wrong.reply

    play(work)


def test_a_child_whose_effect_is_in_doubt_when_its_gateway_ends_is_told_of_and_not_begun_again(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with World(sqlite_store, threads, tmp_path) as before:
            before.when("hang about", Call("hold", text="Half of it."), Say("Never said."))
            before.when("send off", spawn("hang about"), Say("Gone."))
            await before.say("send off")
            await before.live()
            await before.begun.wait()
            await before.runner.stop(0.0)
            (run,) = before.children()
            assert (run.outcome, run.announce) == ("interrupted", "waiting")
        async with World(sqlite_store, threads, tmp_path) as after:
            after.when("return", Say("It was cut off."))
            (run,) = await after.settled()
            assert (run.outcome, run.announce) == ("interrupted", "delivered")
            assert [turn.status for turn in after.turns(run.child_key)] == ["interrupted"]
            (request,) = after.requests("return")
            assert "Status: interrupted" in request
            assert "Half of it." in request
            assert after.requests("hang about") == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Say("word " * 3_000, chunks=3_000, pause=0.01), "hanger is still running"),
        (Stall(), "hanger is silent"),
    ],
)
def test_what_a_model_streams_is_a_sign_of_life_and_a_lease_that_is_renewed_is_none(
    play: Stage, answer: Any, told: str
) -> None:
    async def work(world: World) -> None:
        world.when("hang about", answer)
        world.when("send off", spawn("hang about", label="hanger"), Say("Gone."))
        await world.say("send off")
        (run,) = await world.live()
        await world.until(lambda: bool(world.requests("hang about")))
        for _ in range(6):
            world.forward(60_000)
            if isinstance(answer, Say):
                await world.until(lambda: _is_heard(world, run.child_key))
            await world.runner._renew_all()
        await world.until(lambda: any("hanger is" in e.content for e in world.log()))
        (line,) = [e.content for e in world.log() if "hanger is" in e.content]
        assert line.startswith(told)
        await world.runs.cancel(str(run.run_id))
        await world.settled()

    play(work)


def _is_heard(world: World, lane: str) -> bool:
    return any(job.heard for job, _ in world.runner._jobs.values() if job.item.lane == lane)


def test_long_work_is_supervised_told_of_and_nudged(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Say("Held."))
        world.when("send off", spawn("hang about", label="hanger"), Say("Gone."))
        await world.say("send off")
        (run,) = await world.live()
        await world.begun.wait()
        world.forward(6 * 60_000)
        await world.until(lambda: any("hanger is silent" in e.content for e in world.log()))
        said = [e for e in world.log(run.child_key) if e.role == "user"]
        assert said[0].content == "hang about"
        assert "nothing was heard of you" in said[1].content
        assert (said[1].agent_id, said[1].code) == ("holdfast", "filtered_non_semantic")
        world.forward(2 * 3_600_000)
        listed = await world.say("/subagents")
        assert "hanger: running (stale)" in (listed.reply or "")
        world.gate.set()
        (run,) = await world.settled()
        assert run.outcome == "success"

    play(work)


def test_stopping_a_session_stops_what_it_delegated_earlier(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Say("Held."))
        world.when("send off", spawn("hang about"), Say("Gone."))
        await world.say("send off")
        await world.live()
        assert (await world.say("/stop")).reply == "Stopped 1 subagent and 1 turn."
        (run,) = await world.settled()
        assert (run.outcome, run.announce, world.returns()) == ("cancelled", "quiet", [])
        assert (await world.say("/stop")).reply == "Nothing was running."

    play(work)


def test_a_run_is_bounded_kept_and_asked_for_again_as_the_config_says(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("hang about", Call("hold"), Say("Held."))
        world.when("send off", spawn("hang about"), Say("Gone."))
        world.when("return", Fail(400, "no", trouble="bad_request"))
        await world.say("send off")
        await world.live()
        await world.begun.wait()
        began = world.children()[0].started_at
        assert began is not None
        assert world.due("subagent.stop") == [began + 33_000]
        assert {a.model for a in world.asked if "hang about" in json.dumps(a.messages[-1])} == {"other"}
        world.gate.set()
        await world.until(lambda: world.children()[0].ended_at is not None)
        await world.until(lambda: len(world.returns()) == 1 and world.returns()[0].status == "failed")
        await world.until(lambda: world.children()[0].announce == "waiting")
        ended = world.children()[0].ended_at
        assert ended is not None
        await world.until(lambda: world.due("subagent.sweep") == [ended + 7 * 60_000])
        world.forward(1_500)
        await world.until(lambda: len(world.returns()) == 2)

    options = {"runTimeoutSeconds": 33, "archiveAfterMinutes": 7, "announceTimeoutMs": 1_500}
    play(work, subagents={**options, "model": "scripted/other"})


def test_a_finished_session_goes_at_once_where_the_config_says_so(play: Stage) -> None:
    async def work(world: World) -> None:
        world.when("vanish", Say("Vanished."))
        world.when("send off", spawn("vanish"), Say("Gone."))
        await world.say("send off")
        await world.settled()
        await world.until(lambda: world.session(world.children()[0].child_key).status == "archived")

    play(work, subagents={"cleanup": "delete"})
