"""The config of a running program: one frozen snapshot, swapped when a text of it changes."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.clock import Clock, Millis, SystemClock
from holdfast.config.editing import is_json, masked, merge_text, restored, secrets_in
from holdfast.config.root import Config
from holdfast.config.source import (
    IN_STORE,
    OWN,
    Author,
    InvalidConfig,
    Problem,
    Publisher,
    Texts,
    accept,
    check,
    copy_of,
    parse_object,
    parse_text,
    parsed,
    read_text,
    require_no_secrets,
    require_shareable,
    split,
    without_idle,
)
from holdfast.config.values import MASK, wrap_secrets
from holdfast.errors import ConfigError, Conflict, InvalidInput, Unavailable

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

Subscriber = Callable[[Config], None]
_EMPTIED: Final = "the file was emptied; write {} for the defaults"


class ConfigStore:
    """Holds the last good config of a home. A text that is wrong at the start is an error; later the last
    good config stays and `last_error` says why.

    `publisher` is what changes the shared text, where there is one (`config.source` `store`).
    """

    def __init__(
        self,
        path: str | Path,
        clock: Clock | None = None,
        publisher: Publisher | None = None,
        author: Author | None = None,
    ) -> None:
        self.path = Path(path)
        self.publisher = publisher
        self._author = author or Author()
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._texts = Texts.read(self.path)
        self._current = parsed(self._texts, str(self.path))
        self._last_error: ConfigError | None = None
        self._loaded_at = self._clock.now()
        self._patched = False

    @property
    def current(self) -> Config:
        return self._current

    @property
    def is_shared(self) -> bool:
        """Whether all but what is this gateway's own lies in the store."""
        return self._current.config.source == "store"

    @property
    def last_error(self) -> ConfigError | None:
        """Why the config as it stands is not in use; None when it is."""
        return self._last_error

    @property
    def loaded_at(self) -> Millis:
        """When the current config was taken in."""
        return self._loaded_at

    @property
    def patched(self) -> bool:
        """Whether the current config was made here, or in the store; if not, somebody changed the file."""
        return self._patched

    @property
    def digest(self) -> str:
        """Names the text that is in use, and tells nothing of it."""
        text = self._texts.shared if self.is_shared else self._texts.own
        return hashlib.sha256((text or "").encode()).hexdigest()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call back with each new config, in the thread that reloads; the result ends it."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def reload(self) -> bool:
        """Read the file, and the copy of what is shared, again; True when the config became another one."""
        with self._lock:
            try:
                texts = Texts.read(self.path)
                if texts.own is None and self._texts.own is not None:
                    raise InvalidConfig(str(self.path), [Problem("", "the file has gone")])
                if _is_blank(texts.own) and not _is_blank(self._texts.own):
                    raise InvalidConfig(str(self.path), [Problem("", _EMPTIED)])
                if texts == self._texts:
                    self._last_error = None
                    return False
                config = parsed(texts, str(self.path))
            except ConfigError as error:
                self._last_error = error
                return False
            self._patched = texts.own == self._texts.own
            return self._swap(texts, config)

    def data(self) -> dict[str, Any]:
        """What people edit, as plain data: the shared text where there is one, else the file."""
        return parse_object(read_text(self._edited) or "", str(self._edited))

    def patch(self, merge: dict[str, Any], author: Author | None = None) -> Config:
        """Merge by RFC 7396, checked first and written whole or not at all: into the file, or where a key is
        shared into a new version of the shared text.

        `agents.list` may be an object of agents by their ids, of which each merges into the one it names.
        Comments and layout of JSON5 stay; a file's text before is kept beside it as `<name>.bak`.
        """
        _require_unmasked(merge)
        with self._lock:
            own, shared = split(merge) if self.is_shared else (merge, {})
            if shared:
                self._publish(lambda before: merge_text(before, shared), author, ", ".join(sorted(shared)))
            if own or not shared:
                self._patch_file(own)
            return self._current

    def _patch_file(self, merge: dict[str, Any]) -> None:
        before = read_text(self.path)
        parse_object(before or "", str(self.path))
        text = merge_text(before or "", merge)
        after = Texts(text, read_text(copy_of(self.path)))
        config = parsed(after, str(self.path))
        _write(self.path, text, keep=before)
        self._patched = True
        self._swap(after, config)

    def _publish(self, edit: Callable[[str], str], author: Author | None, what: str) -> None:
        """Have the shared text edited and checked together with this gateway's own, as any file is."""
        if self.publisher is None:
            raise Unavailable("the config lies in the store, which is not open here", code="config_in_store")

        def checked(before: str) -> str:
            text = edit(before)
            self.check_shared(text)
            return text

        self.publisher.change(checked, author or self._author, what)
        self.reload()
        if self._last_error is not None:
            raise self._last_error

    def check_shared(self, text: str) -> Config:
        """The config that a shared text makes here; InvalidConfig if it may not be in the store."""
        own = parse_object(read_text(self.path) or "", str(self.path))
        data = parse_object(text, IN_STORE)
        require_shareable(data)
        mine = {name: value for name, value in own.items() if name in OWN}
        config = accept({**data, **mine}, source=IN_STORE)
        require_no_secrets(data, config)
        return config

    @property
    def _edited(self) -> Path:
        return copy_of(self.path) if self.is_shared else self.path

    def shown_text(self) -> str:
        """What people edit as it is written, comments and all, with every secret masked."""
        with self._lock:
            text = read_text(self._edited)
            return "" if text is None else self.shown(text)

    def shown(self, text: str) -> str:
        """A text of this config as it may be shown."""
        data = parse_text(text, source=str(self.path))
        secrets = (*secrets_in(self._current), *secrets_in(wrap_secrets(data)))
        return merge_text(text, _difference(data, masked(data, secrets)))

    def save_text(self, text: str, *, before: str, author: Author | None = None) -> Config:
        """Take over an edited text; what is masked in it stays as it was. `before` is the text that was
        shown."""
        with self._lock:
            if self.is_shared:
                self._publish(lambda was: self._merged(text, was, before), author, "as text")
                return self._current
            was = read_text(self.path)
            written = self._merged(text, was or "", before)
            after = Texts(written, read_text(copy_of(self.path)))
            config = parsed(after, str(self.path))
            _write(self.path, written, keep=was)
            self._swap(after, config)
            return config

    def _merged(self, text: str, was: str, before: str) -> str:
        """An edited text with what was masked in it, if nobody else changed it since it was shown."""
        if (self.shown(was) if was else "") != before:
            raise Conflict(
                "the config was changed meanwhile",
                code="config_changed",
                hint="Read it again, and put your changes into what it is now.",
            )
        data = parse_object(text, str(self.path))
        whole = restored(data, parse_text(was, source=str(self.path)))
        _require_unmasked(whole)
        return merge_text(text, _difference(data, whole))

    async def watch(self, stop: asyncio.Event | None = None) -> None:
        """Reload whenever the file changes, until `stop` is set.

        The folder is watched, since editors replace files; a look at each timeout catches a change
        that came before the watcher was ready, or that the file system did not report.
        """
        import asyncio

        from watchfiles import awatch

        shared = copy_of(self.path.absolute()).parent
        shared.mkdir(mode=0o700, exist_ok=True)
        folders = {self.path.absolute().parent, self.path.resolve().parent, shared}
        names = {self.path.name, self.path.resolve().name}
        changes = awatch(
            *folders,
            watch_filter=lambda _, path: os.path.basename(path) in names,
            stop_event=stop,
            recursive=False,
            debounce=200,
            step=100,
            rust_timeout=2000,
            yield_on_timeout=True,
        )
        await asyncio.to_thread(self.reload)
        async for _ in changes:
            await asyncio.to_thread(self.reload)

    def _swap(self, texts: Texts, config: Config) -> bool:
        self._texts, self._last_error = texts, None
        if config == self._current:
            return False
        self._current = config
        self._loaded_at = self._clock.now()
        for callback in tuple(self._subscribers):
            try:
                callback(config)
            except Exception:
                log.exception("a subscriber failed on the new config")
        return True


def take_out_idle(path: Path) -> list[str]:
    """Take the settings that do nothing out of a file, all else kept as it was written; says which."""
    before = read_text(path)
    if before is None:
        return []
    data = parse_text(before, source=str(path))
    try:
        check(data, source=str(path))
        return []
    except InvalidConfig as error:
        kept, left_out = without_idle(data, error.problems)
    _write(path, merge_text(before, _difference(data, kept)), keep=before)
    return [problem.path for problem in left_out]


def _is_blank(text: str | None) -> bool:
    return not (text or "").strip()


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The merge patch that makes one of the other, where keys were only taken out."""
    patch: dict[str, Any] = {}
    for name, value in before.items():
        if name not in after:
            patch[name] = None
        elif isinstance(value, dict) and value != after[name]:
            patch[name] = _difference(value, after[name])
        elif value != after[name]:
            patch[name] = after[name]
    return patch


def _require_unmasked(data: Any) -> None:
    path = _masked_path(data)
    if path is not None:
        raise InvalidInput(
            f"{path}: a masked secret cannot be written back",
            hint="Leave the key out of the patch, or send the new secret.",
        )


def _masked_path(value: Any, path: str = "") -> str | None:
    if isinstance(value, str):
        return path if value == MASK or f":{MASK}@" in value else None
    if isinstance(value, dict):
        inner = [(f"{path}.{name}".lstrip("."), item) for name, item in value.items()]
    elif isinstance(value, list):
        inner = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
    else:
        return None
    return next((bad for at, item in inner if (bad := _masked_path(item, at)) is not None), None)


def _write(path: Path, text: str, *, keep: str | None) -> None:
    """Replace the file behind `path` in one step, with its mode (0600 for a new one)."""
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        if keep is not None and not is_json(keep):
            _replace(target.with_name(f"{target.name}.bak"), keep, 0o600)
        _replace(target, text, mode)
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror}", hint="Check the folder's permissions and space."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step, without keeping what was there."""
    _write(path, text, keep=None)


def _replace(target: Path, text: str, mode: int) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
