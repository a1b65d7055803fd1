"""What plugins bring in place of built-in parts: models, embedders, memory and sandboxes, each behind its
guard."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np

from holdfast.agents.models.types import (
    CallDelta,
    ModelAbout,
    ModelEvent,
    ModelFailure,
    ModelRef,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThinkingDelta,
)
from holdfast.agents.sandbox import Job, Start
from holdfast.clock import Clock
from holdfast.config.memory import MemoryConfig
from holdfast.errors import HoldfastError
from holdfast.log import Store
from holdfast.memory.backend import BackendFailed
from holdfast.memory.collections import Collection
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.results import Diagnostics, Found, Hit, Room
from holdfast.memory.scope import shows_citations
from holdfast.memory.service import Ask, check_query
from holdfast.memory.snippets import Snippet, snippet
from holdfast.memory.text import query_terms
from holdfast.plugins.running import Part
from holdfast.text import clean_text, clip

_EVENTS: Final = (TextDelta, ThinkingDelta, CallDelta, ModelReply)
_MOST_WAITING: Final = 10_000
MOST_HITS: Final = 100
MOST_TEXT: Final = 20_000
MemorySource = Literal["memory", "sessions"]
_SOURCES: Final[dict[MemorySource, str]] = {"memory": "file", "sessions": "transcript"}
_GRACE_SECONDS: Final = 1.0
_GRACE_OF_STEPS: Final = 30.0


class GuardedModel:
    """A plugin's model: what it says comes piece by piece from the plugin's own loop, each within a time."""

    def __init__(self, ref: ModelRef, theirs: Any, part: Part, seconds: Callable[[], float]) -> None:
        self._ref = ref
        self._theirs = theirs
        self._part = part
        self._seconds = seconds
        self.about = part.call_here(lambda: theirs.about, seconds=seconds(), check=self._described)

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if self._part.is_out:
            raise self._failure(f"it is left out after failures in a row: {self._part.last_error}")
        pieces: asyncio.Queue[object] = asyncio.Queue(_MOST_WAITING)
        pumping = self._part.loop.begin(_pump, self._theirs, request, pieces, asyncio.get_running_loop())
        try:
            while True:
                piece = await asyncio.wait_for(pieces.get(), self._seconds())
                if isinstance(piece, ModelFailure):
                    raise piece
                if not isinstance(piece, _EVENTS):
                    raise self._failed(f"gave {_named(piece)}, which is no part of an answer")
                if isinstance(piece, ModelReply):
                    self._part.worked()
                    yield self._whole(piece)
                    return
                yield piece
        except TimeoutError:
            raise self._failed(f"said nothing for {self._seconds():g} s") from None
        finally:
            pumping.cancel()

    def _whole(self, reply: ModelReply) -> ModelReply:
        if not isinstance(reply.text, str) or not isinstance(reply.calls, tuple):
            raise self._failed("gave an answer of the wrong shape")
        return replace(reply, model=self._ref, text=clean_text(reply.text))

    def _described(self, found: Any) -> ModelAbout:
        if not isinstance(found, ModelAbout):
            raise TypeError(f"expected `about` to be a ModelAbout, found {type(found).__name__}")
        return replace(found, ref=self._ref)

    def _failed(self, why: str) -> ModelFailure:
        return self._failure(self._part.failed(why).message)

    def _failure(self, why: str) -> ModelFailure:
        return ModelFailure(why, "bad_response", ref=self._ref)


async def _pump(
    model: Any, request: ModelRequest, pieces: asyncio.Queue[object], loop: asyncio.AbstractEventLoop
) -> None:
    """On the plugin's loop: hand over every piece, and at last what went wrong."""

    def hand_over(piece: object) -> None:
        if not pieces.full():
            pieces.put_nowait(piece)

    last: object = "its end before a whole answer"
    try:
        async for piece in model.stream(request):
            loop.call_soon_threadsafe(hand_over, piece)
            if isinstance(piece, ModelReply):
                return
    except ModelFailure as failure:
        last = failure
    except Exception as error:  # noqa: BLE001 - the boundary: told to whoever waits for the answer
        last = error
    loop.call_soon_threadsafe(hand_over, last)


def _named(piece: object) -> str:
    if isinstance(piece, str):
        return piece
    return f"{type(piece).__name__}: {piece}"[:200] if isinstance(piece, Exception) else type(piece).__name__


class GuardedSandbox:
    """A plugin's sandbox. Where it fails no command is started; nothing stands in for it."""

    def __init__(self, theirs: Any, part: Part, seconds: Callable[[], float]) -> None:
        self.name = f"plugin {part.plugin_id}"
        self._theirs = theirs
        self._part = part
        self._seconds = seconds

    def missing(self) -> str | None:
        return self._part.call_here(self._theirs.missing, seconds=self._seconds(), check=_reason)

    def start(self, job: Job) -> Start:
        return self._part.call_here(self._theirs.start, job, seconds=self._seconds(), check=_start)


def _reason(found: Any) -> str | None:
    if found is not None and not isinstance(found, str):
        raise TypeError(f"expected what is missing, or nothing; found {type(found).__name__}")
    return found


def _start(found: Any) -> Start:
    """Words for the system, each of which it takes."""
    if not isinstance(found, Start):
        raise TypeError(f"expected a Start, found {type(found).__name__}")
    env = dict(found.env)
    words = (*found.argv, *env, *env.values(), *(found.kill or ()), found.cwd or "")
    if not found.argv or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ValueError("expected argv, env, cwd and kill to be text without NUL, and argv not to be empty")
    return replace(found, argv=tuple(found.argv), env=env, kill=tuple(found.kill) if found.kill else None)


class GuardedEmbedder:
    """A plugin's embedder. Vectors of the wrong shape, or that are no numbers, are a failure as any."""

    def __init__(self, theirs: Any, part: Part, seconds: Callable[[], float]) -> None:
        self._theirs = theirs
        self._part = part
        self._seconds = seconds
        self.id: EmbedderId = part.call_here(lambda: theirs.id, seconds=seconds(), check=_embedder_id)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        given = list(texts)
        return self._part.call_here(
            self._theirs.embed_documents,
            given,
            seconds=self._seconds(),
            check=lambda found: _vectors(found, (len(given), self.id.dims)),
        )

    def embed_query(self, text: str) -> Vectors:
        return self._part.call_here(
            self._theirs.embed_query,
            text,
            seconds=self._seconds(),
            check=lambda found: _vectors(found, (self.id.dims,)),
        )


def _embedder_id(found: Any) -> EmbedderId:
    if not isinstance(found, EmbedderId) or not isinstance(found.dims, int) or not 0 < found.dims <= 65536:
        raise TypeError(f"expected `id` to be an EmbedderId, found {found!r:.80}")
    return found


def _vectors(found: Any, shape: tuple[int, ...]) -> Vectors:
    made = np.asarray(found, dtype=np.float32)
    if made.shape != shape or not bool(np.isfinite(made).all()):
        raise ValueError(f"expected numbers of shape {shape}, found {made.shape}")
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryContext:
    """What a memory backend is made from: for each agent its workspace, the sets of files that its memory
    consists of, its rules and a folder; and a folder, the log and the clock for all of them."""

    workspace: Callable[[str], Path]
    collections: Callable[[str], Sequence[Collection]]
    settings: Callable[[str], MemoryConfig]
    agent_dir: Callable[[str], Path]
    data_dir: Path
    store: Store
    clock: Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """One thing that was found: a path as `memory_get` takes it, the words, how well they fit (0 to 1), the
    line of the file that the words begin with, where that is known, and whether they come from notes or from
    conversations."""

    path: str
    text: str
    score: float
    start: int | None = None
    source: MemorySource = "memory"


class MemoryBackend(Protocol):
    """What answers searches where its plugin holds the memory slot. It is asked for the owner alone: what it
    holds cannot be told apart by reader. `update` is called when an agent's files may have changed, and gives
    how many there are.

    It may have more: `embed(agent)`, called less often, to make vectors; `status(agent)`, a mapping for
    people; `collections(agent)`, further sets of files that `memory_get` reads."""

    def search(self, query: str, *, agent: str, limit: int) -> Sequence[MemoryHit]: ...

    def update(self, agent: str) -> int: ...


class GuardedMemory:
    """A plugin's backend as `FallbackMemory` asks it: its results held to the same rules and clamps as those
    of the built-in index, which stands in when it fails. What it took in is noted in a file, for the other
    processes of a gateway too."""

    def __init__(self, theirs: Any, part: Part, context: MemoryContext, seconds: Callable[[], float]) -> None:
        self.name = part.plugin_id
        self._theirs = theirs
        self._part = part
        self._config = context.settings
        self._file = context.data_dir / "updated.json"
        self._seconds = seconds
        self._has: frozenset[str] = part.call_here(_optional, theirs, seconds=seconds())

    def ready(self, agent: str) -> bool:
        """Whether it has taken in the agent's files."""
        return agent in self._notes()

    def search(self, ask: Ask) -> Found:
        check_query(ask.query)
        config = self._config(ask.agent)
        limits, noted = config.search.limits, self._notes().get(ask.agent, {})
        wanted = min(ask.max_results or limits.max_results, MOST_HITS)
        most = wanted if ask.sources is None else MOST_HITS
        began = time.monotonic()
        found = self._called(
            lambda: self._theirs.search(ask.query, agent=ask.agent, limit=most),
            limits.timeout_ms / 1000,
            _hits,
        )
        least = (limits.min_score or 0.0) if ask.min_score is None else ask.min_score
        good = [one for one in found if one.score >= least and _is_of(one, ask.sources)][:wanted]
        mode: Literal["hybrid", "text"] = "hybrid" if noted.get("embedded") else "text"
        told = Diagnostics(self.name, mode, int(noted.get("files", 0)), 0, 0)
        empty = Found((), self.name, "", None, shows_citations(config.citations, ask.chat), told)
        hits = _fitting(good, query_terms(ask.query).terms, Room(limits, empty))
        note = "" if hits else f"{self.name} found {'nothing that may be shown' if found else 'nothing'}"
        took = round((time.monotonic() - began) * 1000)
        told = replace(told, note=note, left_out=len(good) - len(hits), took_ms=took)
        return replace(empty, hits=hits, diagnostics=told)

    def update(self, agent: str) -> int:
        wait = self._config(agent).search.update.update_timeout_ms / 1000
        count: int = self._called(lambda: self._theirs.update(agent), wait + _GRACE_OF_STEPS, _count)
        self._note(agent, files=count)
        return count

    def embed(self, agent: str) -> None:
        if "embed" in self._has and self.ready(agent):
            wait = self._config(agent).search.update.embed_timeout_ms / 1000
            self._called(lambda: self._theirs.embed(agent), wait + _GRACE_OF_STEPS, lambda found: None)
            self._note(agent, embedded=True)

    def status(self, agent: str) -> dict[str, Any]:
        files = self._notes().get(agent, {}).get("files", 0)
        told = {"plugin": self.name, "files": files, "lastError": self._part.last_error}
        if "status" not in self._has:
            return told
        more: dict[str, Any] = self._called(lambda: self._theirs.status(agent), self._seconds(), _mapping)
        return told | more

    def collections(self, agent: str) -> list[Collection]:
        """Further files of an agent that may be read; none where they cannot be told."""
        if "collections" not in self._has:
            return []
        try:
            found: list[Collection] = self._called(
                lambda: self._theirs.collections(agent), self._seconds(), _collections
            )
        except BackendFailed:
            return []
        return found

    def _notes(self) -> dict[str, dict[str, Any]]:
        try:
            found: dict[str, dict[str, Any]] = json.loads(self._file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def _note(self, agent: str, **more: Any) -> None:
        notes = self._notes()
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file.write_text(json.dumps({**notes, agent: notes.get(agent, {}) | more}), "utf-8")

    def _called(self, work: Callable[[], Any], seconds: float, check: Callable[[Any], Any]) -> Any:
        """A little more time than they have, so that who keeps to it can say itself that it was over."""
        try:
            return self._part.call_here(work, seconds=seconds + _GRACE_SECONDS, check=check)
        except BackendFailed:
            raise
        except HoldfastError as error:
            raise BackendFailed(error.message) from error


def _optional(theirs: Any) -> frozenset[str]:
    return frozenset(
        name for name in ("embed", "status", "collections") if callable(getattr(theirs, name, None))
    )


def _hits(found: Any) -> list[MemoryHit]:
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise TypeError(f"expected a list of MemoryHit, found {type(found).__name__}")
    return [_hit(one) for one in found[:MOST_HITS]]


def _hit(one: Any) -> MemoryHit:
    if not isinstance(one, MemoryHit) or not isinstance(one.path, str) or not isinstance(one.text, str):
        raise TypeError(f"expected a MemoryHit, found {type(one).__name__}")
    score = float(one.score)
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score of {score} is not from 0 to 1")
    start: Any = one.start
    if (start is not None and (not isinstance(start, int) or start < 1)) or one.source not in _SOURCES:
        raise ValueError("expected start to be a line of the file, and source memory or sessions")
    return replace(one, path=clean_text(one.path[:1000]), text=clean_text(one.text[:MOST_TEXT]), score=score)


def _is_of(one: MemoryHit, sources: frozenset[str] | None) -> bool:
    return sources is None or _SOURCES[one.source] in sources


def _fitting(good: Sequence[MemoryHit], terms: Sequence[str], room: Room) -> list[Hit]:
    made = (
        room.fit(
            Hit(one.path, one.path, "", None, None, one.score, one.source),
            partial(_cut, one, terms),
            lines=one.start is not None,
        )
        for one in good
    )
    return [hit for hit in made if hit is not None]


def _cut(one: MemoryHit, terms: Sequence[str], most: int) -> Snippet:
    if one.start is None:
        return Snippet(clip(one.text.strip(), most), 0, 0)
    return snippet(one.text, terms, first_line=one.start, most=most)


def _count(found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise TypeError(f"expected a number of files, found {found!r:.40}")
    return found


def _mapping(found: Any) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        raise TypeError(f"expected a mapping, found {type(found).__name__}")
    made: dict[str, Any] = json.loads(json.dumps(dict(found), allow_nan=False))
    return made


def _collections(found: Any) -> list[Collection]:
    if not isinstance(found, Sequence) or not all(isinstance(one, Collection) for one in found):
        raise TypeError("expected a list of Collection")
    return list(found)
