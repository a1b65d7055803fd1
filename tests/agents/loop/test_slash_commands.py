"""Slash commands: answered at once, recorded, and never shown to a model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from loop_stage import Stage, ask, staged

from builders import soon, until
from holdfast.agents.approvals import ApprovalRequest, ApprovalStatus, allowlist, requests
from holdfast.agents.loop import Deliver
from holdfast.agents.loop.parts import ApprovalHook
from holdfast.log import FOR_OWNER, OWNER, Store, Threads, outbox, turns
from holdfast.testing import Call, Say, Used


async def command(stage: Stage, text: str, **fields: Any) -> str:
    accepted = await stage.runs.accept(ask(text, **fields))
    assert accepted.reply is not None, text
    return accepted.reply


def test_commands_about_the_session_answer_without_a_model(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(
            sqlite_store, threads, tmp_path, [Say("Yes.", used=Used(1200, 30)), Say("Two.")]
        ) as stage:
            assert "No model has been called" in await command(stage, "/context")
            await stage.say("hello")
            told = await command(stage, "/status", key="c1")
            assert "scripted/scripted" in told
            assert "1,230 of 111,616 tokens (1%)" in told
            assert await command(stage, "/status", key="c1") == told
            assert "in 1,200, out 30" in await command(stage, "/usage")
            assert "$0.0013" in await command(stage, "/usage")
            assert "AGENTS.md" in await command(stage, "/context")
            assert "/compact" in await command(stage, "/help")
            assert await command(stage, "/compact") == "There is nothing to compact yet."
            assert "look" in await command(stage, "/tools")
            assert "look is allowed by profile" in await command(stage, "/tools look")
            assert "no tool 'loook'" in await command(stage, "/tools loook")
            assert "owner" in await command(stage, "/whoami")
            assert len(stage.server.requests) == 1
            await stage.say("go on")
            assert not any("/status" in str(m.get("content")) for m in stage.server.requests[1].messages)
            recorded = [e for e in stage.log() if e.content in ("/status", told)]
            assert [(e.type, e.status, e.role) for e in recorded] == [
                ("system", "classified", "user"),
                ("system", "classified", "assistant"),
            ]

    asyncio.run(main())


def test_a_new_session_begins_by_command_and_takes_the_choices_of_the_old_with_it_never(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(
            sqlite_store, threads, tmp_path, [Say("One."), Say("Two."), Say("Three.")]
        ) as stage:
            await stage.say("hello")
            old = stage.session().id
            assert "scripted/other" in await command(stage, "/model scripted/other")
            assert "scripted/other" in await command(stage, "/models")
            assert (await stage.say("again")).model == "scripted/other"
            assert await command(stage, "/think high") == "Thinking: high, until the next /new."
            assert "high" in await command(stage, "/think")
            assert "no such level" in await command(stage, "/think hardest")
            assert await command(stage, "/new") == "A new session has begun."
            assert stage.session().id != old
            assert await command(stage, "/model") == "Model: scripted/scripted"
            assert (await stage.say("and now")).model == "scripted/scripted"
            assert "not a model" in await command(stage, "/model nonsense")

    asyncio.run(main())


def test_a_stranger_resets_and_stops_nothing(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("One."), Say("Two.")]) as stage:
            await stage.say("hello")
            here = stage.session().id
            for text in ("/new", "/stop", "/model scripted/other", "/compact"):
                assert "for the owner alone" in await command(stage, text, owner=False, heard=FOR_OWNER)
            assert (await stage.say("/new words", owner=False, heard=FOR_OWNER)).reply == "Two."
            assert stage.session().id == here
            assert stage.server.requests[1].last_text == "/new words"

    asyncio.run(main())


def test_stop_ends_what_runs_and_what_waits(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Call("wait")]) as stage:
            first = await stage.runs.accept(ask("one"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("two", mode="queue"))
            assert "under way" in await command(stage, "/compact")
            assert await command(stage, "/stop") == "Stopped 2 turns."
            ends = [(await soon(stage.runs.wait(r.run_id))).status for r in (first, second)]
            assert ends == ["cancelled", "cancelled"]
            assert await command(stage, "/stop") == "Nothing was running."

    asyncio.run(main())


@pytest.mark.parametrize("text", ["/new", "/new and then?"])
def test_a_new_session_stops_what_runs_and_waits_in_the_old_one_so_that_nobody_waits_behind_it(
    store: Store, threads: Threads, tmp_path: Path, text: str
) -> None:
    async def main() -> None:
        async with staged(store, threads, tmp_path, [Call("wait"), Say("Here.")]) as stage:
            first = await stage.runs.accept(ask("one"))
            await soon(stage.begun.wait())
            second = await stage.runs.accept(ask("two", mode="queue"))
            said = await stage.runs.accept(ask(text, deliver=Deliver(kind="pier", target="pier:42")))
            ends = [await soon(stage.runs.wait(r.run_id)) for r in (first, second)]
            assert [(end.status, end.error) for end in ends] == [("cancelled", "a new session was begun")] * 2
            told = "Ended with the former session: 2 turns."
            if said.reply is None:
                assert said.told == told
                assert told in [entry.content for entry in stage.log() if entry.type == "system"]
                reply = (await soon(stage.runs.wait(said.run_id))).reply
                with store.read(OWNER) as tx:
                    sent = sorted(outbox.listing(tx), key=lambda parcel: parcel.id)
                assert [parcel.payload["text"] for parcel in sent] == [told, "Here."]
            else:
                assert said.reply == f"A new session has begun. {told}"
                reply = (await stage.say("and then?")).reply
            assert reply == "Here."
            assert stage.server.requests[-1].last_text == "and then?"

    asyncio.run(main())


def test_what_is_no_command_to_its_caller_begins_no_session_either(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("One."), Say("Two.")]) as stage:
            await stage.say("hello")
            here = stage.session().id
            assert (await stage.say("/new", commands=False)).reply == "Two."
            assert stage.session().id == here
            assert stage.server.requests[1].last_text == "/new"

    asyncio.run(main())


def test_approvals_are_given_and_refused_by_command(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    def wanted(text: str, session_key: str | None = None) -> str:
        request = ApprovalRequest(
            agent_id="main",
            tool="exec",
            command=text,
            arguments={"command": text},
            reason="ask",
            session_key=session_key,
        )
        with sqlite_store.write(OWNER) as tx:
            return requests.request(tx, request, lasts_ms=60_000).id

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path) as stage:
            assert "nothing waits" in await command(stage, "/approve")
            first = wanted("make test")
            assert "for the owner alone" in await command(stage, "/approve", owner=False, heard=FOR_OWNER)
            assert await command(stage, "/approve", sender="ann") == "Approved: make test"
            elsewhere = wanted("rm -r /", "agent:main:webhook:group:g1")
            told = await command(stage, "/approve")
            assert "in other sessions" in told
            assert elsewhere in told
            assert await command(stage, f"/deny {elsewhere}") == "Denied: rm -r /"
            second, third = wanted("make all"), wanted("make docs", stage.session().key)
            assert "2 calls wait" in await command(stage, "/deny")
            assert "no approval" in await command(stage, f"/approve {third[-1]}")
            assert await command(stage, f"/deny {second[-8:]}") == "Denied: make all"
            assert await command(stage, "/approve always make *") == "Approved for good: make docs"
            with sqlite_store.read(OWNER) as tx:
                states = {
                    a.id: (a.status, a.decided_by) for a in requests.get_many(tx, [first, second, third])
                }
                assert states == {
                    first: ("approved", "ann"),
                    second: ("denied", "owner"),
                    third: ("approved", "owner"),
                }
                assert "make *" in [one.pattern for one in allowlist.listing(tx, "main")]

    asyncio.run(main())


def test_nobody_is_asked_about_a_call_whose_turn_was_stopped(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("asking", {"word": "make clean"}), Call("asking", {"word": "make"}), Say("Made.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            stage.hooks.append(ApprovalHook())

            def waiting() -> list[str]:
                with sqlite_store.read(OWNER) as tx:
                    return [a.command for a in requests.listing(tx, status=ApprovalStatus.PENDING)]

            first = await stage.runs.accept(ask("clean up"))
            await until(lambda: waiting() == ["make clean"])
            assert await command(stage, "/stop") == "Stopped 1 turn."
            await soon(stage.runs.wait(first.run_id))
            assert waiting() == []
            assert await command(stage, "/approve") == "nothing waits for approval."
            second = await stage.runs.accept(ask("make it"))
            await until(lambda: waiting() == ["make"])
            assert await command(stage, "/approve") == "Approved: make"
            assert (await soon(stage.runs.wait(second.run_id))).reply == "Made."

    asyncio.run(main())


def test_a_skill_is_called_by_its_name_through_the_agent_or_straight_to_its_tool(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    def skill(name: str, head: str = "") -> None:
        folder = tmp_path / "workspace" / "skills" / name
        folder.mkdir(parents=True)
        text = f"---\nname: {name}\ndescription: For the {name}.\n{head}---\nDo it well.\n"
        (folder / "SKILL.md").write_text(text)

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("Tidied.")]) as stage:
            skill("tidy-up")
            skill("direct", "command-dispatch: tool\ncommand-tool: act\n")
            assert (await stage.say("/tidy_up the desk")).reply == "Tidied."
            sent = stage.server.requests[0].last_text
            assert "the desk" in sent
            assert "skill tidy-up" in sent
            assert await command(stage, "/direct the lamp") == "done the lamp"
            assert await command(stage, "/skill direct the door") == "done the door"
            assert stage.ran == ["act the lamp", "act the door"]
            assert "/tidy_up — For the tidy-up." in await command(stage, "/skill")
            assert "no skill" in await command(stage, "/skill nope")

    asyncio.run(main())


def test_a_command_that_is_sent_again_while_its_tool_runs_runs_it_once(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path) as stage:
            folder = tmp_path / "workspace" / "skills" / "ring"
            folder.mkdir(parents=True)
            head = "name: ring\ndescription: Rings.\ncommand-dispatch: tool\ncommand-tool: wait"
            (folder / "SKILL.md").write_text(f"---\n{head}\n---\n")
            sent = ask("/ring twice", key="k1")
            first = asyncio.create_task(stage.runs.accept(sent))
            await soon(stage.begun.wait())
            second = asyncio.create_task(stage.runs.accept(sent))
            await asyncio.wait({second}, timeout=0.2)
            stage.gate.set()
            answers = [await soon(first), await soon(second), await stage.runs.accept(sent)]
            assert {(one.run_id, one.reply) for one in answers} == {(answers[0].run_id, "waited twice")}
            assert [one.created for one in answers] == [True, False, False]
            assert stage.ran == ["wait twice"]

    asyncio.run(main())


def test_what_only_looks_like_a_command_goes_to_the_model(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Say("A path."), Say("As asked.")]) as stage:
            assert (await stage.say("/etc/passwd is what?")).reply == "A path."
            assert (await stage.say("/status", commands=False)).reply == "As asked."

    asyncio.run(main())


def test_a_command_is_a_run_that_can_be_waited_for_and_followed(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path) as stage:
            accepted = await stage.runs.accept(ask("/whoami"))
            status = await stage.runs.wait(accepted.run_id)
            assert (status.ok, status.reply) == (True, accepted.reply)
            events = await stage.events(accepted.run_id)
            assert events[-1].data["text"] == accepted.reply
            with sqlite_store.read(OWNER) as tx:
                assert turns.get(tx, accepted.run_id).trigger == "command"

    asyncio.run(main())
