"""Searching by `qmd`, and keeping its index: the same rules, clamps and addresses as the built-in one."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdfast.clock import Clock, iso
from holdfast.config.memory import MemoryConfig
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import Store
from holdfast.memory.collections import Collection, locate
from holdfast.memory.qmd.answers import QmdHit, collections_from, hits_from
from holdfast.memory.qmd.program import QmdFailed, QmdProgram
from holdfast.memory.qmd.questions import query_document
from holdfast.memory.qmd.transcripts import SESSIONS, SessionExports
from holdfast.memory.reading import read_within
from holdfast.memory.results import Diagnostics, Found, Hit, Room
from holdfast.memory.scope import shows_citations
from holdfast.memory.service import Ask, check_query
from holdfast.memory.snippets import Snippet
from holdfast.memory.text import query_terms
from holdfast.text import clip

_LIST_SECONDS: Final = 10.0


class QmdMemory:
    """All agents' `qmd`, each with its own folder, so that none can find what is another's."""

    def __init__(
        self,
        folder: Callable[[str], Path],
        *,
        config: Callable[[str], MemoryConfig],
        collections: Callable[[str], Sequence[Collection]],
        store: Store | None,
        clock: Clock,
    ) -> None:
        self._folder = folder
        self._config = config
        self._collections = collections
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    name: Final = "qmd"

    def ready(self, agent: str) -> bool:
        """Whether there is an index to search."""
        return bool(self._notes(agent).get("updatedAt"))

    def search(self, ask: Ask) -> Found:
        """What `qmd` has on a question; `QmdFailed` if it has no answer in time."""
        check_query(ask.query)
        config = self._config(ask.agent)
        limits, notes = config.search.limits, self._notes(ask.agent)
        began = time.monotonic()
        wanted = min(ask.max_results or limits.max_results, 100)
        asked = query_document(ask.query, vectors=bool(notes.get("embeddedAt")))
        names = [c.name for c in self._searched(ask) if c.name in notes.get("collections", {})]
        rows = (
            self._query(ask.agent, asked, wanted, names, limits.timeout_ms / 1000) if asked and names else []
        )
        least = (limits.min_score or 0.0) if ask.min_score is None else ask.min_score
        good = [row for row in rows if row.score >= least]
        cite = shows_citations(config.citations, ask.chat)
        told = Diagnostics(
            backend="qmd",
            mode="hybrid" if notes.get("embeddedAt") else "text",
            searched=int(notes.get("files", 0)),
            behind=0,
            took_ms=0,
        )
        found = Found((), "qmd", config.qmd.command, None, cite, told)
        hits = self._hits(ask, good[:wanted], Room(limits, found))
        note = "" if hits else _why_empty(rows, names)
        took = round((time.monotonic() - began) * 1000)
        told = replace(told, note=note, left_out=len(good) - len(hits), took_ms=took)
        return replace(found, hits=hits, diagnostics=told)

    def update(self, agent: str) -> int:
        """Export conversations, register what is configured, and let `qmd` read what changed; the files."""
        with self._alone(agent):
            config = self._config(agent)
            exported = self._export(agent, config)
            program, wait = self._program(agent), config.search.update.update_timeout_ms / 1000
            notes = self._notes(agent)
            notes["collections"] = self._register(program, self.all_collections(agent), notes, wait)
            program.run("update", timeout=wait)
            files = sum(1 for c in self.all_collections(agent) for _ in c.files())
            self._put_notes(
                agent, {**notes, "files": files, "sessions": exported, "updatedAt": self._clock.now()}
            )
            return files

    def embed(self, agent: str) -> None:
        """Let `qmd` make its vectors; from then on questions are also compared by meaning."""
        with self._alone(agent):
            if not self.ready(agent):
                return
            wait = self._config(agent).search.update.embed_timeout_ms / 1000
            self._program(agent).run("embed", timeout=wait)
            self._put_notes(agent, {**self._notes(agent), "embeddedAt": self._clock.now()})

    def status(self, agent: str) -> dict[str, Any]:
        notes = self._notes(agent)
        return {
            "command": self._config(agent).qmd.command,
            "files": notes.get("files", 0),
            "collections": sorted(notes.get("collections", {})),
            "updatedAt": iso(notes["updatedAt"]) if notes.get("updatedAt") else None,
            "embeddedAt": notes.get("embeddedAt"),
        }

    def exported(self, agent: str) -> list[Collection]:
        """The conversations as files, for reading; none unless this backend keeps them."""
        config = self._config(agent)
        if config.backend != "qmd" or not config.search.sessions.enabled or self._store is None:
            return []
        return [Collection(SESSIONS, self._folder(agent) / SESSIONS, "*.md", curated=False)]

    def all_collections(self, agent: str) -> list[Collection]:
        """What the agent has; its conversations are left out where a folder was given their name."""
        own = list(self._collections(agent))
        taken = {collection.name for collection in own}
        return [*own, *(c for c in self.exported(agent) if c.name not in taken)]

    def _searched(self, ask: Ask) -> list[Collection]:
        """The collections in which the kinds of source lie that are asked for."""
        kinds = ask.sources if ask.sources is not None else frozenset(("file", "transcript"))
        found = self.all_collections(ask.agent)
        spoken = {c.name for c in self.exported(ask.agent)}
        return [c for c in found if ("transcript" if c.name in spoken else "file") in kinds]

    def _query(self, agent: str, asked: str, wanted: int, names: list[str], wait: float) -> list[QmdHit]:
        chosen = [word for name in names for word in ("-c", name)]
        judged = () if self._config(agent).search.rerank.enabled else ("--no-rerank",)
        args = ("query", asked, "--json", *judged, "-n", str(wanted), *chosen)
        return hits_from(self._program(agent).run(*args, timeout=wait))

    def _hits(self, ask: Ask, rows: Sequence[QmdHit], room: Room) -> list[Hit]:
        collections = {c.name: c for c in self._searched(ask)}
        terms = query_terms(ask.query).terms
        hits: list[Hit] = []
        for row in rows:
            collection = collections.get(row.collection)
            if collection is None or not _still_there(collection, row.path):
                continue
            placed = row.piece(terms, 1) is not None
            made = room.fit(_hit(row, collection), partial(_cut, row, terms), lines=placed)
            hits += [] if made is None else [made]
        return hits

    def _register(
        self, program: QmdProgram, wanted: Sequence[Collection], notes: dict[str, Any], wait: float
    ) -> dict[str, list[str]]:
        """Make the program's list of collections what is configured; one that moved is added anew."""
        present = {c.name: [str(c.root), c.mask] for c in wanted if c.root.is_dir()}
        before = notes.get("collections", {})
        listed = collections_from(program.run("collection", "list", timeout=_LIST_SECONDS))
        for name in sorted(listed):
            if name not in present or before.get(name) != present[name]:
                program.run("collection", "remove", name, timeout=_LIST_SECONDS)
                listed -= {name}
        for name, (root, mask) in present.items():
            if name not in listed:
                program.run("collection", "add", root, "--name", name, "--mask", mask, timeout=wait)
        return present

    def _export(self, agent: str, config: MemoryConfig) -> int:
        if self._store is None:
            return 0
        place = self._folder(agent) / SESSIONS
        return SessionExports(self._store, agent, place, self._clock).refresh(config.search.sessions)

    def _program(self, agent: str) -> QmdProgram:
        return QmdProgram(self._config(agent).qmd.command, self._folder(agent))

    def _alone(self, agent: str) -> threading.Lock:
        """One update or embedding of an agent at a time."""
        with self._lock:
            return self._busy.setdefault(agent, threading.Lock())

    def _notes(self, agent: str) -> dict[str, Any]:
        """What is known of the agent's index; it may be deleted, and is made again by the next update."""
        try:
            found = json.loads((self._folder(agent) / "holdfast.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _put_notes(self, agent: str, notes: dict[str, Any]) -> None:
        path = self._folder(agent) / "holdfast.json"
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(notes))
        os.replace(draft, path)


def _cut(row: QmdHit, terms: Sequence[str], most: int) -> Snippet:
    """The lines to show; where `qmd` did not tell which they are, what it showed itself."""
    return row.piece(terms, most) or Snippet(clip(row.snippet.strip(), most), 0, 0)


def _hit(row: QmdHit, collection: Collection) -> Hit:
    """A result without its text, for which room has yet to be found."""
    return Hit(
        id=row.docid,
        path=collection.address(row.path),
        snippet="",
        start=None,
        end=None,
        score=row.score,
        source="memory" if collection.curated else "sessions",
        parts={"qmd": row.score},
    )


def _still_there(collection: Collection, path: str) -> bool:
    """Whether the file may be read by our own rules: `qmd` may have followed a link, or be out of date."""
    try:
        _, relative = locate([collection], collection.address(path))
        read_within(collection.root, relative)
    except (InvalidInput, NotFound):
        return False
    return True


def _why_empty(rows: Sequence[QmdHit], names: Sequence[str]) -> str:
    if not names:
        return "qmd has no collection of this agent yet; run `holdfast memory index`"
    return f"{len(rows)} results were left out" if rows else f"qmd found nothing in {', '.join(names)}"


__all__ = ["QmdFailed", "QmdMemory"]
