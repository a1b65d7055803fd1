"""Collections: named sets of markdown files that one agent may search and read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Final

from holdfast.config.memory import MemorySearch
from holdfast.errors import InvalidInput

PREFIX: Final = "qmd"
SUFFIXES: Final = (".md", ".markdown")
MAX_FILES: Final = 100_000
_SKIPPED: Final = frozenset({".git", ".hg", "node_modules", ".venv", "__pycache__", ".obsidian"})


@dataclass(frozen=True, slots=True)
class Collection:
    """Files of one agent under `root` that match `mask`. `curated` ones count above mere chatter."""

    name: str
    root: Path
    mask: str = "**/*.md"
    curated: bool = True

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Relative paths in order, with their facts; links and what is not markdown are passed over."""
        pattern = re.compile(_mask_pattern(self.mask))
        for count, (path, facts) in enumerate(_walk(self.root, self.mask, "")):
            if count >= MAX_FILES:
                return
            if pattern.fullmatch(path) and path.lower().endswith(SUFFIXES):
                yield path, facts

    def address(self, path: str) -> str:
        """How results name a file: its plain path for the workspace's own memory, else `qmd/…`."""
        return path if self.name in DEFAULT_NAMES else f"{PREFIX}/{self.name}/{path}"


DEFAULT_NAMES: Final = frozenset({"memory-root", "memory-alt", "memory-dir"})


def default_collections(workspace: Path) -> list[Collection]:
    return [
        Collection("memory-root", workspace, "MEMORY.md"),
        Collection("memory-alt", workspace, "memory.md"),
        Collection("memory-dir", workspace, "memory/**/*.md"),
    ]


def configured_collections(search: MemorySearch, workspace: Path) -> list[Collection]:
    """An agent's own: the workspace's memory files, and what the config adds."""
    found = default_collections(workspace) if search.include_default_memory else []
    for extra in search.paths:
        root = Path(extra.path).expanduser()
        root = root if root.is_absolute() else workspace / root
        found.append(Collection(collection_name(extra.name), root, extra.mask))
    return found


def collection_name(text: str) -> str:
    """Lower case, letters, digits and hyphens only."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:64]
    if not name:
        raise InvalidInput(f"not the name of a collection: {text[:64]!r}", hint="Use letters and digits.")
    return name


def locate(collections: list[Collection], address: str) -> tuple[Collection, str]:
    """The collection and relative path that an address names; `InvalidInput` for any other path."""
    parts = _checked(address)
    if parts[0] == PREFIX:
        named = [c for c in collections if len(parts) > 2 and c.name == parts[1]]
        parts = parts[2:]
    else:
        named = [c for c in collections if c.name in DEFAULT_NAMES]
    path = "/".join(parts)
    for collection in named:
        if re.fullmatch(_mask_pattern(collection.mask), path):
            return collection, path
    raise InvalidInput(
        f"{address[:200]!r} is in no collection of this agent",
        code="not_in_memory",
        hint="Use a path that memory_search returned.",
    )


def _checked(address: str) -> list[str]:
    problem = ""
    if "\0" in address or any(ord(char) < 32 for char in address):
        problem = "it has control characters"
    elif "\\" in address:
        problem = "it has a backslash"
    elif address.startswith(("/", "~")) or re.match(r"[A-Za-z]:", address):
        problem = "it is absolute"
    elif not address.lower().endswith(SUFFIXES):
        problem = "it is not a markdown file"
    elif any(part in ("", ".", "..") for part in address.split("/")):
        problem = "it leaves its place"
    if problem or len(address) > 1024:
        raise InvalidInput(
            f"{address[:200]!r} cannot be read: {problem or 'it is too long'}",
            code="path_refused",
            hint="Use a path relative to the workspace, such as memory/2026-01-31.md.",
        )
    return list(PurePosixPath(address).parts)


def _mask_pattern(mask: str) -> str:
    """A glob in which `**/` stands for any number of folders and `*` stays within one."""
    pattern = ""
    for piece in re.split(r"(\*\*/|\*\*|\*|\?)", mask):
        pattern += {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}.get(
            piece, translate(piece)[4:-3] if "[" in piece else re.escape(piece)
        )
    return pattern


def _walk(root: Path, mask: str, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """Regular files below a folder, sorted; never through a link, never into a hidden folder."""
    if not any(sign in mask for sign in "*?["):
        yield from _single(root, mask)
        return
    try:
        items = sorted(os.scandir(root / below), key=lambda item: item.name)
    except OSError:
        return
    for item in items:
        path = f"{below}{item.name}"
        if item.is_dir(follow_symlinks=False):
            if item.name not in _SKIPPED and not item.name.startswith("."):
                yield from _walk(root, mask, f"{path}/")
        elif item.is_file(follow_symlinks=False):
            yield path, item.stat(follow_symlinks=False)


def _single(root: Path, path: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        facts = os.lstat(root / path)
    except OSError:
        return
    # Listed too, so that where case does not matter `memory.md` is not `MEMORY.md` once more.
    if stat.S_ISREG(facts.st_mode) and Path(path).name in os.listdir((root / path).parent):
        yield path, facts
