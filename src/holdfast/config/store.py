"""The config of a running program: one frozen snapshot, swapped when the file changes."""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, Millis, SystemClock
from holdfast.config.editing import is_json, merge_text
from holdfast.config.merge import merge_patch
from holdfast.config.problems import InvalidConfig, Problem
from holdfast.config.root import Config
from holdfast.config.secret import MASK, wrap_secrets
from holdfast.config.shown import masked, restored, secrets_in
from holdfast.config.source import accept, check, parse_config, parse_text, read_text, without_idle
from holdfast.errors import ConfigError, Conflict, InvalidInput, Unavailable

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger(__name__)

Subscriber = Callable[[Config], None]


class ConfigStore:
    """Holds the last good config of a file. A file that is wrong at the start is an error; later
    the last good config stays and `last_error` says why."""

    def __init__(self, path: str | Path, clock: Clock | None = None) -> None:
        self.path = Path(path)
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        self._subscribers: list[Subscriber] = []
        self._text = read_text(self.path)
        self._current = self._parse(self._text)
        self._last_error: ConfigError | None = None
        self._loaded_at = self._clock.now()
        self._patched = False

    @property
    def current(self) -> Config:
        return self._current

    @property
    def last_error(self) -> ConfigError | None:
        """Why the file as it stands is not in use; None when it is."""
        return self._last_error

    @property
    def loaded_at(self) -> Millis:
        """When the current config was taken in."""
        return self._loaded_at

    @property
    def patched(self) -> bool:
        """Whether the current config was made here; if not, somebody changed the file."""
        return self._patched

    @property
    def digest(self) -> str:
        """Names the text that is in use, and tells nothing of it."""
        return hashlib.sha256((self._text or "").encode()).hexdigest()

    def subscribe(self, callback: Subscriber) -> Callable[[], None]:
        """Call back with each new config, in the thread that reloads; the result ends it."""
        self._subscribers.append(callback)

        def unsubscribe() -> None:
            with suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def reload(self) -> bool:
        """Read the file again; True when the config became another one."""
        with self._lock:
            try:
                text = read_text(self.path)
                if text is None and self._text is not None:
                    raise InvalidConfig(str(self.path), [Problem("", "the file has gone")])
                if text == self._text:
                    self._last_error = None
                    return False
                config = self._parse(text)
            except ConfigError as error:
                self._last_error = error
                return False
            self._patched = False
            return self._swap(text, config)

    def patch(self, merge: dict[str, Any]) -> Config:
        """Merge into the file by RFC 7396, checked first and written whole or not at all.

        Comments and layout of a JSON5 file stay; its text before is kept beside it as `<name>.bak`.
        """
        _require_unmasked(merge)
        with self._lock:
            before = read_text(self.path)
            data = {} if before is None else parse_text(before, source=str(self.path))
            config = accept(merge_patch(data, merge), source=str(self.path))
            text = merge_text(before or "", merge)
            _write(self.path, text, keep=before)
            self._patched = True
            self._swap(text, config)
            return config

    def shown_text(self) -> str:
        """The file as it is written, comments and all, with every secret masked."""
        with self._lock:
            text = read_text(self.path)
            if text is None:
                return ""
            data = parse_text(text, source=str(self.path))
            secrets = (*secrets_in(self._current), *secrets_in(wrap_secrets(data)))
            return merge_text(text, _difference(data, masked(data, secrets)))

    def save_text(self, text: str, *, before: str) -> Config:
        """Take over an edited text of the file; what is masked in it stays as it was. `before` is the text
        that was shown."""
        with self._lock:
            if self.shown_text() != before:
                raise Conflict(
                    "the config was changed meanwhile",
                    code="config_changed",
                    hint="Read it again, and put your changes into what it is now.",
                )
            was = read_text(self.path)
            old = {} if was is None else parse_text(was, source=str(self.path))
            data = parse_text(text, source=str(self.path))
            whole = restored(data, old)
            _require_unmasked(whole)
            config = accept(whole, source=str(self.path))
            written = merge_text(text, _difference(data, whole))
            _write(self.path, written, keep=was)
            self._swap(written, config)
            return config

    async def watch(self, stop: asyncio.Event | None = None) -> None:
        """Reload whenever the file changes, until `stop` is set.

        The folder is watched, since editors replace files; a look at each timeout catches a change
        that came before the watcher was ready, or that the file system did not report.
        """
        import asyncio

        from watchfiles import awatch

        folders = {self.path.absolute().parent, self.path.resolve().parent}
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

    def _parse(self, text: str | None) -> Config:
        return Config() if text is None else parse_config(text, source=str(self.path))

    def _swap(self, text: str | None, config: Config) -> bool:
        self._text, self._last_error = text, None
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
