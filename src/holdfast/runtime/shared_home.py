"""What the gateways of one store share: config and skills, kept there in versions and copied to each home.

Whoever opens a home takes up what is newer in the store; a gateway does so when a version is added anywhere.
"""

from __future__ import annotations

import asyncio
import difflib
import fcntl
import json
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.agents.skills import archive
from holdfast.agents.skills.skill import FILE, MAX_BYTES, Skill, Tier, parse_skill
from holdfast.config import Author, ConfigStore, merge_text
from holdfast.config.source import OWN, parse_object, read_text
from holdfast.config.store import write_text
from holdfast.errors import Conflict, HoldfastError, InvalidInput, NotFound
from holdfast.home import Home
from holdfast.log import OWNER, SYSTEM, Origin, Store, Threads, Tx, ringing, rung, versions
from holdfast.log.versions import CONFIG, SKILL, Version

log = logging.getLogger(__name__)

Choice = Literal["take", "replace"] | None
_LOOK_AGAIN_SECONDS: Final = 15.0
_STATE: Final = "state.json"
_MOST_LINES: Final = 2_000


class SharedHome:
    """The versions of a store, and the copies of the newest ones in a home."""

    def __init__(self, home: Home, opened: Callable[[], AbstractContextManager[Store]]) -> None:
        self._home = home
        self._opened = opened

    @classmethod
    def over(cls, home: Home, store: Store) -> SharedHome:
        """For whoever has the store open."""

        @contextmanager
        def opened() -> Iterator[Store]:
            yield store

        return cls(home, opened)

    def change(self, edit: Callable[[str], str], author: Author, what: str) -> None:
        """Make the newest config another one, and bring the copies up to date."""
        with self._opened() as store:
            with _acting(store, author) as tx:
                before = config_text(tx)
                after = edit(before)
                if after != before:
                    versions.add(
                        tx, CONFIG, "", after.encode(), what=what, act="config.changed", by=author.name
                    )
            take_up(self._home, store)

    def roll_back_config(self, config: ConfigStore, number: int, author: Author) -> None:
        """The text of an earlier version as a new one; checked as if it were written today."""
        with self._opened() as store, store.read(OWNER) as tx:
            _, content = versions.get(tx, CONFIG, "", number)
        text = (content or b"").decode()
        config.check_shared(text)
        self.change(lambda _: text, author, f"back to version {number}")
        config.reload()

    def publish_skill(self, name: str, data: bytes, author: Author, *, what: str = "") -> Version:
        """Put a skill, as an archive of its files, into the store; the same files again add nothing. `name`
        is its folder's, which counts where its head has none."""
        skill = read_archive(data, name)
        with self._opened() as store:
            with _acting(store, author) as tx:
                made = _published(tx, skill, data, author, what)
            take_up(self._home, store)
        return made

    def roll_back_skill(self, name: str, number: int, author: Author) -> Version:
        with self._opened() as store, store.read(OWNER) as tx:
            _, content = versions.get(tx, SKILL, name, number)
        if content is None:
            raise Conflict(f"{name[:64]} was taken away with version {number}", hint="Name another version.")
        return self.publish_skill(name, content, author, what=f"back to version {number}")

    def withdraw_skill(self, name: str, author: Author) -> Version:
        """Take a skill away from all gateways; its versions stay."""
        with self._opened() as store:
            with _acting(store, author) as tx:
                known = versions.newest(tx, SKILL, name)
                if known is None or known.removed:
                    raise NotFound(f"no skill {name[:64]!r} in the store", code="unknown_skill")
                made = versions.add(
                    tx, SKILL, name, None, what="taken away", act="skill.withdrawn", by=author.name
                )
            take_up(self._home, store)
        return made

    def edit_skill(
        self, name: str, files: Mapping[str, str | None], author: Author, *, read: int | None = None
    ) -> Version:
        """Change texts of a skill, or begin one; None takes a file away. `read` is the version that was
        edited: another that was published since is not written over. All in one transaction, so that nobody
        publishes in between."""
        with self._opened() as store:
            with _acting(store, author) as tx:
                known = versions.newest(tx, SKILL, name)
                number = 0 if known is None else known.number
                if read not in (None, number):
                    raise Conflict(
                        f"version {number} of {name[:64]} was published since version {read} was read",
                        code="skill_changed",
                        hint="Read it again, and make the change in that one.",
                    )
                content = None if known is None else versions.get(tx, SKILL, name, number)[1]
                data = archive.edited(content, files)
                skill = read_archive(data, name)
                if skill.name != name:
                    said = f"{FILE} calls it {skill.name[:64]!r}, not {name[:64]!r}"
                    raise InvalidInput(said, code="bad_archive")
                made = _published(tx, skill, data, author, ", ".join(sorted(files)))
            take_up(self._home, store)
        return made

    def refresh(self) -> None:
        """Bring the copies of this home up to date."""
        with self._opened() as store:
            take_up(self._home, store)

    @contextmanager
    def reading(self) -> Iterator[Tx]:
        with self._opened() as store, store.read(OWNER) as tx:
            yield tx


def _published(tx: Tx, skill: Skill, data: bytes, author: Author, what: str) -> Version:
    """The version that these files are: a new one, unless they are the newest already."""
    known = versions.newest(tx, SKILL, skill.name)
    if known is not None and known.sha256 == versions.digest(data):
        return known
    said = what or (f"version {skill.version}" if skill.version else skill.description)
    return versions.add(tx, SKILL, skill.name, data, what=said, act="skill.published", by=author.name)


@contextmanager
def _acting(store: Store, author: Author) -> Iterator[Tx]:
    with store.write(OWNER) as tx:
        tx.origin = Origin(author.surface, author.address)
        yield tx


def config_text(tx: Tx) -> str:
    """The newest shared config; nothing where none was ever written."""
    known = versions.newest(tx, CONFIG, "")
    return "" if known is None else (versions.get(tx, CONFIG, "", known.number)[1] or b"").decode()


def config_diff(tx: Tx, config: ConfigStore, first: int, second: int) -> str:
    """What is other in a second version, line by line, with secrets masked; before the first was none."""

    def shown(number: int) -> str:
        content = versions.get(tx, CONFIG, "", number)[1] if number else None
        return config.shown(content.decode()) if content else ""

    return _diff({"config": shown(first)}, {"config": shown(second)}, first, second)


def skill_diff(tx: Tx, name: str, first: int, second: int) -> str:
    """The same for a skill's files; of what is no text only that it is another."""

    def files(number: int) -> dict[str, str]:
        content = versions.get(tx, SKILL, name, number)[1] if number else None
        return {} if content is None else archive.texts(content)

    return _diff(files(first), files(second), first, second)


def _diff(before: dict[str, str], after: dict[str, str], first: int, second: int) -> str:
    lines: list[str] = []
    for path in sorted(before.keys() | after.keys()):
        was, now = (texts.get(path, "").splitlines() for texts in (before, after))
        told = (f"{path} (version {first})", f"{path} (version {second})")
        lines += difflib.unified_diff(was, now, *told, lineterm="")
        if len(lines) > _MOST_LINES:
            return "\n".join([*lines[:_MOST_LINES], "… and more"]) + "\n"
    return "\n".join(lines) + "\n" if lines else ""


def read_archive(data: bytes, name: str) -> Skill:
    """The skill in an archive, if that may be put in place: as one from a registry is looked at."""
    if not name or name.startswith(".") or set(name) & set("/\\\0"):
        raise InvalidInput(f"not the name of a skill: {name[:64]!r}", code="bad_archive")
    with tempfile.TemporaryDirectory() as draft:
        folder = Path(draft) / name
        archive.unpack(data, folder)
        return _skill_in(folder)


def _skill_in(folder: Path) -> Skill:
    try:
        text = (folder / FILE).read_bytes()
        if len(text) > MAX_BYTES:
            raise InvalidInput(f"{FILE} is larger than {MAX_BYTES} bytes", code="bad_archive")
        return parse_skill(text.decode(), folder / FILE, Tier.STORE)
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{FILE} is not UTF-8", code="bad_archive") from error


def take_up(home: Home, store: Store) -> bool:
    """Bring the copies in a home to what is newest in the store; whether any was behind. Blocks.

    One process at a time looks and writes, so that an older copy never replaces a newer one.
    """
    with _locked(home.shared):
        known = _state(home.shared)
        with store.read(SYSTEM) as tx:
            newer = {key: number for key, number in versions.numbers(tx).items() if known.get(key) != number}
            found = [versions.get(tx, *key, number) for key, number in newer.items()]
        for version, content in found:
            _copy(home.shared, version, content)
            known[version.kind, version.name] = version.number
        if found:
            told = [{"kind": kind, "name": name, "number": number} for (kind, name), number in known.items()]
            write_text(home.shared / _STATE, json.dumps(told, indent=2) + "\n")
        return bool(found)


def _copy(shared: Path, version: Version, content: bytes | None) -> None:
    """A skill is put in place whole; one that this program cannot take is left as it was, and told."""
    if version.kind == CONFIG:
        write_text(shared / "holdfast.json", (content or b"").decode())
        return
    target = shared / "skills" / version.name
    target.parent.mkdir(mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=shared, prefix=".new-") as draft:
        new = Path(draft) / "new"
        try:
            if content is not None:
                archive.unpack(content, new)
        except HoldfastError as error:
            log.error("skill %s of the store cannot be taken up: %s", version.name, error.message)
            return
        if target.exists():
            target.rename(Path(draft) / "old")
        if content is not None:
            new.rename(target)


def _state(shared: Path) -> dict[tuple[str, str], int]:
    """What the copies are of; where that cannot be read they are all made anew."""
    try:
        told: list[dict[str, Any]] = json.loads((shared / _STATE).read_text("utf-8"))
        return {(one["kind"], one["name"]): one["number"] for one in told}
    except (OSError, ValueError, KeyError, TypeError):
        shutil.rmtree(shared / "skills", ignore_errors=True)
        return {}


@contextmanager
def _locked(shared: Path) -> Iterator[None]:
    shared.mkdir(mode=0o700, exist_ok=True)
    with (shared / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def follow(
    home: Home, store: Store, threads: Threads, config: ConfigStore, stop: asyncio.Event
) -> None:
    """Take up what any gateway writes, until `stop` is set."""
    bell = asyncio.Event()
    ring = ringing(bell.set)
    unsubscribe = store.signals.subscribe(versions.SIGNAL, ring)
    waiting = asyncio.ensure_future(stop.wait())
    waiting.add_done_callback(ring)
    try:
        while not stop.is_set():
            bell.clear()
            if config.is_shared and await threads(take_up, home, store):
                await threads(config.reload)
            await rung(bell, _LOOK_AGAIN_SECONDS)
    finally:
        waiting.cancel()
        unsubscribe()


def move_in(shared: SharedHome, config: ConfigStore, author: Author, choice: Choice) -> None:
    """Have a home's config lie in the store: what is not this gateway's own leaves its file, which is kept as
    `<name>.bak`. What the store has already is taken or replaced as `choice` says."""
    text = read_text(config.path) or ""
    data = parse_object(text, str(config.path))
    own = OWN & data.keys()
    rest = merge_text(text, dict.fromkeys(own))
    config.check_shared(rest)
    with shared.reading() as tx:
        known = versions.newest(tx, CONFIG, "")
    if known is not None and choice is None and data.keys() - own:
        raise Conflict(
            f"the store has a config already, version {known.number} by {known.actor}",
            code="config_in_store",
            hint="--take uses that one and keeps yours as holdfast.json.bak; --replace makes yours the next.",
        )
    if known is None or choice == "replace":
        shared.change(lambda _: rest, author, "from a holdfast.json")
    else:
        shared.change(lambda before: before, author, "")
    left = dict.fromkeys(data.keys() - own) | {"config": {"source": "store"}}
    write_text(config.path.with_name(f"{config.path.name}.bak"), text)
    write_text(config.path, merge_text(text, left))
    config.reload()


def move_out(shared: SharedHome, config: ConfigStore) -> None:
    """Have a home's config lie in its file again, as the store has it now; other homes are not changed."""
    with shared.reading() as tx:
        text = config_text(tx)
    own = parse_object(read_text(config.path) or "", str(config.path))
    write_text(config.path, merge_text(text, {**own, "config": None}))
    config.reload()
