"""The program's own log: text on stderr for people, JSON lines in `logs/gateway.jsonl` for programs.

Secrets are masked in both, by what is known to be one and by what looks like one. Whatever else writes into
`logs/` does it with `append_rotated`, and `sweep` sees to the age and the size of all of it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

from holdfast.clock import DAY_MS, iso
from holdfast.config.runtime import LoggingConfig
from holdfast.errors import ConfigError
from holdfast.home import Home, private_opener

FILE: Final = "gateway.jsonl"
MASK: Final = "***"
MAX_TEXT: Final = 32_000
REPEAT_SECONDS: Final = 60.0
_MOST_SEEN: Final = 200
_DECIDED: Final = "holdfast_is_told"
_MIN_SECRET: Final = 8
_KNOWN_SECRETS: Final = ("token", "cookie_key")
# Each begins with something fixed: on a long word without an end, none may look back over all of it.
_PATTERNS: Final = (
    (r"\bhf_[\w-]{16,}", MASK),
    (r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}", rf"\1 {MASK}"),
    (r"\bsk-[\w-]{8,}", MASK),
    (r"\b(gh[pousr]_|github_pat_|glpat-|[rs]k_live_|xox[abeprs]-|AKIA|AIza)[\w-]{8,}", MASK),
    (r"\beyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]*", MASK),
    (r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", MASK),
    (r"((?<=[a-z])://[^/\s:@]{0,200}):[^/\s@]{0,500}@", rf"\1:{MASK}@"),
    (
        r"(?i)((?:api_?key|token|secret|password|passwd|authorization|cookie)[\"']?\s*[=:]\s*[\"']?)"
        r"(?!\*\*\*|bearer\b|basic\b)[^\s\"'&,;]{6,}",
        rf"\1{MASK}",
    ),
)

Redact = Callable[[str], str]


def redactor(known: Iterable[str] = ()) -> Redact:
    """A function that masks these secrets, all that looks like one, and what the operator calls one."""
    exact = sorted({text for text in known if len(text) >= _MIN_SECRET}, key=len, reverse=True)
    rules = [(re.compile(pattern), mask) for pattern, mask in _PATTERNS]
    if exact:
        rules.insert(0, (re.compile("|".join(map(re.escape, exact))), MASK))

    def redact(text: str) -> str:
        for secret in _hidden:
            text = text.replace(secret, MASK)
        for rule, mask in rules:
            text = rule.sub(mask, text)
        for own in _own:
            text = own.sub(MASK, text)
        return text

    return redact


def hide(*secrets: str) -> None:
    """Mask these in every log from now on: credentials that are found while the program runs."""
    global _hidden
    if all(text in _hidden for text in secrets):
        return
    with _lock:
        known = {*_hidden, *(text for text in secrets if len(text) >= _MIN_SECRET)}
        _hidden = tuple(sorted(known, key=len, reverse=True))


def configure(options: LoggingConfig, home: Home, *, stream: TextIO | None = None) -> None:
    """Write the log as the config says from now on; again for another config."""
    global _own
    own = tuple(map(_compiled, options.redact_patterns))
    redact = redactor(_secrets(home)) if options.redact else str
    screen = logging.StreamHandler(stream or sys.stderr)
    screen.setFormatter(JsonLines(redact) if options.format == "json" else Text(redact))
    file = _File(home.logs / FILE, limits_of(options))
    file.setFormatter(JsonLines(redact))
    repeats = Repeats()
    for handler in (screen, file):
        handler.addFilter(repeats)
    with _lock:
        _own = own
        root = logging.getLogger()
        _remove(root)
        for handler in (screen, file):
            root.addHandler(handler)
            _installed.append(handler)
        root.setLevel(options.level.upper())
        for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "openai", "anthropic", "watchfiles"):
            logging.getLogger(noisy).setLevel(logging.WARNING)


def close() -> None:
    """Write what is left and give the files back."""
    with _lock:
        _remove(logging.getLogger())


class Repeats(logging.Filter):
    """Has an error that comes again and again told once with its traceback, then counted once a minute.

    Only what is an error or has a traceback; and no more different ones at once than can be remembered.
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._seen: OrderedDict[tuple[object, ...], tuple[float, int]] = OrderedDict()
        self._guard = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """One decision for a record, whichever of the handlers asks first."""
        decided = getattr(record, _DECIDED, None)
        if decided is None:
            decided = self._is_told(record)
            setattr(record, _DECIDED, decided)
        return bool(decided)

    def _is_told(self, record: logging.LogRecord) -> bool:
        error = None if record.exc_info is None else record.exc_info[1]
        if record.levelno < logging.ERROR and error is None:
            return True
        said = record.getMessage() if error is None else str(record.msg)
        key = (record.name, said, type(error), str(error)[:300])
        now = self._now()
        with self._guard:
            told, again = self._seen.pop(key, (None, 0))
            due = told is None or now - told >= REPEAT_SECONDS
            self._seen[key] = (now, 0) if due or told is None else (told, again + 1)
            while len(self._seen) > _MOST_SEEN:
                self._seen.popitem(last=False)
        if due and again:
            _shorten(record, again)
        return due


def _shorten(record: logging.LogRecord, again: int) -> None:
    """The same in one line, its traceback having been told."""
    error = None if record.exc_info is None else record.exc_info[1]
    why = "" if error is None else f": {error}"
    record.msg = f"{record.getMessage()}{why} (the same error {again} times more)"
    record.args, record.exc_info, record.exc_text = (), None, None


class Text(logging.Formatter):
    """One line for a person; a traceback follows it."""

    def __init__(self, redact: Redact) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s  %(message)s")
        self._redact = redact

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return iso(int(record.created * 1000))

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record)[:MAX_TEXT])


class JsonLines(logging.Formatter):
    """One JSON object a line; `extra={"data": {...}}` adds fields."""

    def __init__(self, redact: Redact) -> None:
        super().__init__()
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        body: dict[str, Any] = {
            "ts": iso(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage()[:MAX_TEXT],
            **_trace(),
            **getattr(record, "data", {}),
        }
        if record.exc_info:
            body["exception"] = self.formatException(record.exc_info)[-MAX_TEXT:]
        return json.dumps(self._told(body), ensure_ascii=True)

    def _told(self, value: Any) -> Any:
        """However deep it lies; what JSON does not know is told as text."""
        if isinstance(value, Mapping):
            return {self._redact(str(name)): self._told(item) for name, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._told(item) for item in value]
        plain = value is None or isinstance(value, bool | int | float)
        return value if plain else self._redact(str(value))


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a file may grow, how many older parts of it stay, and for how long."""

    max_bytes: int
    keep_files: int
    keep_days: int


def limits_of(options: LoggingConfig) -> Limits:
    return Limits(options.max_bytes, options.keep_files, options.keep_days)


def append_rotated(path: Path, data: bytes, limits: Limits, now: int) -> None:
    """Add to a file that is for its owner only; one that would grow too large becomes `.1`, that `.2`, …

    Opened each time, so that whoever else writes there, or removes it, is never in the way.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        size = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if size and size + len(data) > limits.max_bytes:
        _rotate(path, limits, now)
    with open(path, "ab", opener=private_opener) as file:
        file.write(data)


def parts_of(path: Path) -> list[Path]:
    """The file and its older parts, the oldest first."""
    older = [part for part in path.parent.glob(f"{path.name}.*") if part.name[len(path.name) + 1 :].isdigit()]
    older.sort(key=lambda part: -int(part.name.rpartition(".")[2]))
    return [*older, *([path] if path.is_file() else [])]


def sweep(folder: Path, options: LoggingConfig, now: int) -> int:
    """Remove what nobody has written to for too long, then the oldest, until the rest is small enough."""
    found = sorted(_sizes(folder), key=lambda one: one[1])
    total = sum(size for _, _, size in found)
    removed = 0
    for path, written, size in found:
        if written >= now - options.keep_days * DAY_MS and total <= options.total_bytes:
            break
        with suppress(OSError):
            path.unlink()
            removed += 1
            total -= size
    return removed


def _sizes(folder: Path) -> Iterator[tuple[Path, float, int]]:
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            about = path.lstat()
            if path.is_file() and not path.is_symlink():
                yield path, about.st_mtime * 1000, about.st_size


def _rotate(path: Path, limits: Limits, now: int) -> None:
    """Another process may be at it too: what is gone by now is no trouble."""
    with suppress(FileNotFoundError):
        for part in parts_of(path)[:-1]:
            number = int(part.name.rpartition(".")[2])
            old = part.stat().st_mtime * 1000 < now - limits.keep_days * DAY_MS
            if number >= limits.keep_files or old:
                part.unlink()
            else:
                part.rename(path.with_name(f"{path.name}.{number + 1}"))
        path.rename(path.with_name(f"{path.name}.1"))


class _File(logging.Handler):
    """A full disk must not stop the program, nor fill the screen with its complaints."""

    def __init__(self, path: Path, limits: Limits) -> None:
        super().__init__()
        self._path = path
        self._limits = limits

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            data = f"{self.format(record)}\n".encode()
            append_rotated(self._path, data, self._limits, int(time.time() * 1000))


_lock = threading.Lock()
_installed: list[logging.Handler] = []
_hidden: tuple[str, ...] = ()
_own: tuple[re.Pattern[str], ...] = ()


def _remove(root: logging.Logger) -> None:
    while _installed:
        handler = _installed.pop()
        root.removeHandler(handler)
        handler.close()


def _secrets(home: Home) -> list[str]:
    return [home.secret(name) for name in _KNOWN_SECRETS] + [os.environ.get("HOLDFAST_TOKEN", "")]


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"logging.redactPatterns: {pattern[:60]!r} is not a regular expression: {error}",
            hint="Correct it in the config.",
        ) from error


def _trace() -> dict[str, str]:
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return {"traceId": f"{context.trace_id:032x}"} if context.is_valid else {}
