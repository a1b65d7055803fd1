"""Whatever happens to a session, in whatever order, its context keeps its promises."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from context_builders import Echo, Failing, Stage, used_tool
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from builders import examples
from holdfast.clock import ManualClock
from holdfast.context import AssistantMessage, Built, ToolResult, UserMessage, encode
from holdfast.log import OWNER, Store, Threads, entries, sqlite_url

TEMPLATE: Path | None = None
SUMMARISERS: dict[str, Any] = {
    "fine": Echo(),
    "down": Failing(RuntimeError("down")),
    "empty": Failing(""),
    "longer": Failing("LONGER"),
    "refusing": Failing("I'm sorry, but I can't help with that."),
    "none": None,
}


class Projection(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        assert TEMPLATE is not None
        self.folder = Path(tempfile.mkdtemp(prefix="hf-ctx-"))
        shutil.copy(TEMPLATE, self.folder / "holdfast.db")
        self.clock = ManualClock()
        self.store = Store(sqlite_url(self.folder / "holdfast.db"), clock=self.clock)
        self.threads = Threads(2)
        self.revision = 0
        self.built: Built | None = None

    @initialize(window=st.sampled_from([6_000, 12_000, 40_000]))
    def begin(self, window: int) -> None:
        self.stage = Stage(self.store, self.threads, self.folder / "home", window=window)

    @rule(words=st.integers(1, 400), replies=st.integers(1, 300))
    def talk(self, words: int, replies: int) -> None:
        self.stage.say("word " * words, AssistantMessage(text="reply " * replies))

    @rule(size=st.integers(1, 60_000), number=st.integers(0, 3))
    def use_a_tool(self, size: int, number: int) -> None:
        self.stage.say("use it", *used_tool(number, "x y" * (size // 3)))

    @rule()
    def lose_a_result(self) -> None:
        self.stage.say("crashes", used_tool(1)[0])

    @rule(minutes=st.sampled_from([0, 1, 10]))
    def wait(self, minutes: int) -> None:
        self.clock.advance(minutes=minutes)

    @rule()
    def crash(self) -> None:
        """Another process opens the store: nothing of the old one's memory is left."""
        session, count, name = self.stage.session, self.stage.count, self.stage.name
        self.stage = Stage(self.store, self.threads, self.folder / "home", window=self.stage.window)
        assert self.stage.session.id == session.id
        self.stage.count, self.stage.name = count, name

    @rule(
        kind=st.sampled_from(sorted(SUMMARISERS)), reason=st.sampled_from(["threshold", "overflow", "manual"])
    )
    def compact(self, kind: str, reason: Any) -> None:
        self.stage.room.use_summariser(SUMMARISERS[kind])
        session = self.stage.fresh()
        result = asyncio.run(self.stage.room.compact(session, window=self.stage.window, reason=reason))
        assert result.compacted == (self.stage.fresh().compaction_count == session.compaction_count + 1)
        if result.compacted:
            assert result.tokens_after < result.tokens_before

    @rule()
    def build(self) -> None:
        turn = self.stage.accept("next")
        built = asyncio.run(self.stage.build(turn))
        self._check(built)
        replayed = self.stage.room.replay(self.stage.session, turn.number)
        assert replayed.identical
        assert [encode(m) for m in replayed.messages] == [encode(m) for m in built.messages]
        self.stage.commit(turn, AssistantMessage(text="done"))

    def _check(self, built: Built) -> None:
        assert built.manifest.used <= built.manifest.budget
        assert built.manifest.revision >= self.revision
        self.revision = built.manifest.revision
        assert isinstance(built.messages[-1], UserMessage)
        waiting: list[str] = []
        positions = []
        for message in built.messages:
            if isinstance(message, AssistantMessage):
                assert not waiting
                waiting = [call.id for call in message.calls]
            elif isinstance(message, ToolResult):
                assert waiting
                assert message.call_id == waiting.pop(0)
            else:
                assert not waiting
            if message.mark is not None and message.kind != "summary":
                positions.append(message.mark.position)
        assert not waiting
        assert positions == sorted(positions)
        self._check_reachable(set(positions))

    def _check_reachable(self, shown: set[int]) -> None:
        """Every message is shown, or covered by the chain of summaries, or waits for one."""
        with self.store.read(OWNER) as tx:
            log = entries.transcript(tx, self.stage.session.id, limit=5000)
            spans = [json.loads(e.raw)["details"] for e in log if e.raw and '"compaction"' in e.raw]
        floor = max((s["until"] for s in spans), default=0)
        edges = sorted((s["from"], s["until"]) for s in spans)
        assert all(a[1] == b[0] for a, b in pairwise(edges))
        kept = next((e for e in log if e.position >= floor and e.role != "system"), None)
        assert kept is None or kept.role != "toolResult"
        said = [e.position for e in log if e.role in ("user", "assistant") and e.position >= floor]
        hidden = [p for p in said if p not in shown]
        assert all(p < min(shown, default=0) for p in hidden)

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "stage"):
            return
        with self.store.read(OWNER) as tx:
            log = entries.transcript(tx, self.stage.session.id, limit=5000)
        assert sum(e.role == "user" for e in log) == self.stage.count

    def teardown(self) -> None:
        self.threads.close()
        self.store.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def test_a_context_keeps_its_promises_in_any_order_of_events(
    sqlite_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hypothesis.stateful import run_state_machine_as_test

    monkeypatch.setitem(globals(), "TEMPLATE", sqlite_template)
    run_state_machine_as_test(
        Projection,
        settings=settings(
            max_examples=examples(25),
            stateful_step_count=18,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
