"""Speaking into a session whose turn is under way: joining it, waiting, cutting it short."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from loop_stage import Stage, ask, staged

from builders import PATIENCE, soon, until
from holdfast.errors import Busy
from holdfast.log import FOR_OWNER, OWNER, Store, Threads, agenda, turns
from holdfast.testing import Call, Calls, Fail, Say, Stall, unauthorised


def texts(stage: Stage, number: int) -> list[tuple[str, str]]:
    """What the model was sent in one request, without the system prompt and the carrier."""
    found = [(m["role"], str(m.get("content"))) for m in stage.server.requests[number].messages]
    return [(role, text) for role, text in found if role != "system" and "<holdfast:now>" not in text]


def test_a_message_steers_the_running_turn_and_calls_not_begun_are_left(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    script = [
        Calls(Call("wait", {"word": "a"}, id="c1"), Call("act", {"word": "b"}, id="c2")),
        Say("As you wish."),
    ]

    async def main() -> None:
        async with staged(store, threads, tmp_path, [*script, Say("Next.")]) as stage:
            first = await stage.runs.accept(ask("go"))
            await soon(stage.begun.wait())
            joined = await stage.runs.accept(ask("rather not b", mode="steer", key="s1"))
            assert joined.joined
            assert joined.run_id == first.run_id
            again = await stage.runs.accept(ask("rather not b", mode="steer", key="s1"))
            assert (again.run_id, again.entry_id, again.created) == (first.run_id, joined.entry_id, False)
            stage.gate.set()
            status = await soon(stage.runs.wait(first.run_id))
            assert status.reply == "As you wish."
            assert stage.ran == ["wait a"]
            sent = texts(stage, 1)
            assert [role for role, _ in sent] == ["user", "assistant", "tool", "tool", "user"]
            assert sent[2][1] == "waited a"
            assert "Not run: the user wrote" in sent[3][1]
            assert sent[4][1] == "rather not b"
            assert len(stage.turns()) == 1
            await stage.say("and now?")
            assert texts(stage, 2)[:5] == sent

    asyncio.run(main())


def test_of_many_messages_in_every_mode_each_is_stored_once_and_answered(
    store: Store, threads: Threads, tmp_path: Path
) -> None:
    """Whatever they meet on their way: a turn that runs, that waits, or that is just being committed."""
    chance = random.Random(7)

    def answer(asked: Any) -> Any:
        last = asked.messages[-1]["role"]
        return Call("look", {"word": "a"}) if last == "user" and chance.random() < 0.4 else Say("Yes.")

    async def main() -> None:
        config = {"messages": {"queue": {"cap": 1000}}}
        async with staged(store, threads, tmp_path, answer, config=config) as stage:
            words = [f"message {number:02}" for number in range(40)]

            async def send(word: str) -> str:
                mode = chance.choice(["steer", "collect", "queue"])
                to = f"agent:main:web:dm:{int(word[-2:]) % 2}"
                both = [stage.runs.accept(ask(word, mode=mode, key=word, session_key=to)) for _ in range(2)]
                first, second = await asyncio.gather(*both)
                assert first.entry_id == second.entry_id
                return first.run_id

            runs = {await send(word) for word in words[:20]}
            runs |= set(await asyncio.gather(*map(send, words[20:])))
            ends = await soon(asyncio.gather(*map(stage.runs.wait, runs)))
            assert {end.status for end in ends} == {"committed"}
            for peer in (0, 1):
                said = [text for role, text in stage.spoken(f"agent:main:web:dm:{peer}") if role == "user"]
                assert sorted(said) == words[peer::2]
            sent = str([request.messages for request in stage.server.requests])
            assert all(word in sent for word in words)

    asyncio.run(main())


def test_a_message_during_the_last_words_is_answered_by_the_same_turn(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def slow(_: Any) -> Say:
        asked.set()
        assert let_go.wait(4 * PATIENCE)
        return Say("The answer.")

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [slow, Say("The rest.")]) as stage:
            first = await stage.runs.accept(ask("a question"))
            await until(asked.is_set)
            await stage.runs.steer(ask("one more thing"))
            let_go.set()
            status = await soon(stage.runs.wait(first.run_id))
            assert status.reply == "The rest."
            assert [text for _, text in stage.spoken()] == [
                "a question",
                "one more thing",
                "The answer.",
                "The rest.",
            ]
            assert [t.status for t in stage.turns()] == ["committed"]

    asyncio.run(main())


def test_what_was_said_into_a_turn_that_failed_gets_a_turn_of_its_own(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    asked, let_go = threading.Event(), threading.Event()

    def slow(_: Any) -> Fail:
        asked.set()
        assert let_go.wait(4 * PATIENCE)
        return unauthorised()

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [slow, Say("Here I am.")]) as stage:
            first = await stage.runs.accept(ask("a question"))
            await until(asked.is_set)
            second = await stage.runs.steer(ask("are you there?", key="s1"))
            let_go.set()
            assert (await soon(stage.runs.wait(first.run_id))).status == "failed"
            again = await stage.runs.steer(ask("are you there?", key="s1"))
            assert again.entry_id == second.entry_id
            assert again.run_id != first.run_id
            status = await soon(stage.runs.wait(again.run_id))
            assert status.reply == "Here I am."
            assert [text for role, text in stage.spoken() if role == "user"] == [
                "a question",
                "are you there?",
            ]

    asyncio.run(main())


def test_without_a_running_turn_a_steering_message_is_a_turn(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Yes.")]) as stage:
            accepted = await stage.runs.steer(ask("hello"))
            assert not accepted.joined
            assert (await soon(stage.runs.wait(accepted.run_id))).reply == "Yes."

    asyncio.run(main())


def test_nobody_speaks_into_a_turn_that_is_run_for_someone_else(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    """Its tools run in the name of the one who asked."""

    async def main() -> None:
        script = [Call("wait", {"word": "a"}), Say("Done."), Say("Hello."), Say("Hm.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            first = await stage.runs.accept(ask("go", sender="ann"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(
                ask("delete it all", sender="eve", owner=False, heard=FOR_OWNER, mode="steer")
            )
            third = await stage.runs.accept(
                ask("stop", sender="eve", owner=False, heard=FOR_OWNER, mode="interrupt")
            )
            assert (second.joined, third.joined) == (False, False)
            stage.gate.set()
            ends = [(await soon(stage.runs.wait(run.run_id))).reply for run in (first, second, third)]
            assert ends == ["Done.", "Hello.", "Hm."]

    asyncio.run(main())


def test_messages_that_wait_are_collected_into_one_turn(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("wait", {"word": "a"}), Say("One."), Say("Two.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            await stage.runs.accept(ask("first"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("second"))
            third = await stage.runs.accept(ask("third"))
            other = await stage.runs.accept(ask("fourth", model="scripted/other"))
            assert (second.joined, third.joined, other.joined) == (False, True, False)
            assert third.run_id == second.run_id
            stage.server.add(Say("Three."))
            stage.gate.set()
            assert (await soon(stage.runs.wait(second.run_id))).reply == "Two."
            assert [text for _, text in texts(stage, 2)][-2:] == ["second", "third"]
            assert (await soon(stage.runs.wait(other.run_id))).model == "scripted/other"

    asyncio.run(main())


def test_an_interrupting_message_stops_the_turn_and_takes_its_place(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(
            sqlite_store, threads, tmp_path, [Call("wait", {"word": "a"}), Say("New.")]
        ) as stage:
            first = await stage.runs.accept(ask("first"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("no, this", mode="interrupt"))
            assert (await soon(stage.runs.wait(first.run_id))).status == "cancelled"
            assert (await soon(stage.runs.wait(second.run_id))).reply == "New."
            sent = texts(stage, 1)
            assert [role for role, _ in sent] == ["user", "assistant", "tool", "user"]
            assert "not recorded" in sent[2][1]

    asyncio.run(main())


@pytest.mark.parametrize("mode", ["steer", "interrupt"])
def test_what_is_said_after_a_cancellation_is_not_lost_with_the_turn_that_is_about_to_end(
    sqlite_store: Store, threads: Threads, tmp_path: Path, mode: Any
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Call("wait"), Say("Then this.")]) as stage:
            first = await stage.runs.accept(ask("one"))
            await soon(stage.begun.wait())
            with sqlite_store.write(OWNER) as tx:  # as another process does it: the owner sees the mark later
                item = turns.get(tx, first.run_id).agenda_id
                agenda.cancel(tx, str(item))
            said = await stage.runs.accept(ask("do this instead", mode=mode))
            assert not said.joined
            await stage.runs.cancel(first.run_id)
            assert (await soon(stage.runs.wait(first.run_id))).status == "cancelled"
            assert (await soon(stage.runs.wait(said.run_id))).reply == "Then this."

    asyncio.run(main())


def test_a_cancelled_turn_keeps_what_the_user_saw_of_it(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Stall("half an ans")]) as stage:
            accepted = await stage.runs.accept(ask("tell me"))
            seen: list[Any] = []
            async for event in stage.runs.subscribe(accepted.run_id):
                seen.append(event)
                if event.data.get("delta"):
                    assert (await stage.runs.cancel(accepted.run_id)).status == "cancelled"
            assert seen[-1].data == {"phase": "end", "status": "cancelled", "text": "half an ans"}
            status = await soon(stage.runs.wait(accepted.run_id))
            assert (status.status, status.error) == ("cancelled", "cancelled")
            assert stage.spoken() == [("user", "tell me"), ("assistant", "half an ans")]

    asyncio.run(main())


def test_a_waiting_turn_is_cancelled_before_it_begins(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Call("wait"), Say("One.")]) as stage:
            first = await stage.runs.accept(ask("first"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("second", mode="queue"))
            assert (await stage.runs.cancel(second.run_id)).status == "cancelled"
            stage.gate.set()
            assert (await soon(stage.runs.wait(first.run_id))).ok
            assert len(stage.server.requests) == 2

    asyncio.run(main())


def test_a_full_queue_refuses_and_stores_nothing(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    config = {"messages": {"queue": {"cap": 1, "mode": "followup", "drop": "new"}}}

    async def main() -> None:
        script = [Call("wait"), Say("One."), Say("Two.")]
        async with staged(sqlite_store, threads, tmp_path, script, config=config) as stage:
            await stage.runs.accept(ask("first"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("second"))
            with pytest.raises(Busy):
                await stage.runs.accept(ask("third"))
            stage.gate.set()
            await soon(stage.runs.wait(second.run_id))
            assert "third" not in [text for _, text in stage.spoken()]

    asyncio.run(main())
