"""What plugins bring in place of built-in parts: models, embedders, memory and sandboxes, each behind its
guard."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

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
from holdfast.config.memory import MemoryConfig
from holdfast.memory.backend import BackendFailed
from holdfast.memory.embedders.base import EmbedderId, Vectors
from holdfast.memory.results import Diagnostics, Found, Hit
from holdfast.memory.scope import shows_citations
from holdfast.memory.service import Ask, check_query
from holdfast.plugins.running import Part, PluginFailed
from holdfast.text import clean_text

_EVENTS: Final = (TextDelta, ThinkingDelta, CallDelta, ModelReply)
_MOST_WAITING: Final = 10_000
MOST_HITS: Final = 100
MOST_TEXT: Final = 20_000


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
    """What a memory backend is made from: where an agent's files lie, and a folder for its own index."""

    workspace: Callable[[str], Path]
    data_dir: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryHit:
    """One thing that was found: a path as `memory_get` takes it, the words, how well they fit (0 to 1)."""

    path: str
    text: str
    score: float
    start: int | None = None
    end: int | None = None


class MemoryBackend(Protocol):
    """What answers searches where its plugin holds the memory slot. It is asked for the owner alone: what it
    holds cannot be told apart by reader. `update` is called when an agent's files may have changed."""

    def search(self, query: str, *, agent: str, limit: int) -> Sequence[MemoryHit]: ...

    def update(self, agent: str) -> int: ...


class GuardedMemory:
    """A plugin's backend as `FallbackMemory` asks it; the built-in index stands in when it fails."""

    def __init__(
        self, theirs: MemoryBackend, part: Part, config: Callable[[str], MemoryConfig], notes: Path
    ) -> None:
        """`notes` keeps which agents' files it took in, for the other processes of a gateway too."""
        self.name = part.plugin_id
        self._theirs = theirs
        self._part = part
        self._config = config
        self._notes = notes

    def ready(self, agent: str) -> bool:
        """Whether it has taken in the agent's files."""
        return agent in self._updated()

    def search(self, ask: Ask) -> Found:
        check_query(ask.query)
        config = self._config(ask.agent)
        limits = config.search.limits
        wanted = min(ask.max_results or limits.max_results, MOST_HITS)
        began = time.monotonic()

        def work() -> Sequence[MemoryHit]:
            return self._theirs.search(ask.query, agent=ask.agent, limit=wanted)

        found = self._called(work, limits.timeout_ms / 1000, _hits)
        least = (limits.min_score or 0.0) if ask.min_score is None else ask.min_score
        good = [hit for hit in found if hit.score >= least][:wanted]
        took = round((time.monotonic() - began) * 1000)
        told = Diagnostics(self.name, "text", self._updated().get(ask.agent, 0), 0, took)
        return Found(good, self.name, "", None, shows_citations(config.citations, ask.chat), told)

    def update(self, agent: str) -> int:
        wait = self._config(agent).search.update.update_timeout_ms / 1000
        count: int = self._called(lambda: self._theirs.update(agent), wait, _count)
        self._notes.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._notes.write_text(json.dumps({**self._updated(), agent: count}), "utf-8")
        return count

    def _updated(self) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads(self._notes.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found

    def embed(self, agent: str) -> None:
        """It makes its vectors, if any, with `update`."""

    def status(self, agent: str) -> dict[str, Any]:
        return {
            "plugin": self.name,
            "files": self._updated().get(agent, 0),
            "lastError": self._part.last_error,
        }

    def _called(self, work: Callable[[], Any], seconds: float, check: Callable[[Any], Any]) -> Any:
        try:
            return self._part.call_here(work, seconds=seconds, check=check)
        except PluginFailed as error:
            raise BackendFailed(error.message) from error


def _hits(found: Any) -> list[Hit]:
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise TypeError(f"expected a list of MemoryHit, found {type(found).__name__}")
    return [_hit(one) for one in found[:MOST_HITS]]


def _hit(one: Any) -> Hit:
    if not isinstance(one, MemoryHit) or not isinstance(one.path, str) or not isinstance(one.text, str):
        raise TypeError(f"expected a MemoryHit, found {type(one).__name__}")
    score = float(one.score)
    if not 0.0 <= score <= 1.0:
        raise ValueError(f"a score of {score} is not from 0 to 1")
    text = clean_text(one.text[:MOST_TEXT])
    return Hit(one.path, one.path, text, one.start, one.end, score, "memory")


def _count(found: Any) -> int:
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        raise TypeError(f"expected a number of files, found {found!r:.40}")
    return found
