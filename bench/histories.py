"""People's talk with an assistant over weeks, as `bench/continuity/*.txt` has it, and filler to bury it in.

The form of the files is explained at the head of `continuity/a_mara.txt`. `load` checks what it reads: the
words of an answer stand in the history and not in the question, matters are known, and time only passes.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path

FOLDER = Path(__file__).parent / "continuity"
STEP = timedelta(minutes=1)
A_DAY = 120
"""Lines a day when a history is made longer."""
_FILLER = "filler: "
PERSONS = (
    "Ottilie",
    "Casimir",
    "Philippa",
    "Anselm",
    "Rosalind",
    "Balthasar",
    "Cordula",
    "Fergus",
    "Ludmila",
)


@dataclass(frozen=True, slots=True)
class Line:
    at: datetime
    session: str
    role: str
    text: str
    matter: str | None


@dataclass(frozen=True, slots=True)
class Matter:
    """What a person would file lines under; `words` are those that tell it from the others."""

    title: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """`answers` are alternatives, each a tuple of words that all must stand; `over` is the state before."""

    text: str
    answers: tuple[tuple[str, ...], ...]
    over: str | None = None

    def answered_by(self, text: str) -> bool:
        return any(all(stands(word, text) for word in words) for words in self.answers)

    def outdated_in(self, text: str) -> bool:
        return self.over is not None and stands(self.over, text)


@dataclass(frozen=True, slots=True)
class Overview:
    """A question for how a matter stands; each of its facts may stand anywhere in the block."""

    text: str
    facts: tuple[str, ...]

    def share(self, text: str) -> float:
        return sum(stands(fact, text) for fact in self.facts) / len(self.facts)


@dataclass(frozen=True, slots=True)
class History:
    name: str
    person: str
    language: str
    split: str
    now: datetime
    matters: dict[str, Matter]
    lines: tuple[Line, ...]
    questions: tuple[Question, ...]
    overviews: tuple[Overview, ...]
    unanswerable: tuple[str, ...]

    @property
    def sessions(self) -> list[str]:
        return list(dict.fromkeys(line.session for line in self.lines))

    def last_with(self, words: str) -> Line:
        return next(line for line in reversed(self.lines) if stands(words, line.text))

    def evidence(self, question: Question) -> list[int]:
        """The lines that answer it, newest first."""
        return [n for n in range(len(self.lines) - 1, -1, -1) if question.answered_by(self.lines[n].text)]


def plain(text: str) -> str:
    """For comparing: one case, one kind of space and dash, no markup that a reader would not see."""
    text = text.casefold().replace("–", "-").replace("\u202f", " ").replace("\xa0", " ").replace("’", "'")
    return " ".join(text.split())


def stands(words: str, text: str) -> bool:
    """Whether the words stand in the text, from a word's beginning to a word's end."""
    pattern = (
        rf"(?<![\w]){re.escape(plain(words))}(?![\w])" if words[-1].isalnum() else re.escape(plain(words))
    )
    return re.search(pattern, plain(text)) is not None


def is_filler(matter: str) -> bool:
    return matter.startswith(_FILLER)


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("?_*.txt"))


def load(name: str) -> History:
    history = _parsed(name, (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines())
    _check(history)
    return history


def _parsed(name: str, rows: Sequence[str]) -> History:
    told: dict[str, str] = {}
    matters: dict[str, Matter] = {}
    lines: list[Line] = []
    questions: list[Question] = []
    overviews: list[Overview] = []
    unanswerable: list[str] = []
    at, session, matter = datetime.min, "", ""
    for row in rows:
        mark, _, rest = row.partition(" ")
        if not row.strip() or row.startswith("//"):
            continue
        if mark == "==":
            day, time, session = rest.split()
            at = _moment(f"{day} {time}")
        elif mark in (">", "<"):
            role = "user" if mark == ">" else "assistant"
            lines.append(Line(at, session, role, rest, None if matter == "-" else matter))
            at += STEP
        elif mark == "#":
            matter = rest
        elif row.startswith("+"):
            at += timedelta(minutes=int(row[1:]))
        elif mark == "?":
            questions.append(_question(rest))
        elif mark == "*":
            asked, _, facts = rest.partition(" = ")
            overviews.append(Overview(asked, tuple(facts.split(" && "))))
        elif mark == "x":
            unanswerable.append(rest)
        elif mark == "matter":
            key, _, about = rest.partition(": ")
            title, _, words = about.partition(" | ")
            matters[key] = Matter(title, tuple(words.split(", ")))
        else:
            told[mark.rstrip(":")] = rest
    return History(
        name,
        told["person"],
        told["language"],
        told["split"],
        _moment(told["now"]),
        matters,
        tuple(lines),
        tuple(questions),
        tuple(overviews),
        tuple(unanswerable),
    )


def _moment(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


def _question(text: str) -> Question:
    asked, _, answer = text.partition("? = ")
    words, _, over = answer.partition(" !! ")
    answers = tuple(tuple(one.split(" && ")) for one in words.split(" || "))
    return Question(f"{asked}?", answers, over or None)


def _check(history: History) -> None:
    unknown = {line.matter for line in history.lines} - {*history.matters, None}
    assert not unknown, f"{history.name}: unknown matters {unknown}"
    times = [line.at for line in history.lines]
    assert times == sorted(times), f"{history.name}: time runs backwards"
    assert times[-1] < history.now, f"{history.name}: asked before all was said"
    for question in history.questions:
        for words in question.answers:
            alone = Question(question.text, (words,))
            assert history.evidence(alone), f"{history.name}: nobody said {words}"
            assert not alone.answered_by(question.text), f"{history.name}: {question.text!r} answers itself"
    wanted = [q.over for q in history.questions if q.over is not None]
    wanted += [fact for overview in history.overviews for fact in overview.facts]
    unsaid = [words for words in wanted if not any(stands(words, line.text) for line in history.lines)]
    assert not unsaid, f"{history.name}: nobody said {unsaid}"


# What follows makes a history longer.


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of filler matter: what it is called, what it may be about, and exchanges with places to fill."""

    title: str
    things: tuple[str, ...]
    exchanges: tuple[tuple[str, str], ...]


def grown(history: History, size: int, seed: int = 16) -> History:
    """The same history among talk on other matters, `size` lines in all; the same each time."""
    missing = size - len(history.lines)
    if missing <= 0:
        return history
    rng = random.Random(f"{history.name}:{seed}")
    begin = min(history.lines[0].at, history.now - timedelta(days=size / A_DAY))
    matters = dict(history.matters)
    busy = {(line.session, _hour(line.at)) for line in history.lines}
    filler: list[Line] = []
    for key, matter, exchanges in _subjects(history.language, rng):
        matters[key] = matter
        for _ in range(rng.randint(2, 5)):
            session, at = _free(history, begin, busy, rng)
            lines = _visit(history, key, exchanges, session, at, rng)
            filler += lines[: missing - len(filler)]
        if len(filler) >= missing:
            break
    lines = sorted((*history.lines, *filler), key=lambda line: line.at)
    return replace(history, matters=matters, lines=tuple(lines))


def _subjects(language: str, rng: random.Random) -> Iterator[tuple[str, Matter, list[tuple[str, str]]]]:
    """Filler matters in a mixed order; when all had their turn, they return."""
    kinds = [kind for code in ("en", "de") if language in (code, "mixed") for kind in _kinds(code)]
    every = [(kind, thing) for kind in kinds for thing in kind.things]
    rng.shuffle(every)
    for kind, thing in cycle(every):
        title = kind.title.format(thing=thing)
        told = [(a.replace("{thing}", thing), b.replace("{thing}", thing)) for a, b in kind.exchanges]
        words = tuple(word for word in re.findall(r"\w+", thing.casefold()) if len(word) > 3)
        yield f"{_FILLER}{title}", Matter(title, words), told


def _kinds(language: str) -> list[Kind]:
    found: list[Kind] = []
    title, things, said = "", "", [""]
    for row in [*(FOLDER / f"filler_{language}.txt").read_text(encoding="utf-8").splitlines(), ":: "]:
        mark, _, rest = row.partition(" ")
        if mark == "::":
            if title:
                pairs = tuple(zip(said[::2], said[1::2], strict=True))
                found.append(Kind(title, tuple(things.split(", ")), pairs))
            title, said = rest, []
        elif mark == "thing":
            things = rest.removeprefix("= ")
        elif mark in (">", "<"):
            said.append(rest)
    return found


def _hour(at: datetime) -> int:
    return int(at.timestamp()) // 3600


def _free(
    history: History, begin: datetime, busy: set[tuple[str, int]], rng: random.Random
) -> tuple[str, datetime]:
    """A session and an hour in which nothing else is said there."""
    sessions = [*history.sessions, "web:1", "web:2"]
    hours = range(_hour(begin), _hour(history.now))
    while True:
        chosen = rng.choice(sessions), rng.choice(hours)
        if chosen not in busy:
            busy.add(chosen)
            return chosen[0], datetime.fromtimestamp(chosen[1] * 3600 + 60 * rng.randint(0, 40), UTC)


def _visit(
    history: History,
    key: str,
    exchanges: Sequence[tuple[str, str]],
    session: str,
    at: datetime,
    rng: random.Random,
) -> list[Line]:
    """Some exchanges on a matter."""
    count = rng.randint(2, len(exchanges))
    said = [text for pair in rng.sample(exchanges, count) for text in pair]
    return [
        Line(at + n * STEP, session, "assistant" if n % 2 else "user", _filled(history, text, rng), key)
        for n, text in enumerate(said)
    ]


def _filled(history: History, text: str, rng: random.Random) -> str:
    """The places filled with words that answer none of the questions."""
    while True:
        made = text.format(
            person=rng.choice(PERSONS),
            day=f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.",
            hour=f"{rng.randint(7, 21)}:{rng.choice(('05', '20', '35', '50'))}",
            n=rng.randint(3, 19),
            minutes=rng.choice((8, 11, 13, 22, 33, 37, 44)),
            money=rng.choice((35, 49, 79, 95, 129, 159, 260)),
            code=rng.randint(111, 999),
        )
        made = made[0].upper() + made[1:]
        if not any(question.answered_by(made) for question in history.questions):
            return made
