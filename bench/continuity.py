"""How right the continuity block is: whether what a person asks stands in it, and nothing where nothing fits.

    python bench/continuity.py                           # eighteen histories, some minutes of CPU
    python bench/continuity.py --history c_sam --why     # each question that fails, and where its answer went
    python bench/continuity.py --size 5000               # the same histories buried in other talk; minutes
    python bench/continuity.py --against bench/continuity/baseline.json  # beside what it was before step 5

The histories are in `bench/continuity/`. Each is written into a home of its own, line by line at the times
that it names, and sorted as a gateway does it, without a model. Then every question is asked from the session
that has the answer, from another one and from a fresh one, at 2,200 and at 1,200 characters. An answer counts
when its words stand in the block below the head, which repeats the question. Two baselines have the room too:
the newest lines of the session (in a fresh one: of all), and the best of the log by BM25 and cosine together.
`search` is what the board's own search would show if its hits, whole and in their order, were the block.

`tuning` histories are there to find rules with. `held back` ones are for proof: nobody tunes on them.
`unseen` ones were written before any of it was tried on them; their totals have been looked at since.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from continuity_judges import (
    Plain,
    beginning_to_end,
    body,
    mid_word_cuts,
    name_faults,
    own_words,
    recalled,
    repeats,
    where_it_went,
)
from histories import History, Line, Question, grown, is_filler, load, names

from holdfast.board import ingest, topics
from holdfast.board.block import MAX_CHARS
from holdfast.board.context import Context, ContextAsk
from holdfast.board.search import SearchAsk
from holdfast.board.visibility import Sight
from holdfast.clock import ManualClock
from holdfast.log import OWNER, SYSTEM, EntryDraft, entries
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services

LIMITS = (2200, 1200)
PLACES = ("same", "other", "fresh")
FRESH = "agent:main:web:fresh"
QUIET_MINUTES = 30
SEARCHED = 36
HEAD = 300
"""About what the head of a block takes; the baselines have the rest."""
TARGETS = {
    "answered at 2200": 28 / 29,
    "answered at 2200, same": None,
    "answered at 2200, other": None,
    "answered at 2200, fresh": 17 / 18,
    "answered at 1200": 25 / 29,
    "facts of an overview at 2200": None,
    "facts of an overview at 1200": None,
    "outdated without the present": 0.0,
    "recall lines where nothing fits": 0.0,
    "repeated lines a block": 0.0,
    "lines cut in a word": 0.0,
    "topics for a matter": (0.9, 1.3),
    "pairwise F1": 0.80,
    "pairwise precision": None,
    "pairwise recall": None,
    "names that are no names": 0.0,
    "share of the room used": None,
    "CPU ms a context": 10.0,
}
Figures = dict[str, float]
T = TypeVar("T")


def key_of(session: str) -> str:
    return f"agent:main:{session}"


@dataclass
class Stage:
    """A home with a history in it, and what became of each line."""

    history: History
    hold: Holdfast
    clock: ManualClock
    ids: list[str] = field(default_factory=list)

    async def live(self) -> None:
        """Say every line when it was said; sort after each exchange, and in quiet times what is left."""
        runner = Services(self.hold).runner
        lines = self.history.lines
        for n, line in enumerate(lines):
            self._pass_until(line)
            self._say(line)
            following = lines[n + 1] if n + 1 < len(lines) else None
            if following is None or following.role == "user":
                await self._sort(runner)
            if following is None or (following.at - line.at).total_seconds() > 60 * QUIET_MINUTES:
                for _ in range(4):
                    self.clock.advance(minutes=5)
                    await self._sort(runner)
        for _ in range(60 + len(lines) // 20):
            self.clock.advance(seconds=61)
            await runner.drain()
        self.clock.advance(ms=max(0, int(self.history.now.timestamp() * 1000) - self.clock.now()))
        self.hold.board.search.bring_up_to_date(SYSTEM)

    def _pass_until(self, line: Line) -> None:
        self.clock.advance(ms=max(0, int(line.at.timestamp() * 1000) - self.clock.now()))

    def _say(self, line: Line) -> None:
        writer = "user" if line.role == "user" else "main"
        key = key_of(line.session)
        draft = EntryDraft(content=line.text, role=line.role, session_key=key, agent_id=writer)
        with self.hold.store.write(OWNER) as tx:
            prepared = ingest.prepare(tx, draft, self.hold.settings.board)
            self.ids.append(entries.append(tx, prepared).entry.id)

    async def _sort(self, runner: Any) -> None:
        self.clock.advance(seconds=5)
        await asyncio.to_thread(self.hold.board.search.bring_up_to_date, SYSTEM)
        await runner.drain()

    def place(self, question: Question, which: str) -> str | None:
        """The session to ask from; None: the history has but one."""
        has = {self.history.lines[n].session for n in self.history.evidence(question)}
        newest = self.history.lines[self.history.evidence(question)[0]].session
        others = [one for one in self.history.sessions if one not in has]
        if which == "other":
            return key_of(others[0]) if others else None
        return key_of(newest) if which == "same" else FRESH

    def ask(self, q: str, key: str, limit: int) -> tuple[Context, float]:
        """The block as `GET /api/context` gives it on a fresh install, and the CPU seconds it took."""
        options = self.hold.settings.board
        ask = ContextAsk(
            q=q,
            sight=Sight(reader=OWNER, session_key=key),
            mode=options.context_mode,
            include_pending=options.include_pending,
            max_chars=limit,
            working_set_limit=options.working_set_limit,
            timeline_limit=options.timeline_limit,
        )
        began = time.process_time()
        context = self.hold.board.continuity.build(ask)
        assert len(context.block) <= limit
        return context, time.process_time() - began

    def searched(self, q: str, key: str) -> list[int]:
        """The lines that the board's search finds for a question, best first."""
        ask = SearchAsk(q=q, sight=Sight(reader=OWNER, session_key=key), logs=SEARCHED)
        numbers = {id_: n for n, id_ in enumerate(self.ids)}
        return [numbers[one.item.id] for one in self.hold.board.search.run(ask).logs]

    def sorted(self) -> tuple[list[str], dict[str, str]]:
        """The topic of each line, and the topics' names."""
        with self.hold.store.read(OWNER) as tx:
            placed = {str(one.id): one.topic_id or f"none:{one.id}" for one in entries.get_many(tx, self.ids)}
            used = sorted({id_ for id_ in placed.values() if not id_.startswith("none:")})
            named = {one.id: one.name for one in topics.get_many(tx, used)}
        return [placed[id_] for id_ in self.ids], named


class Missed(NamedTuple):
    """A question whose answer is not in the block, and where it was lost."""

    question: str
    place: str
    limit: int
    why: str
    outdated: bool
    block: str


@dataclass
class Result:
    """What one history came to: shares by name for each method, with what stands behind them."""

    history: str
    split: str
    lines: int
    counts: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    missed: list[Missed] = field(default_factory=list)
    room: Counter[tuple[int, str, str]] = field(default_factory=Counter)
    names: list[tuple[str, str, str]] = field(default_factory=list)

    def note(self, method: str, name: str, value: float) -> None:
        self.counts[method][name].append(value)


def measured(history: History) -> Result:
    with tempfile.TemporaryDirectory(prefix="hf-continuity-") as folder:
        clock = ManualClock(int(history.lines[0].at.timestamp() * 1000) - 60_000)
        with open_home(folder, clock=clock) as hold:
            stage = Stage(history, hold, clock)
            asyncio.run(stage.live())
            result = Result(history.name, history.split, len(history.lines))
            _ask_all(stage, result)
            _ask_how_it_stands(stage, result)
            _ask_in_vain(stage, result)
            _judge_topics(stage, result)
    return result


def _ask_all(stage: Stage, result: Result) -> None:
    plain = Plain(stage.history)
    stage.ask("warm up the embedder", FRESH, 2200)
    for question in stage.history.questions:
        for place in PLACES:
            key = stage.place(question, place)
            for limit in LIMITS if key is not None else ():
                context, cpu = stage.ask(question.text, key or "", limit)
                result.note("holdfast", "CPU ms a context", cpu * 1000)
                result.note("holdfast", "share of the room used", len(context.block) / limit)
                _note_answer(stage, result, question, place, limit, key or "", context)
                for method, lines in _beside(stage, plain, question.text, key or "", limit).items():
                    _note_share(result, method, question, place, limit, lines)
                    result.note(method, "repeated lines a block", len(repeats(lines)))


def _beside(stage: Stage, plain: Plain, q: str, key: str, limit: int) -> dict[str, list[str]]:
    """The baselines, and what the board's own search would show if its lines were the block."""
    room = limit - HEAD
    return {**plain.lines(q, key, room), "search": plain.whole(stage.searched(q, key), room)}


def _note_answer(
    stage: Stage, result: Result, question: Question, place: str, limit: int, key: str, context: Context
) -> None:
    shown = body(context.block)
    answered = _note_share(result, "holdfast", question, place, limit, shown.lines)
    result.note("holdfast", "repeated lines a block", len(repeats(shown.lines)))
    for title in {title for title, _ in shown.titled}:
        lines = [line for one, line in shown.titled if one == title]
        result.room[limit, title, "characters"] += sum(len(line) + 3 for line in lines)
        result.room[limit, title, "answers"] += question.answered_by("\n".join(lines))
    texts = [line.text for line in stage.history.lines]
    result.note("holdfast", "lines cut in a word", len(mid_word_cuts(shown.lines, texts, _digests(context))))
    if not answered:
        there = stage.history.evidence(question)
        said = {stage.ids[n]: texts[n] for n in there}
        why = where_it_went(said, shown.lines, context.data)
        below = not (context.data["semantic"] or {"fits": True})["fits"]
        why = why or ("below the floor" if below else _not_weighed(stage, question, key))
        outdated = question.outdated_in("\n".join(shown.lines))
        result.missed.append(Missed(question.text, place, limit, why, outdated, context.block))


def _not_weighed(stage: Stage, question: Question, key: str) -> str:
    there, found = stage.history.evidence(question), stage.searched(question.text, key)
    rank = min((found.index(n) + 1 for n in there if n in found), default=None)
    return f"not among the search's first {SEARCHED}" if rank is None else f"found {_banded(rank)}, not taken"


def _banded(rank: int) -> str:
    return next(f"at {low}–{high}" for low, high in ((1, 6), (7, 12), (13, 36)) if rank <= high)


def _note_share(
    result: Result, method: str, question: Question, place: str, limit: int, lines: Sequence[str]
) -> bool:
    text = "\n".join(lines)
    answered = question.answered_by(text)
    result.note(method, f"answered at {limit}", answered)
    result.note(method, f"answered at {limit}, {place}", answered)
    if question.over is not None:
        result.note(method, "outdated without the present", question.outdated_in(text) and not answered)
    return answered


def _ask_how_it_stands(stage: Stage, result: Result) -> None:
    """From the session that has the first fact, and from a fresh one."""
    plain = Plain(stage.history)
    for overview in stage.history.overviews:
        session = stage.history.last_with(overview.facts[0]).session
        for key in (key_of(session), FRESH):
            for limit in LIMITS:
                shown = body(stage.ask(overview.text, key, limit)[0].block)
                blocks = {"holdfast": shown.lines, **_beside(stage, plain, overview.text, key, limit)}
                for method, lines in blocks.items():
                    result.note(method, f"facts of an overview at {limit}", overview.share("\n".join(lines)))


def _digests(context: Context) -> list[str]:
    """Digests and names that the block may quote, wherever `data` has them."""
    found: list[str] = []
    waiting: list[Any] = [context.data]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            found += [one[name] for name in ("digest", "name", "summary") if isinstance(one.get(name), str)]
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return found


def _ask_in_vain(stage: Stage, result: Result) -> None:
    plain = Plain(stage.history)
    for text in stage.history.unanswerable:
        for key in (FRESH, key_of(stage.history.sessions[0])):
            context, _ = stage.ask(text, key, LIMITS[0])
            head = next((row for row in context.block.splitlines() if text[:20] in row), "")
            rooms = (LIMITS[0] - len(head) - 1, MAX_CHARS)  # the question itself takes room
            unasked = [stage.ask("", key, room)[0].block for room in rooms]
            lines = recalled(context.block, *unasked)
            result.note("holdfast", "recall lines where nothing fits", len(lines))
            result.note("search", "recall lines where nothing fits", len(stage.searched(text, key)))
            result.note(
                "top-k",
                "recall lines where nothing fits",
                len(plain.lines(text, key, LIMITS[0] - HEAD)["top-k"]),
            )


def _judge_topics(stage: Stage, result: Result) -> None:
    """The topics of what the history says; filler counts where it was put among that."""
    placed, named = stage.sorted()
    lines = stage.history.lines
    sessions = [line.session for line in lines]
    truth = [line.matter for line in lines]
    for method, found in (("holdfast", placed), ("newest", sessions)):
        for name, value in zip(("precision", "recall", "F1"), _pairwise(truth, found), strict=True):
            result.note(method, f"pairwise {name}", value)
    own = {matter for matter in truth if matter is not None and not is_filler(matter)}
    chosen = {topic: name for topic, name in named.items() if _matters(truth, placed, topic) & own}
    result.note("holdfast", "topics for a matter", len(chosen) / len(own))
    telling = own_words(stage.history)
    for topic, name in chosen.items():
        matters = Counter({m: n for m, n in Counter(_within(truth, placed, topic)).items() if m is not None})
        matter = matters.most_common(1)[0][0]
        texts = _within([line.text for line in lines], placed, topic)
        fault = name_faults(name, telling[matter], texts)
        result.note("holdfast", "names that are no names", bool(fault))
        result.names.append((name, ", ".join(f"{m} {n}" for m, n in matters.most_common(4)), fault))


def _within(values: Sequence[T], placed: Sequence[str], topic: str) -> list[T]:
    return [value for value, place in zip(values, placed, strict=True) if place == topic]


def _matters(truth: Sequence[str | None], placed: Sequence[str], topic: str) -> set[str | None]:
    return set(_within(truth, placed, topic))


def _pairwise(truth: Sequence[str | None], found: Sequence[str]) -> tuple[float, float, float]:
    """Precision, recall and F1 over pairs of lines with a matter, at least one of them the history's own."""
    known = [(t, f) for t, f in zip(truth, found, strict=True) if t is not None]
    own = [(t, f) for t, f in known if not is_filler(t)]
    both = sum(n * (n - 1) // 2 for n in Counter(own).values())
    made = Counter(f for _, f in own)
    beside = Counter(f for t, f in known if is_filler(t))
    precision = both / max(1, sum(n * (n - 1) // 2 + n * beside[f] for f, n in made.items()))
    recall = both / max(1, sum(n * (n - 1) // 2 for n in Counter(t for t, _ in own).values()))
    return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)


# What follows prints.


def figures(results: Iterable[Result]) -> dict[str, Figures]:
    """Means over all that was asked, by method."""
    every: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        for method, counts in result.counts.items():
            for name, values in counts.items():
                every[method][name] += values
    return {
        method: {name: sum(values) / len(values) for name, values in counts.items()}
        for method, counts in every.items()
    }


def report(title: str, found: dict[str, Figures], before: dict[str, Figures] | None) -> None:
    columns = ["holdfast", *(["before"] if before else []), "newest", "top-k", "search"]
    print(f"\n{title}")
    print(f"  {'':<34}" + "".join(f"{name:>10}" for name in columns) + f"{'target':>10}{'ratio':>9}")
    shown = {**found, "before": (before or {}).get("holdfast", {})}
    for name, target in TARGETS.items():
        values = [shown.get(column, {}).get(name) for column in columns]
        cells = "".join(f"{'' if value is None else f'{value:.2f}':>10}" for value in values)
        print(f"  {name:<34}{cells}{_target(target):>10}{_ratio(values[0], target):>9}")


def _earlier(
    before: dict[str, Any], split: str, chosen: Sequence[Result] | None
) -> dict[str, Figures] | None:
    """The figures of an earlier run for the same histories: all of a split, or one."""
    found: dict[str, dict[str, Figures]] = before.get("histories" if chosen else "splits", {})
    if chosen and len(chosen) > 1:
        return None
    return found.get(chosen[0].history if chosen else split)


def _target(target: float | tuple[float, float] | None) -> str:
    if target is None:
        return ""
    return f"{target[0]}–{target[1]}" if isinstance(target, tuple) else f"{target:.2f}"


def _ratio(value: float | None, target: float | tuple[float, float] | None) -> str:
    """Of the target; where that is nothing at all there is no ratio, only right or not."""
    if value is None or target is None:
        return ""
    if isinstance(target, tuple):
        return "ok" if target[0] <= value <= target[1] else f"{value / target[1]:.2f}"
    if target == 0:
        return "ok" if value == 0 else "not yet"
    return f"{value / target:.2f}"


def explain(result: Result, *, blocks: bool) -> None:
    print(f"\n{result.history}: {len(result.missed)} answers are not in their blocks")
    for one in result.missed:
        old = ", the old state stands" if one.outdated else ""
        print(f"  {one.limit} {one.place:<6} {one.question}\n              {one.why}{old}")
        if blocks:
            print(beginning_to_end(one.block))
    for name, matter, fault in result.names:
        print(f"  topic {name!r} of {matter or 'nothing'}{f': {fault}' if fault else ''}")


def reasons(results: Sequence[Result]) -> None:
    for limit in LIMITS:
        counts = Counter(one.why for result in results for one in result.missed if one.limit == limit)
        print(f"\n  why answers are missing at {limit}")
        for why, count in counts.most_common():
            print(f"    {count:>4}  {why}")
        _room(results, limit)


def _room(results: Sequence[Result], limit: int) -> None:
    """Where the characters go, and where the answers are."""
    room = sum((result.room for result in results), Counter[tuple[int, str, str]]())
    asked = sum(len(result.counts["holdfast"][f"answered at {limit}"]) for result in results)
    titles = sorted({title for of, title, _ in room if of == limit})
    every = sum(room[limit, title, "characters"] for title in titles)
    for title in titles:
        share, answers = room[limit, title, "characters"] / every, room[limit, title, "answers"] / asked
        print(f"    {share:>5.0%} of the room, {answers:>4.0%} of the answers in: {title}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--history", action="append", choices=names(), help="only this one; may be repeated")
    parser.add_argument("--size", type=int, default=0, help="bury each history in this many lines")
    parser.add_argument(
        "--why", action="store_true", help="each answer that is missing, and each topic's name"
    )
    parser.add_argument("--blocks", action="store_true", help="with --why: the blocks too")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--against", type=Path, help="figures of an earlier run, shown beside")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    before = json.loads(given.against.read_text()) if given.against else {}
    results = [measured(grown(load(name), given.size)) for name in given.history or names()]
    splits: dict[str, dict[str, Figures]] = {}
    for split in dict.fromkeys(result.split for result in results):
        chosen = [result for result in results if result.split == split]
        splits[split] = figures(chosen)
        told = ", ".join(f"{result.history} ({result.lines:,} lines)" for result in chosen)
        report(f"{split}: {told}", splits[split], _earlier(before, split, given.history and chosen))
        reasons(chosen)
    if given.why:
        for result in results:
            explain(result, blocks=given.blocks)
    if given.json:
        each = {result.history: figures([result]) for result in results}
        missed = {result.history: [one[:-1] for one in result.missed] for result in results}
        told = json.dumps({"splits": splits, "histories": each, "missed": missed}, ensure_ascii=False)
        given.json.write_text(f"{told}\n")


if __name__ == "__main__":
    main()
