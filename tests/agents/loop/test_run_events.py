"""Live events: replayed to those who come late, bounded for those who are slow, and always with an end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_stage import Stage, ask, staged

from builders import soon, until
from holdfast.agents.approvals import SIGNAL, ApprovalStatus, requests
from holdfast.agents.loop.events import Hub
from holdfast.agents.loop.run_status import EndWatch
from holdfast.agents.loop.runs import Runs
from holdfast.clock import ManualClock
from holdfast.errors import Unavailable
from holdfast.log import OWNER, Bridge, Store, Threads
from holdfast.testing import Call, Calls, Say


def test_a_run_tells_its_story_in_order(sqlite_store: Store, threads: Threads, tmp_path: Path) -> None:
    script = [
        Calls(Call("act", {"word": "x"}, id="c1"), text="First this.", thinking="hm"),
        Say("Then that."),
    ]

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            accepted = await stage.runs.accept(ask("go"))
            early, again = await asyncio.gather(stage.events(accepted.run_id), stage.events(accepted.run_id))
            late = await stage.events(accepted.run_id)
            assert [e.seq for e in early] == list(range(1, len(early) + 1))
            assert early == again
            shape = [(e.stream, e.data.get("phase") or e.data.get("kind")) for e in late]
            assert shape == [
                ("lifecycle", "start"),
                ("assistant", "thinking"),
                ("assistant", "text"),
                ("tool", "announced"),
                ("assistant", "message"),
                ("tool", "start"),
                ("tool", "progress"),
                ("tool", "end"),
                ("assistant", "text"),
                ("assistant", "message"),
                ("lifecycle", "end"),
            ]
            assert (
                "".join(e.data["delta"] for e in early if e.data.get("kind") == "text")
                == "First this.Then that."
            )
            assert late[-1].data["text"] == "Then that."
            wire = late[-1].json()
            assert wire.keys() == {"runId", "seq", "stream", "data", "ts"}

    asyncio.run(main())


def test_a_run_tells_that_a_call_waits_for_a_person_and_goes_on_by_command(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        script = [Call("asking", {"word": "rm everything"}), Say("Done as approved.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            accepted = await stage.runs.accept(ask("clean up"))
            news: list[dict[str, Any]] = []
            async for event in stage.runs.subscribe(accepted.run_id):
                if event.data.get("phase") == "approval":
                    news.append(dict(event.data))
                    if event.data["status"] == "pending":
                        await stage.runs.accept(ask(f"/approve {event.data['id']}"))
            assert [(n["status"], n["command"]) for n in news] == [
                ("pending", "rm everything"),
                ("approved", "rm everything"),
            ]
            assert stage.spoken()[-2:] == [("toolResult", "approved"), ("assistant", "Done as approved.")]

    asyncio.run(main())


def test_a_call_that_is_decided_at_once_is_told_as_asked_for_and_then_as_decided(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    def decide() -> None:
        with sqlite_store.write(OWNER) as tx:
            for waiting in requests.listing(tx, status=ApprovalStatus.PENDING):
                requests.approve(tx, waiting.id, by="someone quick")

    async def main() -> None:
        script = [Call("asking", {"word": "rm it"}), Say("Gone.")]
        async with staged(sqlite_store, threads, tmp_path, script) as stage:
            stop = sqlite_store.signals.subscribe(SIGNAL, decide)
            accepted = await stage.runs.accept(ask("clean up"))
            events = [event async for event in stage.runs.subscribe(accepted.run_id)]
            stop()
            news = [e.data["status"] for e in events if e.data.get("phase") == "approval"]
            assert news == ["pending", "approved"]

    asyncio.run(main())


def test_another_process_hears_of_the_end_from_the_log(
    store: Store, store_url: str, threads: Threads, tmp_path: Path
) -> None:
    """One accepts and waits, another runs: on PostgreSQL by notification, on SQLite through one process."""

    async def main() -> None:
        other = Store(store_url, clock=store.clock) if store.postgres else store
        bridge = Bridge(other)
        bridge.start()
        listener = Stage(other, threads, tmp_path)
        async with staged(store, threads, tmp_path, [Say("From afar.")]) as stage:
            runs = Runs(listener.parts)
            accepted = await runs.accept(ask("hello"))
            events: list[Any] = []

            async def follow() -> None:
                events.extend([event async for event in runs.subscribe(accepted.run_id)])

            status, _ = await soon(asyncio.gather(runs.wait(accepted.run_id), follow()))
            assert status.reply == "From afar."
            assert [e.data["phase"] for e in events] == ["end"]
            assert events[0].data["text"] == "From afar."
            assert await stage.runs.wait(accepted.run_id, timeout=1) == status
        bridge.stop()
        listener.server.start()
        listener.server.close()
        if other is not store:
            other.close()

    asyncio.run(main())


def test_who_waits_is_told_the_end_though_the_look_of_another_failed(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    class Failing:
        """Threads that cannot reach the store once."""

        fails = False
        looks = 0

        async def __call__(self, work: Any, *args: Any, **more: Any) -> Any:
            self.looks += 1
            if self.fails:
                self.fails = False
                raise Unavailable("the store is away")
            return await threads(work, *args, **more)

    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Call("wait"), Say("Done.")]) as stage:
            unsteady = Failing()
            watch = EndWatch(sqlite_store, unsteady)  # type: ignore[arg-type]
            run = await stage.runs.accept(ask("one"))
            await soon(stage.begun.wait())
            waiting = asyncio.create_task(watch.ended(run.run_id))
            await until(lambda: unsteady.looks > 1)
            unsteady.fails = True
            with pytest.raises(Unavailable):
                await watch.ended(run.run_id)
            stage.gate.set()
            assert (await soon(waiting)).reply == "Done."

    asyncio.run(main())


def test_waiting_has_a_limit_and_tells_how_it_stands(
    sqlite_store: Store, threads: Threads, tmp_path: Path
) -> None:
    async def main() -> None:
        async with staged(sqlite_store, threads, tmp_path, [Call("wait"), Say("Done.")]) as stage:
            accepted = await stage.runs.accept(ask("go"))
            await soon(stage.begun.wait())
            status = await stage.runs.wait(accepted.run_id, timeout=0.01)
            assert (status.status, status.ended) == ("running", False)
            stage.gate.set()
            assert (await soon(stage.runs.wait(accepted.run_id))).ok

    asyncio.run(main())


@given(said=st.lists(st.sampled_from(["delta", "tool"]), max_size=60), most=st.integers(1, 8))
def test_a_slow_listener_loses_deltas_is_told_so_and_never_loses_the_end(said: list[str], most: int) -> None:
    async def main() -> None:
        hub = Hub(ManualClock(), most_waiting=most)
        hub.open("r")
        live = hub.follow("r")
        hub.emit("r", "lifecycle", {"phase": "start"})
        first = await anext(live)
        assert first.data["phase"] == "start"
        for number, kind in enumerate(said):
            data = (
                {"kind": "text", "delta": str(number)} if kind == "delta" else {"phase": "end", "n": number}
            )
            hub.emit("r", "assistant" if kind == "delta" else "tool", data, passing=kind == "delta")
        hub.emit("r", "lifecycle", {"phase": "end"})
        seen = [event async for event in live]
        assert seen[-1].final
        lost = sum(e.data.get("lost", 0) for e in seen)
        kept = [e for e in seen if e.data.get("phase") != "lagged"]
        assert len(kept) + lost == len(said) + 1
        assert len(kept) <= max(most, 1)
        assert [e.seq for e in kept] == sorted(e.seq for e in kept)
        tools = [e for e in kept if e.stream == "tool"]
        assert len(tools) >= min(said.count("tool"), most - 1)

    asyncio.run(main())
