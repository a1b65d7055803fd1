"""The `qmd` program as a backend of memory: one process a question, one index an agent.

It serves the agents whose `memory.backend` is `qmd`; the built-in index stands in wherever it fails.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from holdfast.clock import iso
from holdfast.errors import InvalidInput, NotFound
from holdfast.memory.collections import Collection, locate
from holdfast.memory.reading import read_within
from holdfast.plugins import PluginApi
from holdfast.plugins.backends import MemoryContext, MemoryHit, MemorySource
from holdfast.plugins_bundled.qmd.program import (
    SESSIONS,
    QmdFailed,
    QmdHit,
    QmdProgram,
    SessionExports,
    collections_from,
    hits_from,
    query_document,
)

_LIST_SECONDS: Final = 10.0


def register(api: PluginApi) -> None:
    api.register_memory(QmdMemory)


class QmdMemory:
    """All agents' `qmd`, each with its own folder, so that none can find what is another's."""

    def __init__(self, context: MemoryContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}

    def search(self, query: str, *, agent: str, limit: int) -> Sequence[MemoryHit]:
        """What `qmd` has on a question; `QmdFailed` if it has no answer in time."""
        notes = self._notes(agent)
        asked = query_document(query, vectors=bool(notes.get("embeddedAt")))
        names = [c.name for c in self._all_collections(agent) if c.name in notes.get("collections", {})]
        if not names:
            raise QmdFailed("qmd has no collection of this agent yet; run `holdfast memory index`")
        return self._hits(agent, self._query(agent, asked, limit, names)) if asked else []

    def update(self, agent: str) -> int:
        """Export conversations, register what is configured, and let `qmd` read what changed; the files."""
        with self._alone(agent):
            program, notes = self._program(agent), self._notes(agent)
            wait = self._context.settings(agent).search.update.update_timeout_ms / 1000
            exported = self._export(agent)
            wanted = self._all_collections(agent)
            notes["collections"] = self._register(program, wanted, notes, wait)
            program.run("update", timeout=wait)
            files = sum(1 for collection in wanted for _ in collection.files())
            now = self._context.clock.now()
            self._put_notes(agent, {**notes, "files": files, "sessions": exported, "updatedAt": now})
            return files

    def embed(self, agent: str) -> None:
        """Let `qmd` make its vectors; from then on questions are also compared by meaning."""
        with self._alone(agent):
            wait = self._context.settings(agent).search.update.embed_timeout_ms / 1000
            self._program(agent).run("embed", timeout=wait)
            self._put_notes(agent, {**self._notes(agent), "embeddedAt": self._context.clock.now()})

    def status(self, agent: str) -> dict[str, Any]:
        notes = self._notes(agent)
        return {
            "command": self._context.settings(agent).qmd.command,
            "collections": sorted(notes.get("collections", {})),
            "updatedAt": iso(notes["updatedAt"]) if notes.get("updatedAt") else None,
            "embeddedAt": notes.get("embeddedAt"),
        }

    def collections(self, agent: str) -> list[Collection]:
        """The conversations as files, which can be read like any other."""
        if not self._context.settings(agent).search.sessions.enabled:
            return []
        return [Collection(SESSIONS, self._folder(agent) / SESSIONS, "*.md", curated=False)]

    def _all_collections(self, agent: str) -> list[Collection]:
        """What the agent has; its conversations are left out where a folder was given their name."""
        own = list(self._context.collections(agent))
        taken = {collection.name for collection in own}
        return [*own, *(c for c in self.collections(agent) if c.name not in taken)]

    def _query(self, agent: str, asked: str, limit: int, names: list[str]) -> list[QmdHit]:
        search = self._context.settings(agent).search
        chosen = [word for name in names for word in ("-c", name)]
        judged = () if search.rerank.enabled else ("--no-rerank",)
        args = ("query", asked, "--json", *judged, "-n", str(limit), *chosen)
        return hits_from(self._program(agent).run(*args, timeout=search.limits.timeout_ms / 1000))

    def _hits(self, agent: str, rows: Sequence[QmdHit]) -> list[MemoryHit]:
        collections = {c.name: c for c in self._all_collections(agent)}
        hits: list[MemoryHit] = []
        for row in rows:
            collection = collections.get(row.collection)
            if collection is not None and _still_there(collection, row.path):
                text, start = row.words()
                source: MemorySource = "memory" if collection.curated else "sessions"
                path = collection.address(row.path)
                hits.append(MemoryHit(path=path, text=text, score=row.score, start=start, source=source))
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

    def _export(self, agent: str) -> int:
        store, clock = self._context.store, self._context.clock
        rules = self._context.settings(agent).search.sessions
        return SessionExports(store, agent, self._folder(agent) / SESSIONS, clock).refresh(rules)

    def _program(self, agent: str) -> QmdProgram:
        return QmdProgram(self._context.settings(agent).qmd.command, self._folder(agent))

    def _folder(self, agent: str) -> Path:
        return self._context.agent_dir(agent) / "qmd"

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


def _still_there(collection: Collection, path: str) -> bool:
    """Whether the file may be read by our own rules: `qmd` may have followed a link, or be out of date."""
    try:
        _, relative = locate([collection], collection.address(path))
        read_within(collection.root, relative)
    except (InvalidInput, NotFound):
        return False
    return True
