"""The memory of the agents: search, read, write and keep up to date, each within what its chat may see."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from holdfast.clock import DAY_MS, Clock, SystemClock, iso
from holdfast.config.memory import Embedding, MemoryConfig
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, NotFound, Unavailable
from holdfast.log import OWNER, Entry, Reader, Store, entries
from holdfast.memory.catalogue import Catalogue
from holdfast.memory.collections import Collection, configured_collections, locate
from holdfast.memory.confidence import answer
from holdfast.memory.damage import Health
from holdfast.memory.deadline import Stop, unless_stopped
from holdfast.memory.dictionary import Dictionary
from holdfast.memory.documents import Filter, Source
from holdfast.memory.embedders.base import Embedder
from holdfast.memory.embedders.batch import BatchIndexing
from holdfast.memory.embedding import EmbedderChain
from holdfast.memory.embedding_cache import EmbeddingCache
from holdfast.memory.engine.protocol import Index, View
from holdfast.memory.following import SEQ, WRITES, LogFollower, speaker_of
from holdfast.memory.indexing import FileIndexer, Keep, Progress, Update, forget, refine
from holdfast.memory.question import Query, understand
from holdfast.memory.reading import read_within
from holdfast.memory.results import SESSIONS, Diagnostics, Found, Room, hits_of, refused, why_empty
from holdfast.memory.scope import PRIVATE, Chat, may_search, shows_citations
from holdfast.memory.scoring import Scoring
from holdfast.memory.writing import append_note, daily_path
from holdfast.text import clip

MAX_QUERY: Final = 4_000
_REMEMBERED: Final[frozenset[Source]] = frozenset(("file", "note", "transcript", "log"))
_INLINE: Final = 2_000
PATIENCE: Final = 0.5
_AROUND: Final = 10
_EMBED_SHARE: Final = 0.75
_DAMAGED: Final = "index_damaged"
_PLACES_OF_A_FILE: Final = 2
_MENDED_AT_ONCE: Final = 5_000

T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ask:
    """One question to memory: of which agent's, and who will read the answer."""

    query: str
    agent: str
    reader: Reader
    chat: Chat = PRIVATE
    max_results: int | None = None
    min_score: float | None = None
    sources: frozenset[str] | None = None


def _nothing_more(_: str) -> Sequence[Collection]:
    return ()


class Workspaces(Protocol):
    """Where an agent's files are."""

    def __call__(self, agent: str) -> Path: ...


class Memory:
    """One index for all agents of a home; every look is held to the agent, the reader and the chat that asks.

    Files are the owner's: somebody who may not read all audiences reads and writes none of them.
    """

    def __init__(
        self,
        index: Index,
        catalogue: Catalogue,
        chain: EmbedderChain,
        *,
        workspace: Workspaces,
        config: Callable[[str], MemoryConfig],
        follower: LogFollower | None = None,
        store: Store | None = None,
        clock: Clock | None = None,
        zone: tzinfo = UTC,
        readable: Callable[[str], Sequence[Collection]] = _nothing_more,
        stop: Stop = lambda: False,
        embeddings: EmbeddingCache | None = None,
        reads_only: bool = False,
        dictionary: Dictionary | None = None,
        keep: Keep | None = None,
    ) -> None:
        """`stop` is asked between the pieces of long work, which then ends with what is done.

        With `reads_only` another process writes index and catalogue, and takes in what is written here.
        """
        self._reads_only = reads_only
        self._keep = keep
        self.index = index
        self.catalogue = catalogue
        self.dictionary = dictionary or Dictionary(Path("/nowhere"), ())
        self._embeddings: EmbeddingCache = embeddings or catalogue
        self.chain = chain
        self._workspace = workspace
        self._config = config
        self._follower = follower
        self._store = store
        self._clock = clock or SystemClock()
        self._zone = zone
        self._readable = readable
        self._stop = stop
        self._complete: tuple[str, int] | None = None
        self._hold_against_sources()

    def whole(self, work: Callable[[], T]) -> T:
        """Work on the index; where damage shows itself, it is set aside and the work done once more."""
        try:
            return work()
        except HoldfastError as error:
            if error.code != _DAMAGED or not self.index.heal(error):
                raise
        except Exception as error:
            # Garbage may show itself as any error; what no damage explains is raised as it came.
            if not self.index.heal(error):
                raise
        return work()

    def mend(self, seconds: float, *, thorough: bool = False) -> bool:
        """Check and repair the index for about so long; true while there is more to do."""
        more = self.whole(lambda: self.index.mend(seconds, thorough=thorough))
        self._hold_against_sources()
        return more or self._give_vectors_again()

    def _hold_against_sources(self) -> None:
        """An index that is another than before, or has lost something, is filled again from files and log."""
        if self._reads_only:
            return
        catalogue, index = self.catalogue, self.index
        identity = index.identity
        known = catalogue.fact("index") == identity and int(catalogue.fact(WRITES) or 0) <= index.writes
        if known and not index.must_compare:
            return
        catalogue.forget_files()
        catalogue.drop_fact(SEQ)
        catalogue.put_fact(WRITES, str(index.writes))
        catalogue.put_fact("index", identity)
        if index.must_compare:
            index.compared()

    def _give_vectors_again(self) -> bool:
        """Documents whose static vectors were lost to damage get them again; looked for after each find."""
        state = (self.index.identity, len(self.index.health.damaged))
        if not self.index.computes_here or state == self._complete:
            return False
        made = refine(
            self.index,
            self.chain.base,
            self.catalogue,
            self._clock,
            limit=_MENDED_AT_ONCE,
            cache_entries=Embedding().cache_entries,
            stop=self._stop,
        )
        if made < _MENDED_AT_ONCE:
            self._complete = state
        return made >= _MENDED_AT_ONCE

    def search(self, ask: Ask) -> Found:
        """What memory has on a question; an answer without results says why it may be empty."""
        return self.whole(lambda: self._search(ask))

    def _search(self, ask: Ask) -> Found:
        config = self._config(ask.agent)
        check_query(ask.query)
        verdict = may_search(ask.chat, config.search.scope)
        if not verdict.allowed:
            return refused(f"this chat may not search memory ({verdict.why})")
        began = time.monotonic()
        behind = self._follow_a_little()
        view = self.index.view(self._filter(ask, config))
        limits = config.search.limits
        query, provider, model, fallback = self._prepare(ask.query, view, limits.timeout_ms)
        wanted = min(ask.max_results or limits.max_results, 100)
        least = limits.floor if ask.min_score is None else ask.min_score
        cite = shows_citations(config.citations, ask.chat)
        made = answer(query, view, self.chain.base, self._scoring(config), limit=wanted, least=least)
        told = Diagnostics(
            backend="builtin",
            mode="hybrid" if query.vector is not None else "text",
            searched=view.count,
            behind=behind,
            took_ms=0,
            healing=self.health.told,
            confidence=made.confidence if view.count else None,
        )
        found = Found((), provider, model, fallback, cite, told)
        hits = hits_of(made.results, view, query.terms, Room(limits, found, config.backend == "qmd"))
        note = "" if hits else why_empty(view.count, behind, made, least, told.healing)
        left_out = len(made.results) - len(hits) + made.below
        took = round((time.monotonic() - began) * 1000)
        return replace(
            found, hits=hits, diagnostics=replace(told, note=note, left_out=left_out, took_ms=took)
        )

    def find(self, query: str, *, agent: str = "main", limit: int | None = None) -> Found:
        """`search` for a program of the owner's: one question, asked in private."""
        return self.search(Ask(query, agent, OWNER, max_results=limit))

    def read(
        self,
        agent: str,
        path: str,
        reader: Reader,
        *,
        start: int = 1,
        lines: int | None = None,
        chat: Chat = PRIVATE,
    ) -> dict[str, Any]:
        """Lines of a memory file, or the conversation around an entry that a search found."""
        config = self._config(agent)
        verdict = may_search(chat, config.search.scope)
        if not verdict.allowed:
            raise InvalidInput(f"this chat may not read memory ({verdict.why})", code="memory_scope")
        if start < 1 or (lines is not None and lines < 1):
            raise InvalidInput("lines are counted from 1", hint="Use from >= 1 and lines >= 1.")
        text = self._text_of(agent, path, reader)
        rows = text.splitlines()
        most = config.get.max_lines if lines is None else lines
        part = rows[start - 1 : start - 1 + most]
        body = clip("\n".join(part), config.get.max_chars)
        shown = body.count("\n") + 1 if part else 0
        more = start - 1 + shown < len(rows)
        return {
            "path": path,
            "text": body,
            "from": start,
            "lines": shown,
            "totalLines": len(rows),
            "more": more,
        }

    def write(self, agent: str, text: str, reader: Reader, *, path: str | None = None) -> dict[str, Any]:
        """Append a note to today's log, or to the memory file that is named, and index it at once; where
        another process has the index, that one does so."""
        _require_files(agent, reader)
        target = path or daily_path(self._clock.now(), self._zone)
        line = append_note(self._workspace(agent), target, text)
        if not self._reads_only:
            self.update(agent)
        return {"path": target, "line": line}

    def update(self, agent: str, *, progress: Progress | None = None, force: bool = False) -> Update:
        """Bring the agent's files into the index."""
        return self.whole(lambda: self._update(agent, progress, force))

    def _update(self, agent: str, progress: Progress | None, force: bool) -> Update:
        self._hold_against_sources()
        search = self._config(agent).search
        indexer = FileIndexer(
            self.index,
            self.catalogue,
            self.chain.base,
            self._clock,
            tokens=search.chunking.tokens,
            overlap=search.chunking.overlap,
            cache_entries=search.embedding.cache_entries,
            stop=self._stop,
            keep=self._keep,
        )
        self.dictionary.refresh()
        done = indexer.update(agent, self.collections(agent), progress=progress, force=force)
        if not done.stopped:
            self.catalogue.put_fact(f"updated:{agent}", str(self._clock.now()))
        return done

    def forget(self, agent: str) -> int:
        """Take the files of an agent that is no more out of the index; what was said stays with the log."""
        return self.whole(lambda: forget(self.index, self.catalogue, agent))

    def follow(self, limit: int = 50_000, *, patience: float | None = None) -> int:
        """Take in what is new in the log; returns how far behind the index still is.

        `patience` is for whom somebody waits: so many seconds at most for another who takes in a long log.
        """
        follower = self._follower
        if follower is None:
            return 0

        def follow() -> int:
            if follower.fills and self.index.computes_here:
                self._hold_against_sources()
            return follower.catch_up(limit, patience=patience).behind

        return self.whole(follow)

    def refine(
        self, agent: str | None = None, *, limit: int = 10_000, progress: Progress | None = None
    ) -> int:
        """Let the better embedder catch up, newest documents first; an awaited model is fetched before.

        `agent` is for backends that keep agents apart; this index has all of them in one. That an embedder
        failed is remembered by the chain, which then says who is next, and when.
        """
        unless_stopped(lambda: self.chain.fetch(progress), self._stop)
        if self.batches.pending() and self._collected():
            return 0
        made, done = 0, set[str]()
        while (one := self.chain.for_documents()) is not None and one.id.fingerprint not in done:
            made += self._refined(one, limit, progress, agent)
            done.add(one.id.fingerprint)
        beside = [one for one in self.chain.beside if one.id.fingerprint not in done]
        return made + sum(self._refined(one, limit, progress, agent) for one in beside)

    @property
    def batches(self) -> BatchIndexing:
        """The texts that are handed to OpenAI as a batch, if somebody asked for that."""
        return BatchIndexing(self.index, self.catalogue, self._embeddings, self.chain, self._clock)

    def _collected(self) -> bool:
        """Look at the batch under way; while it is, nothing is sent beside it."""
        try:
            return self.batches.collect().waiting
        except Unavailable as error:
            log.warning("the batch of embeddings: %s", error.message)
            return True

    def awaits_embedding(self) -> bool:
        """Whether a document has no vector yet of the embedder whose turn it is."""
        if self.batches.pending():
            return False
        wanted = [self.chain.for_documents(), *self.chain.beside]
        return any(one and self.index.without_vector(one.id.fingerprint, 1) for one in wanted)

    def _refined(self, embedder: Embedder, limit: int, progress: Progress | None, agent: str | None) -> int:
        try:
            made = self.whole(partial(self._refine, embedder, limit, progress, agent))
        except Unavailable as error:
            if error.code == _DAMAGED:
                raise
            self.chain.failed(embedder, error)
            return 0
        self.chain.worked(embedder)
        return made

    def _refine(self, embedder: Embedder, limit: int, progress: Progress | None, agent: str | None) -> int:
        kept = Embedding() if agent is None else self._config(agent).search.embedding
        return refine(
            self.index,
            embedder,
            self._embeddings,
            self._clock,
            limit=limit,
            cache_entries=kept.cache_entries,
            progress=progress,
            stop=self._stop,
        )

    def collections(self, agent: str) -> list[Collection]:
        return configured_collections(self._config(agent).search, self._workspace(agent))

    def status(self, agent: str) -> dict[str, Any]:
        return self.whole(lambda: self._status(agent))

    def _status(self, agent: str) -> dict[str, Any]:
        files = {c.name: self.catalogue.files(agent, c.name) for c in self.collections(agent)}
        mine = self.index.view(Filter(agents=frozenset((agent,)), sources=_REMEMBERED))
        updated = self.catalogue.fact(f"updated:{agent}")
        return {
            "backend": "builtin",
            "agent": agent,
            "documents": mine.count,
            "documentsInAll": self.index.count,
            "position": self.index.position,
            "updatedAt": None if updated is None else iso(int(updated)),
            "collections": [
                {"name": name, "files": len(known), "chunks": sum(f.chunk_count for f in known.values())}
                for name, known in files.items()
            ],
            "embedders": [
                {
                    "provider": e.id.provider,
                    "model": e.id.model,
                    "dims": e.id.dims,
                    "covered": share,
                    "trouble": None if (trouble := self.chain.trouble(e)) is None else trouble.why,
                }
                for e, share in self._coverage(mine, [*self.chain.preferred, self.chain.base])
            ],
            "health": self.health.json(),
        }

    @property
    def health(self) -> Health:
        """How the index stands, with the catalogue beside it, and whether the log is still compared."""
        found = self.index.health
        comparing = self._follower is not None and self._follower.comparing
        return replace(
            found, damaged=found.damaged + self.catalogue.aside.seen, healing=found.healing or comparing
        )

    def close(self) -> None:
        self.index.close()
        self.catalogue.close()
        self._embeddings.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _follow_a_little(self) -> int:
        """Read your own writes: what was just said is taken in before it is searched for."""
        return self.follow(_INLINE, patience=PATIENCE)

    def _filter(self, ask: Ask, config: MemoryConfig) -> Filter:
        sources = set(_REMEMBERED if ask.sources is None else ask.sources)
        if not config.search.sessions.enabled:
            sources -= {"transcript", "log"}
        keep = config.search.sessions.retention_days
        since = self._clock.now() - keep * DAY_MS if keep else 0
        return Filter(
            audiences=ask.reader.audiences,
            agents=frozenset((ask.agent,)),
            writers=ask.reader.agents,
            sources=frozenset(sources),  # type: ignore[arg-type]
            chatter_since=since if keep else None,
        )

    def _prepare(self, question: str, view: View, timeout_ms: int) -> tuple[Query, str, str, str | None]:
        """The question with its vector, for which at most three quarters of the time are spent."""
        query = understand(question, self._clock.now(), view.speakers(), self._zone)
        if not view.count:
            return query, "none", "none", None
        covered = {e.id.fingerprint: share for e, share in self._coverage(view, self.chain.preferred)}
        query = self.dictionary.understood(query, view)
        seconds = timeout_ms * _EMBED_SHARE / 1000
        made = self.chain.question(query.dense_text, covered, seconds, plain=query.plain_text)
        who = made.embedder.id
        return query.with_vector(made.vector, who.fingerprint), who.provider, who.model, made.fallback

    def _coverage(self, view: View, chosen: Sequence[Embedder]) -> list[tuple[Embedder, float]]:
        count = view.count
        return [(e, round(view.with_vector(e.id.fingerprint) / count, 4) if count else 0.0) for e in chosen]

    def _scoring(self, config: MemoryConfig) -> Scoring:
        dense, lexical = config.search.normalised
        return replace(Scoring(), dense=dense, lexical=lexical, per_file=_PLACES_OF_A_FILE)

    def _text_of(self, agent: str, path: str, reader: Reader) -> str:
        if path.startswith(SESSIONS) and self._store is not None:
            return self._conversation(agent, path.removeprefix(SESSIONS).removesuffix(".md"), reader)
        _require_files(agent, reader)
        collection, relative = locate([*self.collections(agent), *self._readable(agent)], path)
        return read_within(collection.root, relative).decode("utf-8", "replace")

    def _conversation(self, agent: str, entry_id: str, reader: Reader) -> str:
        """The entry, with what was said just before and after it; only if it is the agent's own, and of all
        that only what the reader may read."""
        known = self.whole(lambda: self.index.get([entry_id])).get(entry_id)
        unknown = NotFound(f"memory has no conversation {entry_id[:80]!r}", code="unknown_file")
        if known is None or known.agent != agent or self._store is None:
            raise unknown
        with self._store.read(reader) as tx:
            entry = next(iter(entries.get_many(tx, [entry_id])), None)
            if entry is None or entry.deleted_at is not None:
                raise unknown
            around = entries.around(tx, entry, before=_AROUND, after=_AROUND)
        return "\n\n".join(_said(one) for one in around)


def _reads_files(agent: str, reader: Reader) -> bool:
    """Whether the reader may read an agent's files, which hold the owner's words."""
    return reader.audiences is None and (reader.agents is None or agent in reader.agents)


def _require_files(agent: str, reader: Reader) -> None:
    if not _reads_files(agent, reader):
        raise Forbidden(
            "memory files are the owner's: what is heard here could be read by others",
            code="memory_owner_only",
            hint="The owner can do this in a chat of their own, or with `holdfast memory`.",
        )


def _said(entry: Entry) -> str:
    return f"**{speaker_of(entry)}** ({iso(entry.created_at)}):\n{entry.content}"


def check_query(query: str) -> None:
    """Refuse what is no question, or is too long for one."""
    if not query.strip():
        raise InvalidInput("there is no question", hint="Say what to look for.")
    if len(query) > MAX_QUERY:
        raise InvalidInput(f"a question has at most {MAX_QUERY} characters", hint="Ask for the gist of it.")
