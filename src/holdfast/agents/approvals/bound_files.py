"""The files that a command would run, held to what a person saw, and the git repositories that it would meet.

Reads folders. A repository need not be called `.git`: any folder with a HEAD, objects and refs is one, and
`.git` may be a file that leads elsewhere.

What to look at is decided by `policy.follow` and `policy.would_read`; here it is looked up and digested.
"""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from holdfast.agents.policy import Reads, ShellCall, follow, runs_nothing, would_read

MOST_FOLDERS: Final = 2_000
MOST_HOOKS: Final = 128


@dataclass(frozen=True, slots=True)
class Repository:
    """`settings` are the files with its settings, `hooks` those that it would run, `others` are read too."""

    settings: tuple[Path, ...]
    hooks: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.settings, *self.hooks, *self.others)


def below(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def repositories(places: Iterable[Path], roots: Iterable[Path], homes: Iterable[Path]) -> list[Repository]:
    """Those around `places`, those that lie in them (git looks into submodules), and settings in `homes`."""
    found: dict[Path, Repository] = {}
    for place in dict.fromkeys(places):
        around = _around(place)
        if around is None:
            found[place] = Repository((place / ".git" / "config",))
            continue
        found[around] = _repository(around)
    if any(repository.others for repository in found.values()):
        for folder in (folder for root in roots for folder in _inside(root)):
            found.setdefault(folder, _repository(folder))
    users = tuple(home / name for home in homes for name in (".gitconfig", ".config/git/config"))
    return [*found.values(), *([Repository(users)] if users else [])]


def _around(place: Path) -> Path | None:
    """The folder, or one above it, that git would take for a repository or its working tree."""
    for folder in (place, *place.parents):
        if os.path.lexists(folder / ".git") or _is_bare(folder):
            return folder
    return None


def _is_bare(folder: Path) -> bool:
    parts = (folder / "objects", folder / "refs")
    return os.path.isfile(folder / "HEAD") and all(os.path.isdir(part) for part in parts)


def _inside(root: Path) -> Iterator[Path]:
    waiting, seen = deque((root,)), 0
    while waiting and seen < MOST_FOLDERS:
        folder = waiting.popleft()
        seen += 1
        try:
            with os.scandir(folder) as entries:
                names = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in names:
            if entry.name.lower() == ".git":
                yield folder
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(Path(entry.path))


def _repository(folder: Path) -> Repository:
    link = folder / ".git"
    own = link if link.is_dir() else _led_to(link, "gitdir:") if link.is_file() else folder
    common = _led_to(own / "commondir", "") if (own / "commondir").is_file() else own
    modules = sorted((common / "modules").rglob("config"))[:MOST_HOOKS]
    places = dict.fromkeys((own, common, *(module.parent for module in modules)))
    settings = [place / name for place in places for name in ("config", "config.worktree")]
    hooks = [hook for place in places for hook in _hooks(place / "hooks")]
    others = [common / "info" / "attributes", folder / ".gitattributes", folder / ".gitmodules"]
    if own != link:
        others.append(link)
    return Repository(tuple(settings), tuple(hooks), tuple(others))


def _led_to(file: Path, before: str) -> Path:
    try:
        with file.open(encoding="utf-8", errors="replace") as text:
            name = text.read(4096).strip().removeprefix(before).strip()
    except OSError:
        return file.parent
    return Path(os.path.normpath(file.parent / name))


def _hooks(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [folder / name for name in names if not name.endswith(".sample")][:MOST_HOOKS]


MOST_FILES: Final = 2_000
MOST_NAMES: Final = 250
MOST_BYTES: Final = 32 * 1024**2
MOST_OF_A_GLOB: Final = 64
MOST_OF_ONE: Final = 4 * 1024**2
ABSENT: Final = "absent"


def _names(*lines: str) -> frozenset[str]:
    return frozenset(name for line in lines for name in line.split())


_SUFFIXES: Final = _names(
    ".sh .bash .zsh .fish .py .js .mjs .cjs .ts .tsx .rb .pl .php .lua .mk .awk .sed .ps1 .r .jl .exe"
)
_NEVER_RUN: Final = _names(
    ".md .rst .log .csv .tsv .png .jpg .jpeg .gif .webp .svg .ico .pdf .woff .woff2 .ttf .mp3 .mp4 .wav",
    ".zip .gz .tar .sqlite .db .db-wal .db-shm .pyc .o .a .gcda .gcno .class .coverage",
)
_NOT_ENTERED: Final = _names(".git .hg .svn __pycache__ .mypy_cache .pytest_cache .ruff_cache .hypothesis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a command runs. `mounts` are folders by the names that it sees; `private` is left out."""

    folder: Path
    workspace: Path
    private: Path | None = None
    mounts: tuple[tuple[str, Path], ...] = ()

    @property
    def roots(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.workspace, *(real for _, real in self.mounts))))


@dataclass(frozen=True, slots=True)
class BoundFiles:
    """Names and digests. `driven`: files that an agent can change say what is run. `why_not_always` is there
    where they do not say it all, so that no later command can be known to be the same."""

    digests: Mapping[str, str] = field(default_factory=dict)
    driven: bool = False
    why_not_always: str = ""

    @property
    def needs_a_person(self) -> bool:
        return self.driven or bool(self.why_not_always)

    @property
    def digest(self) -> str:
        return digest_of(self.digests)


def digest_of(files: Mapping[str, str]) -> str:
    text = "\0".join(f"{name}\0{state}" for name, state in sorted(files.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """The names of what is other than it was, new or gone."""
    return sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))


def present(files: Mapping[str, str]) -> list[str]:
    """Those that are there: what is looked for and absent is bound too, but no news to anyone."""
    return sorted(name for name, state in files.items() if state != ABSENT)


def named(names: Sequence[str]) -> str:
    """For people: the first few."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:200] for name in names[:3]) + more


def look(command: str, place: Place) -> BoundFiles:
    """What the command would run, as it is now."""
    found = _Look(place)
    followed = follow(command)
    for call in followed.calls:
        found.take(call, would_read(call))
    found.take_repositories()
    if followed.doubt:
        found.doubts.insert(0, followed.doubt)
    if found.doubts:
        found.take_all_named(followed.calls)
    if found.tree or found.doubts:
        found.take_tree()
    why = found.doubts[0] if found.doubts else ""
    return BoundFiles(found.digests(), found.driven, why)


class _Look:
    def __init__(self, place: Place) -> None:
        self.files: dict[str, str] = {}
        self.others: dict[str, str] = {}
        self.doubts: list[str] = []
        self.driven = self.tree = False
        self._place = place
        self._git_places: dict[Path, None] = {}

    def take(self, call: ShellCall, reads: Reads) -> None:
        if reads.doubt:
            self.doubts.append(reads.doubt)
        self.tree |= reads.tree
        self.driven |= reads.tree
        for folder in self._folders(call):
            if reads.program:
                self._take_program(folder, reads.program)
            places = [folder, *self._take_words(folder, reads)]
            for own in reads.own:
                self._take_glob(places, own)
            if reads.git:
                self._git_places.update(dict.fromkeys(places))

    def take_all_named(self, calls: tuple[ShellCall, ...]) -> None:
        """Where it is not known what is run, every file that is named may be it."""
        for call in calls:
            names = [word.text for word in (*call.words, *call.inputs) if word.fixed and word.text]
            for folder in self._folders(call):
                self._take_words(folder, Reads(words=tuple(names)))

    def take_tree(self) -> None:
        read = 0
        for count, (path, facts) in enumerate(_walked(self._place), 1):
            read += min(facts.st_size, MOST_OF_ONE)
            if count > MOST_FILES or read > MOST_BYTES:
                much = f"more than {MOST_FILES} files" if count > MOST_FILES else "too much"
                self.doubts.append(f"it can run any file of the workspace, and there are {much} to look at")
                return
            self.others[self._name(path)] = state_of(path)

    def digests(self) -> dict[str, str]:
        """What is run by name as it is; all else of the tree in so few names that they can be kept."""
        others = {name: state for name, state in self.others.items() if name not in self.files}
        for group in (lambda name: name, _folder_of, _top_of):
            grouped = _grouped(others, group)
            if len(grouped) <= MOST_NAMES:
                break
        return dict(sorted((self.files | grouped).items()))

    def _folders(self, call: ShellCall) -> Iterator[Path]:
        for folder in call.folders:
            yield self._real(self._place.folder, folder)

    def _real(self, folder: Path, name: str) -> Path:
        """Where a name leads that a command uses, which may see its folders under other names."""
        for seen, real in self._place.mounts:
            if name == seen or name.startswith(seen.rstrip("/") + "/"):
                return Path(os.path.normpath(real / os.path.relpath(name, seen)))
        return Path(os.path.normpath(folder / os.path.expanduser(name)))

    def _take_program(self, folder: Path, name: str) -> None:
        path = self._real(folder, name)
        real = Path(os.path.realpath(path))
        if any(below(real, Path(os.path.realpath(root))) for root in self._place.roots):
            self.tree = self.driven = True
        self._bind(path, state_of(path) or ABSENT)

    def _take_words(self, folder: Path, reads: Reads) -> list[Path]:
        """Bind the files among the words; gives the folders among them."""
        folders: list[Path] = []
        for word in dict.fromkeys(reads.words):
            path = self._real(folder, word)
            if not _is_nameable(word) or self._is_private(path):
                continue
            if os.path.isdir(path):
                folders.append(path)
            elif reads.git and reads.only_scripts:
                continue
            elif _is_script(path, word) or not reads.only_scripts:
                self._take_word(path, word, reads)
        return folders

    def _take_word(self, path: Path, word: str, reads: Reads) -> None:
        state = state_of(path)
        if state == ABSENT and not _by_name(path, word):
            return
        if state:
            self._bind(path, state)
            self.driven |= reads.only_scripts

    def _take_glob(self, places: list[Path], own: str) -> None:
        for place in places:
            if not any(mark in own for mark in "*?["):
                self._bind(place / own, state_of(place / own))
                continue
            for name in sorted(glob.glob(own, root_dir=place))[:MOST_OF_A_GLOB]:
                self._bind(place / name, state_of(place / name))

    def take_repositories(self) -> None:
        """Settings and hooks; where they can name a program, git is as good as a script."""
        homes = [real for _, real in self._place.mounts]
        for found in repositories(self._git_places, self._place.roots, homes):
            for path in found.files:
                self._bind(path, state_of(path))
            if found.hooks or not all(runs_nothing(_text(path)) for path in found.settings):
                self.tree = self.driven = True

    def _bind(self, path: Path, state: str) -> None:
        if not state or self._is_private(path):
            return
        self.files[self._name(path)] = state

    def _name(self, path: Path) -> str:
        root = self._place.workspace
        return str(path.relative_to(root)) if below(path, root) else str(path)

    def _is_private(self, path: Path) -> bool:
        private = self._place.private
        if private is None or not below(path, private):
            return False
        return not any(below(root, private) and below(path, root) for root in self._place.roots)


def state_of(path: Path) -> str:
    """A digest of what a file holds and whether it may be run; nothing for what is no file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return ""
            held = hashlib.sha256(file.read(MOST_OF_ONE))
            if facts.st_size > MOST_OF_ONE:
                held.update(f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}".encode())
            return held.hexdigest()[:32] + ("x" if facts.st_mode & 0o111 else "")
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except IsADirectoryError:
        return ""
    except (OSError, ValueError):
        return "unreadable"


def _grouped(files: Mapping[str, str], group: Callable[[str], str]) -> dict[str, str]:
    """One digest for all files of a group; a group of one by that name keeps its own."""
    groups: dict[str, dict[str, str]] = {}
    for name, state in files.items():
        groups.setdefault(group(name), {})[name] = state
    return {name: held[name] if name in held else digest_of(held)[:32] for name, held in groups.items()}


def _folder_of(name: str) -> str:
    return os.path.join(os.path.dirname(name), "*")


def _top_of(name: str) -> str:
    steps = name.split("/")
    return f"{steps[0]}/**" if len(steps) > 1 else "*"


def _walked(place: Place) -> Iterator[tuple[Path, os.stat_result]]:
    """What could be run of all roots, what lies shallow first: a project before what it depends on."""
    waiting = deque(place.roots)
    while waiting:
        folder = waiting.popleft()
        for entry in _entries(folder):
            path = Path(entry.path)
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _NOT_ENTERED and path != place.private:
                    waiting.append(path)
            elif path.suffix.lower() not in _NEVER_RUN and entry.name not in _NEVER_RUN:
                with suppress(OSError):
                    yield path, entry.stat(follow_symlinks=False)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:
        return []


def _is_nameable(word: str) -> bool:
    return bool(word) and "\0" not in word and len(word) < 4096 and "://" not in word


def _by_name(path: Path, word: str) -> bool:
    return path.suffix.lower() in _SUFFIXES or word.startswith("./")


def _is_script(path: Path, word: str) -> bool:
    """By its name, by how it begins, or because it may be run."""
    if _by_name(path, word):
        return True
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            facts = os.fstat(file.fileno())
            return stat.S_ISREG(facts.st_mode) and (bool(facts.st_mode & 0o111) or file.read(2) == b"#!")
    except (OSError, ValueError):
        return False


def _text(path: Path) -> str:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(MOST_OF_ONE).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return "unreadable, and therefore not harmless"
