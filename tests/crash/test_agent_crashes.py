"""A gateway is killed at the steps of delegating and of electing, and the next one takes over: each result
and each elected turn reaches its session once, or its session is told once why it does not."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_play import PATHS, THEN, Nest, answer, write_config

from holdfast.agents.subagents import registry
from holdfast.agents.subagents.registry import Outcome, Run
from holdfast.continuation import Kind, Record, Status, records
from holdfast.log import (
    OWNER,
    Chain,
    Entry,
    EntryFilter,
    Store,
    Turn,
    TurnStatus,
    chains,
    check,
    entries,
    sessions,
    turns,
)
from holdfast.testing import ScriptedOpenAI

KILLS = int(os.environ.get("HOLDFAST_CRASH_KILLS", "4"))
EVERY = 100
NOT_OURS = ("continuation.records:prune", "log.agenda.runner:Runner._recover")


@dataclass(frozen=True, slots=True)
class Blow:
    """One gateway's death: on which way, in which session, at which step.

    `again` is after how many steps the next one dies too, while it takes up what this one left.
    """

    path: str
    number: int
    step: str = ""
    again: int | None = None

    @property
    def deaths(self) -> int:
        return 1 if self.again is None else 2

    @property
    def key(self) -> str:
        return f"agent:main:web:dm:{self.path}-{self.number}"

    @property
    def tag(self) -> str:
        return f"<{self.path}-{self.number}>"

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(self.key, f"Please do {self.tag}."), *self.then]

    @property
    def then(self) -> list[tuple[str, str]]:
        """What is said again, after a death, by whoever saw no answer to it."""
        return [(self.key, text) for text in THEN.get(self.path, ())]


class Aftermath:
    """What a session's log tells when all has come to rest."""

    def __init__(self, store: Store, blow: Blow, prompts: Sequence[str]) -> None:
        self.blow = blow
        self.prompts = [said for said in prompts if blow.tag in said]
        with store.read(OWNER) as tx:
            session = sessions.active(tx, blow.key)
            assert session is not None, blow
            self.turns: list[Turn] = turns.listing(tx, session.id)
            self.entries: list[Entry] = entries.listing(tx, EntryFilter(session_id=session.id)).entries
            self.runs: list[Run] = registry.children(tx, blow.key)
            self.records: list[Record] = records.listing(tx, owner=blow.key, statuses=list(Status))
            first = self.turns[-1].id
            self.chain: Chain = chains.get(tx, first)
            self.alive = chains.lives(tx, first)
            self.chain_turns = turns.get_many(tx, chains.turns_of(tx, first))
            self.elected: list[Record] = records.in_chain(tx, first)
            self.spawned: list[Run] = registry.in_chain(tx, first)

    def trouble(self) -> str:
        """What is wrong, with the log that shows it; nothing if all is well."""
        try:
            assert all(turn.status.ended for turn in self.turns)
            assert max((said.count(f"Result of {self.blow.tag}") for said in self.prompts), default=0) <= 1
            if self.blow.path in ("spawn", "delegate", "work"):
                begun = sum("You are a subagent" in said for said in self.prompts)
                assert begun <= self.blow.deaths + 1, "a child began again without need"
            self.leashed()
            if self.blow.path in THEN:
                self.stopped()
            elif self.blow.again is None:
                ways = {"spawn": self.sent, "delegate": self.delegated, "work": self.worked}
                (ways | {"parts": self.went_on, "nested": self.nested})[self.blow.path]()
            elif self.blow.path in ("spawn", "delegate", "work"):
                self.survived()
        except (AssertionError, ValueError) as error:
            told = [f"{entry.role}: {entry.content[:200]}" for entry in reversed(self.entries)]
            return "\n".join([f"After {self.blow}: {error}", *told])
        return ""

    def leashed(self) -> None:
        """One chain for all of it, which has ended; every step, child and call of it is counted once."""
        assert not self.alive
        assert self.chain.state != "live"
        assert {turn.chain_id for turn in self.turns if turn.trigger != "command"} == {self.chain.id}
        steps = [r.hop > 0 if r.kind is Kind.WORK else r.spawn_key is not None for r in self.elected]
        assert self.chain.steps == sum(steps)
        assert self.chain.sent == sum(not run.on_errand for run in self.spawned)
        used = [turn.usage or {} for turn in self.chain_turns]
        assert self.chain.tokens == sum(u.get("inputTokens", 0) + u.get("outputTokens", 0) for u in used)
        begun = Counter(turn.session_key for turn in self.chain_turns if turn.trigger == "subagent")
        assert all(count == 1 for count in begun.values()), "a child began twice"
        assert all(not run.live for run in self.spawned)

    def stopped(self) -> None:
        """Whenever it was stopped, nothing came of it after that; what was over by then is not stopped."""
        assert self.count("[continuation:wake]") == 0
        assert all(run.outcome is not Outcome.SUCCESS for run in self.spawned)
        if not self.chain.stopped:
            assert self.turns[-1].status is TurnStatus.INTERRUPTED
            assert self.elected == []
        assert all(r.status is Status.CANCELLED for r in self.elected)
        stops = [entry.position for entry in self.entries if entry.content.startswith("/stop")]
        if stops:
            later = [e for e in self.entries if e.position > max(stops) and e.role == "assistant"]
            assert {(e.source or {}).get("command") for e in later} == {"stop"}

    def went_on(self) -> None:
        """A child that elected its next turn came back once, with the last word of both."""
        launched = [run for run in self.runs if run.run_id is not None]
        if not launched:
            return self.sent()
        [run], [_] = launched, self.noted("subagent-account")
        assert run.announce is registry.Announce.DELIVERED
        told = "\n".join(entry.content for entry in self.noted("subagent-account", "subagent"))
        self.tells(told, run)
        if run.outcome is Outcome.SUCCESS:
            assert (run.parts, "A part of" in told) == (2, False)
        return None

    def nested(self) -> None:
        """The delegate's own delegate came back to it, and it to its sender, each once."""
        self.returned()
        [run] = self.runs
        assert len(self.spawned) <= 2
        if run.outcome is Outcome.SUCCESS:
            assert [r.status for r in self.elected if r.spawn_key] == [Status.SUCCEEDED] * 2

    def survived(self) -> None:
        """After two deaths too a turn is left to the user only in doubt; whatever was begun ends once."""
        first = self.turns[-1]
        given_up = first.status is TurnStatus.INTERRUPTED and self.count("is not repeated by itself") >= 1
        done = sum(record.status is Status.SUCCEEDED for record in self.records)
        launched = sum(run.run_id is not None for run in self.runs)
        begun = {"spawn": launched, "delegate": done, "work": done}[self.blow.path]
        assert begun == 1 or (given_up and begun == 0)
        notes = self.noted("subagent-account", "continuation-return")
        granted = [t for t in self.turns if t.trigger == "continuation" and t.status is TurnStatus.COMMITTED]
        assert len(granted if self.blow.path == "work" else notes) == begun

    def sent(self) -> None:
        """One child and one note of its end; or none, and a word that the turn was cut off meanwhile."""
        launched = [run for run in self.runs if run.run_id is not None]
        notes = self.noted("subagent-account")
        if not launched:
            assert (notes, self.count("was interrupted while sessions_spawn ran")) == ([], 1)
            assert [turn.status for turn in self.turns] == [TurnStatus.INTERRUPTED]
            return
        [run], [_] = launched, notes
        assert run.announce is registry.Announce.DELIVERED
        self.tells("\n".join(entry.content for entry in self.noted("subagent-account", "subagent")), run)
        assert self.count(f"Thanks for {self.blow.tag}") == 1

    def delegated(self) -> None:
        """One delegate that came back, one note of it, and one turn for it."""
        assert Counter(r.status for r in self.records)[Status.SUCCEEDED] == 1
        self.returned()
        assert Counter(turn.trigger for turn in self.turns)["delegate"] == 1
        assert self.count(f"Thanks for {self.blow.tag}") >= 1

    def returned(self) -> None:
        """One return of the one delegate, in the runtime's words and its own."""
        [run], [_] = self.runs, self.noted("continuation-return")
        told = self.noted("continuation-account", "continuation-return")
        self.tells("\n".join(entry.content for entry in told), run)

    def worked(self) -> None:
        """One elected turn, begun with one wake and answered once."""
        done = Counter(r.status for r in self.records)
        assert (done[Status.SUCCEEDED], done[Status.FAILED]) == (1, 0)
        granted = [turn for turn in self.turns if turn.trigger == "continuation"]
        assert [turn.status for turn in granted] == [TurnStatus.COMMITTED]
        assert self.count("[continuation:wake]") == 1
        assert self.count(f"Went on with {self.blow.tag}") == 1

    def tells(self, told: str, run: Run) -> None:
        """A child that changes nothing comes to speak, whenever its gateway died."""
        assert run.outcome is Outcome.SUCCESS
        assert f"Result of {self.blow.tag}" in told

    def noted(self, *kinds: str) -> list[Entry]:
        return [entry for entry in self.entries if (entry.source or {}).get("note") in kinds]

    def count(self, text: str) -> int:
        return sum(text in entry.content for entry in self.entries)


def drawn(points: list[tuple[str, str]], chance: random.Random) -> list[Blow]:
    """Where to strike: everywhere when there is time for it, else here and there."""
    twice = [(path, step, chance.randint(1, 12)) for path, step in chance.sample(points, KILLS // 5)]
    once = points if KILLS >= EVERY else chance.sample(points, KILLS - len(twice))
    chosen = [*((path, step, None) for path, step in once), *twice]
    return [Blow(path, number, step, again) for number, (path, step, again) in enumerate(chosen, start=1)]


def struck(nest: Nest, blow: Blow) -> bool:
    """Whether the gateway died where it should; the one that takes over may die too, or have little to do."""
    killed = nest.gateway(blow.said, blow.step).get("killed") == 9
    if blow.again is not None:
        nest.gateway(nth=blow.again, first=blow.then)
    if blow.then:
        nest.gateway(first=blow.then)
    return killed


@pytest.mark.timeout(60 + 15 * max(KILLS, 20))
def test_whatever_step_a_gateway_dies_at_each_result_arrives_once(store_url: str, tmp_path: Path) -> None:
    home, engine = tmp_path / "home", store_url.partition(":")[0]
    whole = [Blow(path, 0) for path in PATHS]
    with ScriptedOpenAI(answer, models=["scripted"]) as server:
        write_config(home, server.url)
        with Nest(home, store_url) as nest:
            taken = nest.gateway([said for blow in whole for said in blow.said])["steps"]
            points = [
                (blow.path, f"{step} {side}")
                for blow, steps in zip(whole, taken, strict=True)
                for step in steps
                for side in ("before", "after")
                if not step.startswith(NOT_OURS)
            ]
            blows = drawn(points, random.Random(engine))
            killed = [blow for blow in blows if struck(nest, blow)]
            nest.gateway()
        prompts = [json.dumps(asked.messages) for asked in server.requests]
    print(f"{engine}: {len(killed)} kills at {len(points)} points")
    assert len(killed) >= 0.9 * len(blows), sorted({b.step for b in blows} - {b.step for b in killed})
    store = Store(store_url)
    assert check(store) == []
    troubles = [Aftermath(store, blow, prompts).trouble() for blow in [*whole, *blows]]
    store.close()
    assert not any(troubles), "\n\n".join(filter(None, troubles))
