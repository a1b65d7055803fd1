"""What survives repeated compactions without a model: facts planted in long work sessions.

    python bench/survival.py --data locomo-dev.json

Conversations become work sessions with tool calls; 300 facts (identifiers, decisions, pending asks, file
paths) are planted among them. While each session grows, it is compacted again and again with the extractive
fallback only. Then: which share of the facts is (a) in the prompt, (b) one `context_search` away, (c)
readable word for word through `context_read` of the summary (or entry) that the search names. (b) counts
only what stands in a snippet. (b) and (c) must be 1.0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.config import Config
from holdfast.context import (
    AssembleParams,
    AssistantMessage,
    ContextRoom,
    Message,
    ToolCall,
    ToolResult,
    UserMessage,
    draft_of,
)
from holdfast.context.lossless import LosslessEngine, check, nodes, projections
from holdfast.context.lossless.recall import answer_tool
from holdfast.context.tokens import message_tokens
from holdfast.home import Home
from holdfast.log import OWNER, Session, Store, Threads, entries, open_store, sessions, sqlite_url

WINDOW = 32_000
FACTS = 300
SESSIONS = 6
CONFIG = {"plugins": {"slots": {"contextEngine": "lossless"}}}
SYSTEMS = (
    "billing",
    "search",
    "mailer",
    "ledger",
    "gateway",
    "importer",
    "scheduler",
    "vault",
    "relay",
    "atlas",
)
KINDS = ("identifier", "decision", "ask", "path")


@dataclass(frozen=True)
class Fact:
    """`text` is the sentence that is planted, `exact` what must come back, `query` how one would ask."""

    kind: str
    text: str
    exact: str
    query: str


def facts(rng: random.Random) -> list[Fact]:
    return [_fact(KINDS[n % len(KINDS)], n, rng) for n in range(FACTS)]


def _fact(kind: str, number: int, rng: random.Random) -> Fact:
    system = f"{rng.choice(SYSTEMS)}-{number}"
    token = f"{rng.getrandbits(40):010x}"
    if kind == "identifier":
        name = f"{system.upper().replace('-', '_')}_LIMIT_{rng.randrange(10, 99)}"
        return Fact(
            kind, f"For {system} the setting is {name}, build {token}.", name, f"setting for {system}"
        )
    if kind == "decision":
        text = f"We decided that {system} will use plan {token[:6]} instead of the old one."
        return Fact(kind, text, text, f"decision about {system}")
    if kind == "ask":
        text = f"Please remember to check the {system} report for customer {token[:7]}."
        return Fact(kind, text, text, f"what is pending for the {system} report")
    path = f"services/{system}/conf/{token}.yaml"
    return Fact(kind, f"I updated {path} for the {system} rollout.", path, f"file of the {system} rollout")


def conversations(path: Path) -> list[list[tuple[str, str]]]:
    """The turns of each conversation, in order, as (speaker, text)."""
    found = []
    for sample in json.loads(path.read_text()):
        talk = sample["conversation"]
        names = sorted(
            (n for n in talk if n.startswith("session_") and n[8:].isdigit()), key=lambda n: int(n[8:])
        )
        found.append([(turn["speaker"], turn["text"]) for name in names for turn in talk[name]])
    return found


def session_messages(
    talk: Sequence[tuple[str, str]], planted: Sequence[Fact], rng: random.Random
) -> Iterator[list[Message]]:
    """Work steps: a request, now and then a tool with its output, an answer; facts stand where they fall."""
    places: dict[int, list[Fact]] = {}
    for fact in planted:
        places.setdefault(rng.randrange(len(talk) // 2), []).append(fact)
    for step in range(len(talk) // 2):
        said, answered = talk[2 * step][1], talk[2 * step + 1][1]
        here = places.get(step, [])
        asked = " ".join([said, *(f.text for f in here if f.kind in ("decision", "ask"))])
        told = " ".join([answered, *(f.text for f in here if f.kind == "path")])
        messages: list[Message] = [UserMessage(text=asked)]
        shown = [f.text for f in here if f.kind == "identifier"]
        if shown or step % 3 == 0:
            one = ToolCall(f"call-{step}", "exec", {"command": f"grep -rn part{step} src"})
            noise = [f"src/mod{rng.randrange(400)}.py:{n}: value = {rng.random():.6f}" for n in range(30)]
            noise[15:15] = shown
            messages.append(AssistantMessage(text="", calls=(one,)))
            messages.append(ToolResult(text="\n".join(noise), call_id=one.id, name="exec"))
        yield [*messages, AssistantMessage(text=told)]


@dataclass
class Outcome:
    """What became of one session's facts."""

    in_prompt: dict[str, int]
    found: int = 0
    verbatim: int = 0
    sweeps: int = 0
    depth: int = 0
    entries: int = 0
    tokens: int = 0
    prompt: int = 0
    search_ms: float = 0.0


async def play(
    room: ContextRoom, store: Store, key: str, steps: Iterator[list[Message]], planted: Sequence[Fact]
) -> Outcome:
    """Write a session step by step, compacting whenever it passes the threshold; then look for the facts."""
    with store.write(OWNER) as tx:
        session = sessions.ensure(tx, key)
    engine = room.engine(session.agent_id)
    assert isinstance(engine, LosslessEngine)
    outcome = Outcome(dict.fromkeys(KINDS, 0))
    size = 0
    for messages in steps:
        _write(store, session, messages)
        cost = sum(map(message_tokens, messages))
        size += cost
        outcome.tokens += cost
        if size > WINDOW * 0.6:
            result = await room.compact(session, window=WINDOW)
            outcome.sweeps += result.compacted
            size = result.tokens_after
    _look(store, session, await engine.assemble(_params(session)), planted, outcome)
    return outcome


def _write(store: Store, session: Session, messages: Sequence[Message]) -> None:
    with store.write(OWNER) as tx:
        for message in messages:
            draft = draft_of(message)
            fields = {"session_key": session.key, "session_id": session.id, "agent_id": session.agent_id}
            fields |= {"agent_id": "user"} if message.kind == "user" else {}
            entries.append(tx, type(draft)(**{**_fields(draft), **fields}))


def _fields(draft: Any) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in draft.__dataclass_fields__}


def _params(session: Session) -> AssembleParams:
    return AssembleParams(
        session_id=session.id,
        session_key=session.key,
        messages=(),
        token_budget=int(WINDOW * 0.75),
        estimate=message_tokens,
    )


def _look(store: Store, session: Session, result: Any, planted: Sequence[Fact], outcome: Outcome) -> None:
    prompt = "\n".join(m.text for m in result.messages)
    outcome.prompt = result.estimated_tokens
    for fact in planted:
        outcome.in_prompt[fact.kind] += fact.exact in prompt
        started = time.perf_counter()
        hits = answer_tool(store, "context_search", {"query": fact.query}, session_id=session.id)["hits"]
        outcome.search_ms += (time.perf_counter() - started) * 1000
        holding = [hit for hit in hits if fact.exact in hit["snippet"]]
        outcome.found += bool(holding)
        behind = [hit["shownBy"] or hit["entryId"] for hit in holding]
        outcome.verbatim += bool(behind) and fact.text in _whole(store, session, behind[0])
    with store.read(OWNER) as tx:
        known = projections.of(tx, session.id, retain_depth=2)
        outcome.depth = max((n.depth for n in nodes.of_session(tx, session.id)), default=0)
        outcome.entries = len(entries.transcript(tx, session.id, limit=1_000_000))
        assert check(tx, session.id) == [], "the projection is not whole"
        assert known.summaries


def _whole(store: Store, session: Session, id_: str) -> str:
    """All pages behind an id."""
    parts: list[str] = []
    start: str | None = None
    while True:
        given = {"id": id_, "limit": 40_000} | ({} if start is None else {"from": start})
        page = answer_tool(store, "context_read", given, session_id=session.id)
        parts += [piece["text"] for piece in page["entries"]]
        start = page["next"]
        if start is None:
            return "\n".join(parts)


async def run(data: Path, folder: Path, seed: int) -> list[Outcome]:
    rng = random.Random(seed)
    planted = facts(rng)
    talks = conversations(data)
    store, threads = open_store(sqlite_url(folder / "holdfast.db")), Threads(2)
    config = Config.model_validate(CONFIG)
    room = ContextRoom(store, threads, Home(folder), lambda: config)
    share = FACTS // SESSIONS
    outcomes = []
    try:
        for number in range(SESSIONS):
            talk = [t for n in range(2) for t in talks[(number + n) % len(talks)]]
            mine = planted[number * share : (number + 1) * share]
            steps = session_messages(talk, mine, rng)
            outcomes.append(await play(room, store, f"agent:main:dm:bench{number}", steps, mine))
    finally:
        threads.close()
        store.close()
    return outcomes


def report(outcomes: Sequence[Outcome]) -> int:
    """Print the shares; 0 only if nothing is out of reach."""
    names = ("session", "entries", "tokens", "prompt", "sweeps", "depth", "in prompt")
    print(" ".join(f"{name:>9}" for name in names))
    for number, o in enumerate(outcomes):
        inside = sum(o.in_prompt.values()) / (FACTS // SESSIONS)
        row = (number, o.entries, o.tokens, o.prompt, o.sweeps, o.depth, f"{inside:.2f}")
        print(" ".join(f"{value:>9}" for value in row))
    for kind in KINDS:
        total = sum(n % len(KINDS) == KINDS.index(kind) for n in range(FACTS))
        print(f"in the prompt, {kind}: {sum(o.in_prompt[kind] for o in outcomes) / total:.3f}")
    prompt = sum(sum(o.in_prompt.values()) for o in outcomes) / FACTS
    found = sum(o.found for o in outcomes) / FACTS
    verbatim = sum(o.verbatim for o in outcomes) / FACTS
    print(f"(a) in the prompt            {prompt:.3f}")
    print(f"(b) one context_search away  {found:.3f}")
    print(f"(c) readable verbatim        {verbatim:.3f}")
    print(f"a search takes {sum(o.search_ms for o in outcomes) / FACTS:.1f} ms")
    return 0 if found == verbatim == 1.0 else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="conversations in LoCoMo's JSON")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        return report(asyncio.run(run(options.data, Path(folder), options.seed)))


if __name__ == "__main__":
    raise SystemExit(main())
