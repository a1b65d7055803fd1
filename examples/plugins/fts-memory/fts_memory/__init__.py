"""A memory backend: SQLite's full text search over MEMORY.md and memory/*.md, a paragraph at a time.

Where it fails or finds its index gone, Holdfast's own index answers, and says why.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing

from holdfast.plugins import PluginApi
from holdfast.plugins.backends import MemoryContext, MemoryHit

WORD = re.compile(r"\w+")


class FullText:
    def __init__(self, context: MemoryContext) -> None:
        self._workspace = context.workspace
        self._folder = context.data_dir
        self._folder.mkdir(parents=True, exist_ok=True)

    def update(self, agent: str) -> int:
        """Index the agent's notes anew; gives how many files there are."""
        folder = self._workspace(agent)
        files = [
            path for path in (folder / "MEMORY.md", *sorted(folder.glob("memory/*.md"))) if path.is_file()
        ]
        with closing(self._open(agent)) as index, index:
            index.execute("DELETE FROM notes")
            for path in files:
                name = path.relative_to(folder).as_posix()
                index.executemany(
                    "INSERT INTO notes VALUES (?, ?, ?)",
                    [(name, first, text) for first, text in paragraphs(path.read_text("utf-8"))],
                )
        return len(files)

    def search(self, query: str, *, agent: str, limit: int) -> Sequence[MemoryHit]:
        words = WORD.findall(query.lower())
        if not words:
            return []
        asked = " OR ".join(f'"{word}"' for word in words)
        found = "SELECT path, first, text, bm25(notes) FROM notes WHERE notes MATCH ? ORDER BY 4 LIMIT ?"
        with closing(self._open(agent)) as index:
            rows = index.execute(found, (asked, limit)).fetchall()
        return [
            MemoryHit(path=path, text=text, score=share(words, text), start=first)
            for path, first, text, _ in rows
        ]

    def _open(self, agent: str) -> sqlite3.Connection:
        index = sqlite3.connect(self._folder / f"{agent}.db")
        columns = "path UNINDEXED, first UNINDEXED, text"
        index.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS notes USING fts5({columns}, tokenize='porter')")
        return index


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Each with the number of its first line, counted from one."""
    held: list[str] = []
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.strip():
            held.append(line)
        elif held:
            yield number - len(held), "\n".join(held)
            held = []


def share(words: Sequence[str], text: str) -> float:
    """How many of the question's words stand in a text."""
    there = set(WORD.findall(text.lower()))
    return sum(word in there for word in words) / len(words)


def register(api: PluginApi) -> None:
    api.register_memory(FullText)
