"""Hours of work that nobody asks for: ten elected turns, five delegates, a compaction with staged ones behind
it. In the middle of each phase the gateway is killed and another takes over; nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import threading
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from continuation_play import KEY, home_config

from holdfast.agents.loop import Ask
from holdfast.agents.subagents import registry
from holdfast.agents.subagents.registry import Outcome
from holdfast.clock import ManualClock
from holdfast.continuation import Kind, Status, records
from holdfast.log import (
    OWNER,
    Entry,
    EntryFilter,
    Store,
    TurnStatus,
    chains,
    check,
    entries,
    sessions,
    sqlite_url,
    turns,
)
from holdfast.runtime import open_home
from holdfast.testing import Asked, Call, Calls, Say, ScriptedOpenAI, Turn, Used
from holdfast.testing.script import text_of

sys.path.append(str(Path(__file__).parents[1] / "crash"))

from crash_play import Nest

FILLER = "The harbour master keeps the tide tables by the east door and reads them out at noon. " * 20
STEPS, BERTHS, LETTERS = 10, 5, 2
FAN_OUT, CUT = 3, 6


@dataclass(frozen=True, slots=True)
class Bill:
    """An answer that was given, as the server counted it; `turn` for one that was not a summary."""

    used: Used
    turn: bool


class Worker:
    """The model. What it does in a step follows from the reason for which it elected the turn."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.blows: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.bills: list[Bill] = []

    def __call__(self, asked: Asked) -> Turn:
        said = json.dumps(asked.messages)
        who, answer = self._decided(asked, said)
        self.asked.append((who, said))
        if who in ("step 2", "berth 3", "summary", "letter 1 read") and who not in self.blows:
            self.blows.append(who)
            if who == "letter 1 read":
                self._all_written()
            os.kill(int((self._home / "gateway.pid").read_text()), signal.SIGKILL)
            return Say("Nobody hears this.")
        used = Used(input=len(said) // 4, output=50)
        self.bills.append(Bill(used, who != "summary"))
        return Calls(*answer, used=used) if isinstance(answer, list) else replace(answer, used=used)

    def _all_written(self) -> None:
        """Wait until no delegate is under way, so that it is this turn alone which is cut off."""
        store = Store(sqlite_url(self._home / "holdfast.db"))
        pause = threading.Event()
        for _ in range(500):
            with store.read(OWNER) as tx:
                if not registry.children(tx, KEY, live=True):
                    break
            pause.wait(0.02)
        store.close()

    def _decided(self, asked: Asked, said: str) -> tuple[str, Say | list[Call]]:
        if not asked.tools:
            return "summary", Say("They count the boats in the harbour.")
        if "You are a subagent" in said:
            [task] = re.findall(r"(?:berth|letter) \d", text_of(asked.messages[-1]["content"]))
            return task, Say(f"Found {task}.")
        return self._own(asked)

    def _own(self, asked: Asked) -> tuple[str, Say | list[Call]]:
        """By what the turn began with, and whether it has called its tools already."""
        begins = [n for n, m in enumerate(asked.messages) if _begins(m)]
        text = text_of(asked.messages[begins[-1]]["content"])
        since = asked.messages[begins[-1] :]
        if "has come back" in text:
            letters = re.findall(r"Found (letter \d)", json.dumps(since))
            return f"{letters[0] if letters else 'nothing new'} read", Say("Noted.")
        found = re.search(r"step (\d+)", text)
        step = 0 if found is None else int(found[1])
        if step == STEPS or any(message.get("tool_calls") for message in since):
            return f"step {step}", Say(f"Step {step} done. {FILLER}")
        return f"step {step}", _calls(step)


def _begins(message: dict[str, Any]) -> bool:
    text = text_of(message.get("content"))
    return message["role"] == "user" and (
        text.startswith(("Count the boats", "[continuation:wake]")) or "has come back" in text
    )


def _calls(step: int) -> list[Call]:
    made = [Call("continue_work", {"reason": f"step {step + 1}", "delaySeconds": 15})]
    if step == FAN_OUT:
        berths = [{"task": f"Look into berth {n}", "mode": "silent"} for n in range(1, BERTHS + 1)]
        made += [Call("continue_delegate", given) for given in berths]
    if step == CUT:
        letters = [{"task": f"Write letter {n}", "mode": "post-compaction"} for n in range(1, LETTERS + 1)]
        made += [Call("continue_delegate", given) for given in letters]
        made.append(Call("request_compaction", {"reason": "a good seam"}))
    return [replace(call, id=f"call-{step}-{number}") for number, call in enumerate(made)]


def configured(url: str) -> str:
    body = json.loads(home_config(url, maxChainLength=20, maxDelegatesPerTurn=8, compactionFloor=0.01))
    defaults = body["agents"]["defaults"]
    defaults["subagents"] = {"maxConcurrent": 1}
    defaults["compaction"] = {"keepRecentTokens": 600, "recentTurnsPreserve": 1}
    return json.dumps(body)


def test_a_day_of_work_that_nobody_asks_for_survives_a_kill_in_each_of_its_phases(tmp_path: Path) -> None:
    home, worker = tmp_path / "home", Worker(tmp_path / "home")
    home.mkdir()
    url = sqlite_url(home / "holdfast.db")
    seen: dict[str, str] = {}
    with ScriptedOpenAI(worker, models=["scripted"]) as server:
        (home / "holdfast.json").write_text(configured(server.url))
        with Nest(home, url) as nest:
            told = nest.gateway([(KEY, "Count the boats.")])
            while "killed" in told:
                seen[worker.blows[-1]] = status(home)
                told = nest.gateway()
        assert worker.blows == ["step 2", "berth 3", "summary", "letter 1 read"]
        pending = r"🔄 Continuation: chain 9/20 \| 1 turn waiting \| \d delegates? pending"
        assert re.fullmatch(pending, seen["berth 3"])
        assert seen["summary"] == "🔄 Continuation: chain 12/20 | 1 turn waiting | 2 post-compaction staged"
        assert status(home) == "🔄 Continuation: chain 17/20 | volitional: 1"
    Evening(url, worker).looks_back()


def status(home: Path) -> str:
    """The line of `/status`, asked for while no gateway runs."""

    async def asked() -> str:
        clock = ManualClock(int((home / "hours").read_text()))
        with open_home(home, clock=clock) as hold:
            said = await hold.runs.accept(Ask(text="/status", session_key=KEY))
            await hold.aclose()
            return said.reply or ""

    return next((line for line in asyncio.run(asked()).splitlines() if "Continuation" in line), "")


class Evening:
    """What must hold when all has come to rest."""

    def __init__(self, url: str, worker: Worker) -> None:
        self.worker = worker
        self.store = Store(url)
        with self.store.read(OWNER) as tx:
            [self.session] = [s for s in sessions.listing(tx, status=None) if s.key == KEY]
            self.turns = [t for t in turns.listing(tx, self.session.id, limit=200)[::-1] if t.agenda_id]
            page = entries.listing(tx, EntryFilter(session_id=self.session.id), limit=500)
            self.entries: list[Entry] = sorted(page.entries, key=lambda entry: entry.position)
            self.runs = registry.children(tx, KEY)
            self.records = records.listing(tx, owner=KEY, statuses=list(Status), limit=500)
            self.chain = chains.get(tx, str(self.turns[0].chain_id))
            everyone = sessions.listing(tx, status=None, limit=200)
            self.every_turn = [t for s in everyone for t in turns.listing(tx, s.id, limit=200)]
            self.totals = [(s.input_tokens, s.output_tokens) for s in everyone]

    def looks_back(self) -> None:
        self.ten_turns_ran_in_order()
        self.each_return_came_once()
        self.staged_ones_left_after_the_compaction()
        self.figures_add_up()
        assert check(self.store) == []
        self.store.close()

    def ten_turns_ran_in_order(self) -> None:
        replies = [e.content for e in self.entries if e.role == "assistant"]
        done = [int(n) for text in replies for n in re.findall(r"Step (\d+) done", text)]
        assert done == list(range(STEPS + 1))
        triggers = [turn.trigger for turn in self.turns]
        wakes = triggers.count("delegate")
        first = CUT + 1
        assert triggers[:first] == ["user", *["continuation"] * CUT]
        assert triggers[first : first + wakes] == ["delegate"] * wakes
        assert triggers[first + wakes :] == ["continuation"] * (STEPS - CUT)
        assert 1 <= wakes <= LETTERS
        assert {turn.status for turn in self.turns} == {TurnStatus.COMMITTED}

    def each_return_came_once(self) -> None:
        notes = [e for e in self.entries if (e.source or {}).get("note") == "continuation-account"]
        tasks = Counter(re.findall(r'"(?:Look into|Write) (\w+ \d)"', "\n".join(e.content for e in notes)))
        berths = {f"berth {n}": 1 for n in range(1, BERTHS + 1)}
        assert tasks == berths | {f"letter {n}": 1 for n in range(1, LETTERS + 1)}
        outcomes = {re.sub(r"\D*(berth|letter)", r"\1", run.task): run.outcome for run in self.runs}
        assert set(outcomes.values()) == {Outcome.SUCCESS}, "the one that was cut off went on"
        assert Counter(r.kind for r in self.records) == {
            Kind.WORK: STEPS,
            Kind.DELEGATE: BERTHS,
            Kind.POST_COMPACTION: LETTERS,
        }
        assert {r.status for r in self.records} == {Status.SUCCEEDED}
        for _, said in self.worker.asked:
            assert all(times == 1 for times in Counter(re.findall(r"Found \w+ \d\.", said)).values())

    def staged_ones_left_after_the_compaction(self) -> None:
        order = [who for who, _ in self.worker.asked]
        assert self.session.compaction_count == 1
        assert order.index("letter 1") > max(n for n, who in enumerate(order) if who == "summary")
        assert order.count("letter 1") == order.count("letter 2") == 1
        after = [said for who, said in self.worker.asked if who == "step 7"]
        assert all("They count the boats in the harbour." in said for said in after)

    def figures_add_up(self) -> None:
        """A step for each elected turn and each delegate; what the server counted is what they used."""
        assert self.chain.steps == STEPS + BERTHS + LETTERS
        bills = [bill.used for bill in self.worker.bills if bill.turn]
        spent = sum(used.input for used in bills), sum(used.output for used in bills)
        assert (self.own("inputTokens"), self.own("outputTokens")) == spent
        whole_bill = sum(bill.used.input + bill.used.output for bill in self.worker.bills)
        assert self.chain.tokens == whole_bill
        assert self.own("cost") == pytest.approx((spent[0] * 1.0 + spent[1] * 2.0) / 1e6, rel=1e-9)
        used = [turn.usage or {} for turn in self.every_turn]
        whole = sum(u.get("inputTokens", 0) for u in used), sum(u.get("outputTokens", 0) for u in used)
        assert (sum(n for n, _ in self.totals), sum(n for _, n in self.totals)) == whole

    def own(self, name: str) -> float:
        """What all turns used for themselves: a summary is billed to the turn after which it was made."""
        used = sum((turn.usage or {}).get(name) or 0 for turn in self.every_turn)
        summed = ((turn.meta or {}).get("summaries") or {} for turn in self.every_turn)
        return float(used - sum(figures.get(name) or 0 for figures in summed))
