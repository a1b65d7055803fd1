"""A scripted working day over one home: who says what when, what the models answer, and who lives through it.

As a program it is a process of that day which is killed in the middle of a turn:

    day_stage.py HOME SEED
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from builders import LONG, PATIENCE, soon, until
from holdfast.agents.approvals import requests
from holdfast.agents.loop import Accepted, Ask
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.clock import ManualClock, parse_iso
from holdfast.context import Trust
from holdfast.context.lossless import KIND as COMPACT
from holdfast.effects import Effect
from holdfast.home import Home
from holdfast.log import OWNER, agenda, turns
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services
from holdfast.testing import (
    Asked,
    Call,
    Calls,
    Fail,
    Malformed,
    Say,
    Stall,
    Turn,
    Used,
    cut_off,
    rate_limited,
    too_long,
)
from holdfast.testing.script import text_of

MORNING: Final = parse_iso("2026-03-02T09:00:00Z")
MINUTE: Final = 60_000
NOON, KILLED, EVENING = 200, 290, 480
TAG: Final = re.compile(r"\(n(\d+)\)")
FILLER: Final = "The harbour master keeps the tide tables by the east door and reads them out at noon. "
COSTS: Final = {"first": (1.0, 2.0), "second": (3.0, 15.0)}
WINDOW: Final = 9_000

# Every kind of trouble as often as ever; of plain talk half by day, and all of it by night.
PLAIN: Final = {"say": 290, "count": 60, "look": 40, "pair": 40, "steer": 24}
KINDS: Final[dict[str, int]] = (
    {kind: count if LONG > 1 else count // 2 for kind, count in PLAIN.items()}
    | {"limited": 10, "long": 12, "broken": 8, "cut": 6, "malformed": 4, "overflow": 10, "dead": 4}
    | {"approve": 8, "deny": 6, "new": 6, "reset": 4}
)
ALONE: Final = (57, 173, 237, 411)
COMMANDS: Final = ("/status", "/context", "/compact", "/new", "/reset", "/help")


@dataclass(frozen=True, slots=True)
class Happening:
    """One message of the day. Its number stands in its text, so that a model's script knows it again."""

    number: int
    minute: int
    session: str
    kind: str
    partner: int | None = None

    @property
    def text(self) -> str:
        head = {"new": "/new ", "reset": "/reset "}.get(self.kind, "")
        return f"{head}{self.kind} (n{self.number}) {FILLER * (1 + self.number % 4)}".strip()

    @property
    def ask(self) -> Ask:
        within = ":subagent:" in self.session
        return Ask(
            text=self.text,
            session_key=self.session,
            key=f"day-{self.number}",
            trigger="session" if within else "user",
            trust=Trust.OTHER_SESSION if within else Trust.USER,
            owner=not within,
        )


@dataclass(frozen=True, slots=True)
class Tick:
    minute: int
    happenings: tuple[Happening, ...] = ()
    again: tuple[Happening, ...] = ()
    command: tuple[str, str] | None = None


def sessions_of_the_day() -> list[str]:
    kinds = ["main", *(f"telegram:dm:{n}" for n in range(4)), *(f"discord:group:g{n}" for n in range(3))]
    return [f"agent:{a}:{k}" for a in ("main", "ops") for k in (*kinds, "slack:channel:c", "subagent:s")]


def planned(seed: int) -> list[Tick]:
    """The same day for the same seed. Every session takes a long break; a tenth is sent again, and again."""
    rng = random.Random(seed)
    keys = sessions_of_the_day()
    breaks = {key: rng.randrange(60, 360, 5) for key in keys}
    wanted = [kind for kind, count in KINDS.items() for _ in range(count if kind not in _TWO else count // 2)]
    rng.shuffle(wanted)
    minutes = sorted([*range(0, EVENING, 5), *ALONE])
    spoken: dict[int, list[Happening]] = {minute: [] for minute in minutes}
    number = 0
    for index, kind in enumerate(wanted):
        minute = _minute(index, len(wanted))
        number = _place(rng, spoken[minute], breaks, number, minute, kind)
    for minute in ALONE:
        number = _place(rng, spoken[minute], breaks, number, minute, "expire")
    return _ticks(rng, [(m, spoken[m]) for m in minutes], keys)


_TWO: Final = ("pair", "steer")
_DIRECT: Final = ("approve", "deny", "expire", "new", "reset", "steer")


def _minute(index: int, count: int) -> int:
    """Even over the day; the tick of the kill is left to it."""
    minute = index * EVENING // count // 5 * 5
    return minute + 5 if minute == KILLED - 5 else minute


def _place(
    rng: random.Random, there: list[Happening], breaks: dict[str, int], number: int, minute: int, kind: str
) -> int:
    """Add a message in a session that is free, and its partner; gives the last number used."""
    busy = {h.session for h in there}
    free = [
        key
        for key, since in breaks.items()
        if key not in busy
        and not since <= minute < since + 95
        and (kind not in _DIRECT or ":dm:" in key or key.endswith(":main"))
    ]
    session = rng.choice(free or [key for key in breaks if key not in busy and ":dm:" in key])
    first = number + 1
    there.append(Happening(first, minute, session, kind, first + 1 if kind in _TWO else None))
    if kind not in _TWO:
        return first
    there.append(Happening(first + 1, minute, session, f"{kind}ed"))
    return first + 1


def _ticks(rng: random.Random, made: list[tuple[int, list[Happening]]], keys: list[str]) -> list[Tick]:
    again: dict[int, list[Happening]] = defaultdict(list)
    minutes = [minute for minute, _ in made]
    for minute, there in made:
        for one in there:
            if one.number % 10 == 3:
                later = [m for m in minutes if m > minute and m not in ALONE and m != KILLED - 5]
                for when in (minute, *([rng.choice(later)] if later else [])):
                    again[when].append(one)
    ticks = []
    for index, (minute, there) in enumerate(made):
        quiet = minute in ALONE or minute == KILLED - 5
        command = (rng.choice(keys[:9]), COMMANDS[index // 8 % 6]) if index % 8 == 4 and not quiet else None
        ticks.append(Tick(minute, tuple(there), tuple(again[minute]), command))
    return [_killing(tick) if tick.minute == KILLED - 5 else tick for tick in ticks]


def _killing(tick: Tick) -> Tick:
    """What runs when the process dies: two turns that wait for a model, and one amid a tool call."""
    keys = [key for key in sessions_of_the_day() if ":dm:" in key][:3]
    kinds = ("stall", "stall", "strike")
    return Tick(
        tick.minute,
        tuple(
            Happening(9_000 + n, tick.minute, key, kind)
            for n, (key, kind) in enumerate(zip(keys, kinds, strict=True))
        ),
    )


@dataclass(frozen=True, slots=True)
class Bill:
    """One answered call, as the server counted it."""

    model: str
    used: Used
    turn: bool

    @property
    def cost(self) -> float:
        dear, dearer = COSTS[self.model]
        return (self.used.input * dear + self.used.output * dearer) / 1e6


@dataclass
class Director:
    """What the models say: by the number of the message that they were asked last."""

    day: list[Tick]
    bills: list[Bill] = field(default_factory=list)
    _steps: dict[int, deque[Turn]] = field(default_factory=dict)
    _stalls: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for tick in self.day:
            for one in tick.happenings:
                self._steps[one.number] = deque(steps_of(one))

    def __call__(self, asked: Asked) -> Turn:
        if not asked.tools:
            return self._billed(
                asked, Say(f"They spoke of the harbour, {len(asked.last_text)} letters."), turn=False
            )
        if "Write lasting notes" in asked.last_text[-400:]:
            return self._billed(asked, Say("NO_REPLY"))
        number = last_number(asked)
        with self._lock:
            turn = self._steps[number].popleft()
        if isinstance(turn, Stall):
            self._stalls.release()
        if isinstance(turn, Call) and turn.name == "strike":
            for _ in range(2):
                assert self._stalls.acquire(timeout=PATIENCE)
        return self._billed(asked, turn)

    def _billed(self, asked: Asked, said: Turn, *, turn: bool = True) -> Turn:
        if not isinstance(said, Say | Call | Calls):
            return said
        size = len(json.dumps(asked.body, ensure_ascii=False)) // 4
        used = Used(input=size, output=40 + len(said.text) // 4)
        with self._lock:
            self.bills.append(Bill(asked.model, used, turn))
        if isinstance(said, Calls):
            return Calls(*said.calls, text=said.text, used=used)
        return replace(said, used=used, chunks=1) if isinstance(said, Say) else replace(said, used=used)


def last_number(asked: Asked) -> int:
    for message in reversed(asked.messages):
        found = TAG.findall(text_of(message.get("content"))) if message.get("role") == "user" else []
        if found:
            return int(found[-1])
    raise LookupError("nobody spoke")


def answer(number: int) -> str:
    return f"Answer <{number}>. {FILLER * (number % 5)}".strip()


def steps_of(one: Happening) -> list[Turn]:
    """What a model gives for a message, in order, over retries, fallbacks and rounds."""
    n, said = one.number, Say(answer(one.number))

    def count(*words: str) -> Calls:
        return Calls(*(Call("count", {"word": w}, id=f"count-{n}-{w}") for w in words), text="Counting.")

    match one.kind:
        case "count":
            return [count("a"), count("b", "c"), said]
        case "look":
            return [Calls(*(Call("look", {"word": w}, id=f"look-{n}-{w}") for w in "ab")), said]
        case "approve" | "deny" | "expire":
            return [Call("exec", {"command": f"touch {one.kind}-{n}"}, id=f"exec-{n}"), said]
        case "steer":
            return [Calls(Call("hold", {"word": str(n)}, id=f"hold-{n}"), *count("late").calls)]
        case "stall":
            return [Stall("Half of"), said]
        case "strike":
            return [Call("strike", {"word": str(n)}, id=f"strike-{n}"), said]
    return [*_TROUBLES.get(one.kind, ()), said]


_BROKEN: Final = Fail(500, trouble="broken", retry_after=0)
_TROUBLES: Final[dict[str, tuple[Turn, ...]]] = {
    "limited": (rate_limited(0),),
    "long": (rate_limited(120),),
    "broken": (_BROKEN, _BROKEN, _BROKEN),
    "cut": (cut_off("Half an ans"),),
    "malformed": (Malformed("Half"),),
    "overflow": (too_long(WINDOW + 1, WINDOW),),
    "dead": (Fail(400, "no", trouble="bad_request"),),
}


class Word(BaseModel):
    """Takes a word."""

    word: str = ""


def write_config(home: Path, engine: str, first: str, second: str) -> None:
    def provider(url: str, api: str, model: str) -> dict[str, Any]:
        cost = dict(zip(("input", "output"), COSTS[model], strict=True))
        entry = {"id": model, "contextWindow": WINDOW, "maxTokens": 1000, "cost": cost}
        return {"baseUrl": url, "apiKey": "key", "api": api, "models": [entry]}

    defaults = {
        "model": {"primary": "one/first", "fallbacks": ["two/second"]},
        "userTimezone": "UTC",
        "skipBootstrap": True,
        "maxConcurrent": 8,
        "skills": [],
        "heartbeat": {"every": "0m"},
        "compaction": {"keepRecentTokens": 1500, "recentTurnsPreserve": 2},
    }
    body = {
        "models": {
            "mode": "replace",
            "providers": {
                "one": provider(first, "openai-completions", "first"),
                "two": provider(second, "openai-completions", "second"),
            },
        },
        "agents": {"defaults": defaults, "list": [{"id": "main", "default": True}, {"id": "ops"}]},
        "session": {
            "reset": {"mode": "none"},
            "resetByType": {
                "dm": {"mode": "idle", "idleMinutes": 60},
                "group": {"mode": "daily", "atHour": 12},
                "channel": {"mode": "daily", "atHour": 15},
            },
        },
        "channels": {"discord": {"private": ["*"]}, "slack": {"private": ["*"]}},
        "tools": {"allow": ["count", "look", "hold", "strike", "exec"]},
        "agenda": {"leaseSeconds": 36_000},
        "plugins": {"slots": {"contextEngine": engine}},
        "memory": {"search": {"embedding": {"providers": []}}},
        "board": {"contextMode": "cheap", "classifier": {"enabled": False}},
    }
    home.mkdir(parents=True, exist_ok=True)
    Home(home).config.write_text(json.dumps(body))


class Life:
    """One process's share of the day: the whole runtime over a home, on a clock turned by hand."""

    def __init__(self, home: Path) -> None:
        self.clock = ManualClock(MORNING)
        self.home = home
        self.hold: Holdfast = open_home(home, clock=self.clock)
        self.receipts: dict[int, dict[str, Any]] = {r["number"]: r for r in receipts_in(home)}
        self.waiting: list[str] = [r["run"] for r in self.receipts.values()]
        self._begun: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Life:
        self.hold.agency.tools.register_all(self._tools())
        self._stack.callback(self.hold.close)
        await self._stack.enter_async_context(Services(self.hold).running())
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await self._stack.aclose()

    async def live(self, ticks: list[Tick], *, leaving: bool = False) -> None:
        """Tick by tick: all of it is said, then waited for; of the last tick nothing, if one is leaving."""
        self.now(ticks[0].minute)
        await self.settled()
        for tick in ticks:
            self.now(tick.minute)
            await self._tick(tick, wait=not (leaving and tick is ticks[-1]))

    def now(self, minute: int) -> None:
        self.clock.set(max(self.clock.now(), MORNING + minute * MINUTE))
        self.hold.store.signals.notify_all()

    async def settled(self) -> None:
        """Everything that was accepted has ended, and what follows from it."""
        for run_id in self.waiting:
            await soon(self.hold.runs.wait(run_id))
        self.waiting.clear()
        await until(lambda: not self._live())

    def _live(self) -> list[agenda.Item]:
        with self.hold.store.read(OWNER) as tx:
            now = tx.now
            found = [item for item in agenda.listing(tx) if item.due_at <= now]
        return [item for item in found if item.kind.startswith(turns.KIND) or item.kind == COMPACT]

    async def _tick(self, tick: Tick, *, wait: bool) -> None:
        accepted = {one.number: await self._say(one) for one in tick.happenings if one.kind != "steered"}
        await asyncio.gather(*(self._attend(one, accepted.get(one.number)) for one in tick.happenings))
        for one in tick.again:
            await self._say_again(one)
        if not wait:
            return
        for run_id in self.waiting:
            await soon(self.hold.runs.wait(run_id))
        self.waiting.clear()
        if tick.command is not None:
            key, text = tick.command
            said = await self.hold.runs.accept(Ask(text=text, session_key=key, key=f"command-{tick.minute}"))
            assert said.reply, text

    async def _say(self, one: Happening, *, mode: Any = None) -> Accepted:
        said = await self.hold.runs.accept(replace(one.ask, mode=mode))
        assert said.created
        row = {
            "number": one.number,
            "kind": one.kind,
            "run": said.run_id,
            "key": said.session_key,
            "entry": said.entry_id,
            "joined": said.joined,
            "reset": said.reset,
        }
        self.receipts[one.number] = row
        with (self.home / "receipts").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.waiting.append(said.run_id)
        return said

    async def _say_again(self, one: Happening) -> None:
        before = self.receipts[one.number]
        again = await self.hold.runs.accept(one.ask)
        told = (again.created, again.entry_id, again.session_key)
        assert told == (False, before["entry"], before["key"]), (one, told)
        assert before["joined"] or again.run_id == before["run"]

    async def _attend(self, one: Happening, said: Accepted | None) -> None:
        match one.kind:
            case "steer":
                await soon(self._begun[str(one.number)].wait())
                assert one.partner is not None
                partner = Happening(one.partner, one.minute, one.session, "steered")
                assert (await self._say(partner, mode="steer")).joined
                self._gates[str(one.number)].set()
            case "approve" | "deny" | "expire":
                assert said is not None
                await self._decide(one, await soon(self._asked_for(said.run_id)))

    async def _asked_for(self, run_id: str) -> str:
        async for event in self.hold.runs.subscribe(run_id):
            if event.data.get("phase") == "approval":
                return str(event.data["id"])
        raise AssertionError("no approval was asked for")

    async def _decide(self, one: Happening, id_: str) -> None:
        if one.kind == "approve":
            ask = Ask(text=f"/approve {id_}", session_key=one.session, key=f"approve-{one.number}")
            assert "Approved" in ((await self.hold.runs.accept(ask)).reply or "")
        elif one.kind == "deny":
            await self.hold.threads(self.hold.store.run, OWNER, lambda tx: requests.deny(tx, id_, by="owner"))
        else:
            self.clock.advance(seconds=601)
            self.hold.store.signals.notify_all()

    def _tools(self) -> Iterator[Tool[Any]]:
        def effect(text: str) -> None:
            with (self.home / "effects").open("a") as file:
                file.write(f"{text}\n")

        async def count(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            effect(call_id)
            return ToolOutput(text=f"counted {given.word}")

        async def look(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            return ToolOutput(text=f"seen {given.word}: {FILLER * 12}", trust=Trust.OUTSIDE)

        async def hold(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            effect(call_id)
            self._begun[given.word].set()
            await self._gates[given.word].wait()
            return ToolOutput(text="held")

        async def strike(caller: Caller, given: Word, call_id: str) -> ToolOutput:
            effect(call_id)
            os.kill(os.getpid(), signal.SIGKILL)
            return ToolOutput(text="never")

        yield Tool(name="count", input=Word, run=count, effect=Effect.WORLD, repeatable=False)
        yield Tool(name="look", input=Word, run=look, effect=Effect.NONE, repeatable=True)
        yield Tool(name="hold", input=Word, run=hold, effect=Effect.WORLD, repeatable=False)
        yield Tool(name="strike", input=Word, run=strike, effect=Effect.WORLD, repeatable=False)


def receipts_in(home: Path) -> list[dict[str, Any]]:
    path = home / "receipts"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def between(day: list[Tick], start: int, end: int) -> list[Tick]:
    return [tick for tick in day if start <= tick.minute < end]


async def _until_killed(home: Path, seed: int) -> None:
    async with Life(home) as life:
        await life.live(between(planned(seed), NOON, KILLED))


if __name__ == "__main__":
    asyncio.run(_until_killed(Path(sys.argv[1]), int(sys.argv[2])))
