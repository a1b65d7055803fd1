"""What a model's server taught by refusing a request: read out of its words, remembered, told to the doctor.

Deciding is pure. What was learned holds for one server, as long as it serves the same model, and for a month.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from holdfast.agents.models.types import ModelAbout, ModelFailure, ModelRef
from holdfast.clock import Clock, Millis, iso
from holdfast.context import calibration
from holdfast.log import SYSTEM, Store
from holdfast.text import clip

Fact = Literal["alternates", "system", "tools", "images", "limit", "max_tokens", "thinking", "window"]
KEPT_MS: Final = 30 * 86_400_000
LOOK_AGAIN_MS: Final = 60_000
LEAST_WINDOW: Final = 1_024
_WHY: Final = 300


@dataclass(frozen=True, slots=True)
class Lesson:
    """One fact of a model, and the words that it was learned from."""

    fact: Fact
    value: bool | int | str
    why: str = ""

    @property
    def limits(self) -> bool:
        """Whether it takes something from what the model may do; else it is only asked in another form."""
        return self.fact in ("tools", "images", "max_tokens", "thinking", "window")


@dataclass(frozen=True, slots=True)
class Remembered:
    """A lesson, of which model at which server, and when it was learned."""

    ref: ModelRef
    server: str
    lesson: Lesson
    at: Millis

    def __str__(self) -> str:
        told = _TOLD[self.lesson.fact].format(self.lesson.value)
        return f"{self.ref} {told}, learned {iso(self.at)[:16]} from: {clip(self.lesson.why, 120)}"


_TOLD: Final[Mapping[Fact, str]] = {
    "alternates": "wants the roles to take turns",
    "system": "has no system role",
    "tools": "has no tools of its own: they are described in the prompt",
    "images": "takes no pictures",
    "limit": "takes the limit of an answer as {}",
    "max_tokens": "answers with at most {} tokens",
    "thinking": "is not told how much to think",
    "window": "has a window of {} tokens",
}


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE | re.DOTALL)


_ALTERNATE: Final = _any(
    r"roles? must alternate",
    r"must alternate between",
    r"alternate (?:between )?user",
    r"requests alternate between user",
    r"consecutive (?:user|assistant|messages)",
)
_NO_SYSTEM: Final = _any(
    r"system (?:role|messages?|prompts?) (?:is |are )?(?:not|un)[ -]?(?:supported|allowed)",
    r"does not support (?:the )?system",
    r"unsupported role.{0,20}system",
    r"role.{0,4}system.{0,12}is not",
    r"only user(?: and|,| or) (?:the )?(?:assistant|model) roles?",
    r"(?:developer|system) instruction is not enabled",
)
_NO_TOOLS: Final = _any(
    r"(?:does not|doesn't) support (?:tool|function)",
    r"tools? (?:use |calling |calls? )?(?:is|are) not (?:supported|available|enabled)",
    r"function[ _]call(?:ing|s)? (?:is|are) not (?:supported|enabled)",
    r"support tool use",
    r"enable-auto-tool-choice",
    r"tools? param(?:eter)? requires",
    r"tool_choice.{0,40}not supported",
)
_NO_IMAGES: Final = _any(
    r"(?:image|picture|vision|multimodal)s? (?:input )?(?:is|are) not (?:supported|enabled)",
    r"(?:does not|doesn't) support (?:image|vision|multimodal|picture)",
    r"not a (?:multimodal|vision)",
    r"support image input",
    r"image_url is only supported",
)
_NO_THINKING: Final = _any(
    r"(?:does not|doesn't) support (?:thinking|reasoning)",
    r"(?:thinking|reasoning)(?:[ _]effort)?['\"`]? (?:is|are) not (?:supported|enabled)",
    r"(?:unsupported|unknown|unrecognized|invalid|extra)[^.]{0,60}reasoning_effort",
    r"reasoning_effort[^.]{0,60}(?:unsupported|unknown|unrecognized|not permitted|does not support)",
)
_BAD_FIELD: Final = _any(
    r"(?:unsupported|unknown|unrecognized|invalid|extra)[^.]{0,60}['\"`]?\b(max_completion_tokens|max_tokens)",
    r"\b(max_completion_tokens|max_tokens)['\"`]?[^.]{0,30}"
    r"(?:is not supported|unsupported|not permitted|unrecognized)",
)
_MOST_OUTPUT: Final = _any(
    r"max_(?:completion_)?tokens[^.]{0,60}too (?:large|high)[^0-9]{0,20}\d*[^0-9]{1,80}at most (\d+)",
    r"max_(?:completion_)?tokens[^.]{0,40}less than or equal to [`'\"]?(\d+)",
)
_WINDOWS: Final = (
    r"available context size \((\d+)",
    r"maximum context length (?:is|of) (\d+)",
    r"context length of only (\d+)",
    r"context (?:window|length|size) (?:is|of) (\d+)",
    r"\d+ tokens > (\d+)",
    r"maximum number of (?:input )?tokens allowed \((\d+)",
    r'"?n_ctx"?\W{1,4}(\d+)',
)


def lesson(failed: ModelFailure, about: ModelAbout) -> Lesson | None:
    """What a refusal teaches that was not known; None where asking in another way would not help."""
    if failed.partial or failed.reason in ("auth", "billing", "rate_limit", "network", "not_configured"):
        return None
    said = failed.detail or failed.message
    found = _of_window(said, about) if failed.reason == "context_overflow" else _of_request(said, about)
    return None if found is None else replace(found, why=clip(" ".join(said.split()), _WHY))


def _of_window(said: str, about: ModelAbout) -> Lesson | None:
    for pattern in _WINDOWS:
        if found := re.search(pattern, said.replace(",", ""), re.IGNORECASE):
            window = int(found[1])
            return Lesson("window", window) if LEAST_WINDOW <= window < about.window else None
    return None


def _of_request(said: str, about: ModelAbout) -> Lesson | None:
    fit = about.fit
    if found := _MOST_OUTPUT.search(said):
        most = int(next(filter(None, found.groups())))
        return Lesson("max_tokens", most) if 0 < most < about.max_tokens else None
    if found := _BAD_FIELD.search(said):
        return _other_field(next(filter(None, found.groups())), said, about)
    if about.images and _NO_IMAGES.search(said):
        return Lesson("images", value=False)
    if fit.tools == "native" and _NO_TOOLS.search(said):
        return Lesson("tools", "prompt")
    if fit.thinking and _NO_THINKING.search(said):
        return Lesson("thinking", value=False)
    return _of_roles(said, about)


def _of_roles(said: str, about: ModelAbout) -> Lesson | None:
    """Templates name one fault at a time, and some the wrong one: what was mended is not the cause."""
    fit = about.fit
    no_system, alternate = _NO_SYSTEM.search(said), _ALTERNATE.search(said)
    if not (no_system or alternate):
        return None
    if alternate and not fit.alternates:
        return Lesson("alternates", value=True)
    if fit.system:
        return Lesson("system", value=False)
    return Lesson("tools", "prompt") if fit.tools == "native" else None


def _other_field(refused: str, said: str, about: ModelAbout) -> Lesson | None:
    other = "max_tokens" if refused == "max_completion_tokens" else "max_completion_tokens"
    if about.fit.limit is None and (
        other in said.replace(refused, "", 1) or refused == "max_completion_tokens"
    ):
        return Lesson("limit", other)
    return Lesson("limit", "none") if about.fit.limit != "none" else None


def applied(about: ModelAbout, lessons: Iterable[Lesson]) -> ModelAbout:
    """What is known of a model, with what was learned."""
    for one in lessons:
        value: Any = one.value
        match one.fact:
            case "images":
                about = replace(about, images=value)
            case "window":
                about = replace(about, window=min(about.window, value))
            case "max_tokens":
                about = replace(about, max_tokens=min(about.max_tokens, value))
            case fact:
                about = replace(about, fit=replace(about.fit, **{fact: value}))
    return about


class LessonKeeper(Protocol):
    """Where lessons last. Both block."""

    def load(self) -> Sequence[Remembered]: ...
    def save(self, learned: Remembered) -> None: ...


class StoredLessons:
    """Lessons in the store, so that every gateway of a home has them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def load(self) -> list[Remembered]:
        with self._store.read(SYSTEM) as tx:
            rows = calibration.lessons(tx)
        return [
            Remembered(
                ModelRef.parse(row.model), row.server, Lesson(row.fact, row.value, row.why), Millis(row.at)
            )
            for row in rows
        ]

    def save(self, learned: Remembered) -> None:
        one = learned.lesson
        row = calibration.LessonRow(
            str(learned.ref), one.fact, learned.server, one.value, one.why, int(learned.at)
        )
        self._store.run(SYSTEM, lambda tx: calibration.teach(tx, row))


class Lessons:
    """What was learned of all models. Loaded when first asked for, and again now and then: other processes
    of the same home learn too."""

    def __init__(self, keeper: LessonKeeper | None, clock: Clock) -> None:
        self._keeper = keeper
        self._clock = clock
        self._known: dict[tuple[ModelRef, Fact], Remembered] = {}
        self._loaded_at: int | None = None

    def refresh(self) -> None:
        """Blocks, where there is something to load."""
        now = self._clock.now()
        if self._keeper is None or (self._loaded_at is not None and now - self._loaded_at < LOOK_AGAIN_MS):
            return
        self._loaded_at = now
        self._known = {(one.ref, one.lesson.fact): one for one in self._keeper.load()}

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` would load."""
        if self._keeper is None:
            return False
        return self._loaded_at is None or self._clock.now() - self._loaded_at >= LOOK_AGAIN_MS

    def of(self, ref: ModelRef, server: str) -> list[Lesson]:
        """What holds of a model at this server now."""
        known = [one for (of, _), one in self._known.items() if of == ref and self._holds(one, server)]
        return [one.lesson for one in sorted(known, key=lambda one: one.lesson.fact)]

    def all(self) -> list[Remembered]:
        """All that was learned and is not too old, by model."""
        now = self._clock.now()
        return sorted(
            (one for one in self._known.values() if now - one.at < KEPT_MS),
            key=lambda one: (one.ref, one.lesson.fact),
        )

    def learn(self, ref: ModelRef, server: str, learned: Iterable[Lesson]) -> None:
        """Blocks, where it is kept for good."""
        for one in learned:
            kept = Remembered(ref, server, one, self._clock.now())
            self._known[ref, one.fact] = kept
            if self._keeper is not None:
                self._keeper.save(kept)

    def _holds(self, one: Remembered, server: str) -> bool:
        return self._clock.now() - one.at < KEPT_MS and _is_same_server(one.server, server)


def server_name(url: str, identity: str) -> str:
    """A server and what it serves, as far as it tells."""
    return f"{url} {identity}".strip()


def _is_same_server(one: str, other: str) -> bool:
    """At the same address, serving the same model; one that does not tell what it serves is taken for it."""
    (url, _, was), (now_url, _, now) = one.partition(" "), other.partition(" ")
    return url == now_url and (not was or not now or was == now)
