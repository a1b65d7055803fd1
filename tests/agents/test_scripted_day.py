"""Eight hours in the life of a home: hundreds of turns, and whatever can happen to them. At the end it adds
up. The day has 300 turns; that of `make torture` has 500."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from day_stage import (
    ALONE,
    EVENING,
    KILLED,
    KINDS,
    NOON,
    TAG,
    Director,
    Life,
    Tick,
    answer,
    between,
    planned,
    receipts_in,
    write_config,
)

import forks
from builders import LONG, until
from holdfast.agents.approvals import requests
from holdfast.agents.loop import Ask
from holdfast.context.lossless import integrity
from holdfast.log import (
    OWNER,
    Cursor,
    Entry,
    EntryFilter,
    EntryType,
    Session,
    Turn,
    TurnStatus,
    Tx,
    check,
    entries,
    sessions,
    turns,
)
from holdfast.runtime import Holdfast
from holdfast.testing import ScriptedOpenAI

SEED = 20260302
EFFECTS = ("count", "hold", "strike")
DECIDED = ("approve", "deny", "expire")
STAGE = Path(__file__).with_name("day_stage.py")


def test_a_day_of_hundreds_of_turns_loses_nothing_doubles_nothing_and_adds_up(tmp_path: Path) -> None:
    day = planned(SEED)
    director = Director(day)
    home = tmp_path / "home"
    with (
        ScriptedOpenAI(director, models=["first"]) as first,
        ScriptedOpenAI(director, models=["second"]) as second,
    ):
        write_config(home, "legacy", first.url, second.url)
        asyncio.run(morning(home, day))
        killed(home)
        write_config(home, "lossless", first.url, second.url)
        asyncio.run(afternoon(home, day, director))


async def morning(home: Path, day: list[Tick]) -> None:
    async with Life(home) as life:
        await life.live(between(day, 0, NOON), leaving=True)


def killed(home: Path) -> None:
    """Two hours in a process of its own, which dies in the middle of three turns."""
    path = os.pathsep.join([str(STAGE.parent), str(STAGE.parents[1]), *sys.path])
    done = forks.run(
        [sys.executable, str(STAGE), str(home), str(SEED)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-4000:]


async def afternoon(home: Path, day: list[Tick], director: Director) -> None:
    async with Life(home) as life:
        struck = next(r for r in life.receipts.values() if r["kind"] == "strike")
        before = sum(s.compaction_count for s in Kept.of(life.hold).sessions)
        life.now(KILLED - 4)
        await until(lambda: is_cut(life.hold, struck["run"]))
        life.now(KILLED - 2)
        await life.settled()
        cut = await life.hold.runs.status(struck["run"])
        assert (cut.status, cut.ended, cut.resumable) == (TurnStatus.INTERRUPTED, True, True)
        resumed = await life.hold.runs.accept(Ask(text="/resume", session_key=struck["key"], key="resume"))
        assert "goes on" in (resumed.reply or "")
        life.waiting.append(struck["run"])
        await life.live(between(day, KILLED, EVENING))
        await life.settled()
        evening = Evening(life.hold, home, day, director)
        assert 0 < before < evening.compactions, "both engines have compacted"
        await asyncio.to_thread(evening.looks_back)


def is_cut(hold: Holdfast, run_id: str) -> bool:
    with hold.store.read(OWNER) as tx:
        return turns.get(tx, run_id).status is TurnStatus.INTERRUPTED


@dataclass
class Kept:
    """All that the log has, of every session that there was."""

    sessions: list[Session]
    turns: list[Turn]
    entries: list[Entry]

    @classmethod
    def of(cls, hold: Holdfast) -> Kept:
        with hold.store.read(OWNER) as tx:
            every = sessions.listing(tx, status=None, limit=500)
            ran = [turn for s in every for turn in turns.listing(tx, s.id, limit=500)[::-1]]
            said = [entry for s in every for entry in all_entries(tx, s.id)]
        return cls(every, ran, sorted(said, key=lambda entry: entry.position))


def all_entries(tx: Tx, session_id: str) -> Iterator[Entry]:
    cursor: Cursor | None = None
    while True:
        where = EntryFilter(session_id=session_id)
        page = entries.listing(tx, where, limit=entries.MAX_PAGE, cursor=cursor, raw=True)
        yield from page.entries
        cursor = page.next
        if cursor is None:
            return


def numbers(found: Iterable[Entry]) -> list[int]:
    return [int(n) for entry in found for n in TAG.findall(entry.content)]


class Evening:
    """What must hold when the day is over."""

    def __init__(self, hold: Holdfast, home: Path, day: list[Tick], director: Director) -> None:
        self.hold, self.home, self.director = hold, home, director
        self.spoken = {one.number: one for tick in day for one in tick.happenings}
        self.receipts = receipts_in(home)
        self.kept = Kept.of(hold)
        self.compactions = sum(s.compaction_count for s in self.kept.sessions)
        self.by_turn: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.kept.entries:
            self.by_turn[entry.turn_id or ""].append(entry)

    def looks_back(self) -> None:
        self.it_was_a_full_day()
        self.every_message_has_one_end()
        self.every_reply_stands_once()
        self.every_effect_is_in_the_log()
        self.costs_add_up()
        self.order_was_kept()
        self.contexts_replay()
        assert check(self.hold.store) == []
        with self.hold.store.read(OWNER) as tx:
            assert list(integrity.check(tx)) == []

    def it_was_a_full_day(self) -> None:
        ran = [t for t in self.kept.turns if t.trigger in ("user", "session")]
        assert len(ran) >= (500 if LONG > 1 else 300)
        assert len({s.key for s in self.kept.sessions}) == 20
        causes = Counter(r["reset"] for r in self.receipts)
        assert {"daily", "idle", "new", "reset"} <= set(causes)
        tried = Counter(a.get("reason") for t in ran for a in (t.meta or {}).get("attempts") or ())
        assert {"rate_limit", "overloaded", "cut_off", "bad_response"} <= set(tried)
        assert {t.model for t in ran if t.model} == {"one/first", "two/second"}
        with self.hold.store.read(OWNER) as tx:
            decided = Counter(str(a.status) for a in requests.listing(tx, limit=500))
        assert decided == {"approved": KINDS["approve"], "denied": KINDS["deny"], "expired": len(ALONE)}

    def every_message_has_one_end(self) -> None:
        """Each was written once, and its turn ended: with a reply, or visibly without one."""
        said = [e for e in self.kept.entries if e.role == "user" and e.type is EntryType.CONVERSATION]
        assert Counter(numbers(said)) == Counter(list(self.spoken))
        assert {r["number"]: r["entry"] for r in self.receipts} == {numbers([e])[0]: e.id for e in said}
        ran = {str(turn.id): turn for turn in self.kept.turns}
        for entry in said:
            turn = ran[str(entry.turn_id)]
            told = [e.content for e in self.by_turn[turn.id] if e.role == "system"]
            if turn.status is TurnStatus.FAILED:
                assert self.spoken[numbers([entry])[0]].kind in ("dead", "overflow"), turn.error
                assert any("failed" in text for text in told)
            else:
                assert (turn.status, turn.reply_id is not None) == (TurnStatus.COMMITTED, True)

    def every_reply_stands_once(self) -> None:
        """What was answered is what was said last in the turn, and it is there once, in that turn."""
        replies = [e for e in self.kept.entries if e.role == "assistant" and e.content.startswith("Answer <")]
        expected = {}
        for turn in self.kept.turns:
            asked = numbers(e for e in self.by_turn[turn.id] if e.role == "user")
            if asked and turn.status is TurnStatus.COMMITTED and turn.trigger != "command":
                expected[turn.reply_id] = answer(asked[-1])
        assert {e.id: e.content for e in replies} == expected

    def every_effect_is_in_the_log(self) -> None:
        done = (self.home / "effects").read_text().split()
        told = [e for e in self.kept.entries if e.role == "toolResult"]
        ids = Counter(str((e.source or {})["toolCallId"]) for e in told)
        assert set(ids.values()) == {1}
        good = [
            e for e in told if (e.source or {})["toolName"] in EFFECTS and not (e.source or {})["isError"]
        ]
        struck = [f"strike-{n}" for n, one in self.spoken.items() if one.kind == "strike"]
        assert Counter(done) == Counter([*(str((e.source or {})["toolCallId"]) for e in good), *struck])
        assert {path.name for path in self.home.rglob("*-*") if path.name.split("-")[0] in DECIDED} == {
            f"approve-{n}" for n, one in self.spoken.items() if one.kind == "approve"
        }

    def costs_add_up(self) -> None:
        """Turns, sessions and servers agree; summaries are billed too, to the turns that needed them."""
        bills = self.director.bills
        assert any(not bill.turn for bill in bills)
        usage = [turn.usage or {} for turn in self.kept.turns]
        spent = sum(bill.used.input for bill in bills), sum(bill.used.output for bill in bills)
        assert (
            sum(u.get("inputTokens", 0) for u in usage),
            sum(u.get("outputTokens", 0) for u in usage),
        ) == spent
        found = self.kept.sessions
        assert (sum(s.input_tokens for s in found), sum(s.output_tokens for s in found)) == spent
        cost = sum(u.get("cost") or 0 for u in usage)
        assert cost == pytest.approx(sum(bill.cost for bill in bills), rel=1e-9)

    def order_was_kept(self) -> None:
        """In a session turns end as they were accepted, and what was said stands as it was said."""
        for key in {s.key for s in self.kept.sessions}:
            accepted = [r["number"] for r in self.receipts if r["key"] == key]
            own = [e for e in self.kept.entries if e.session_key == key]
            assert numbers(e for e in own if e.role == "user") == accepted
        for session in self.kept.sessions:
            ran = [t for t in self.kept.turns if t.session_id == session.id and t.agenda_id is not None]
            assert [t.number for t in ran] == sorted(t.number for t in ran)
            ends = [t.ended_at or 0 for t in ran if t.trigger != "flush"]
            assert all(a <= b for a, b in pairwise(ends)), session.key

    def contexts_replay(self) -> None:
        for session in self.kept.sessions:
            if any(t.session_id == session.id and t.model for t in self.kept.turns):
                assert self.hold.context.replay(session).identical, session.key
