"""The qmd program: run over its collections, and the transcripts that it is given to search.

It wants every word of a line to occur. Of a question, that is nearly never so: hence one line with all of
its telling words, and further ones with fewer, which it joins by rank. What it answers is read strictly: a
list of results, or no answer at all.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from holdfast.clock import DAY_MS, Clock
from holdfast.config.memory import TranscriptIndexing
from holdfast.log import SYSTEM, Session, Store, Tx, changes, entries, sessions
from holdfast.log.transfer import export_markdown
from holdfast.memory.backend import BackendFailed
from holdfast.memory.folding import fold
from holdfast.memory.stopwords import ENGLISH, GERMAN
from holdfast.memory.text import language_of

MAX_LINES: Final = 16
_MAX_WORDS: Final = 12
_WORD: Final = re.compile(r"[^\W_]+(?:['’._/\-]{1,2}[^\W_]+)*")
_ELISION: Final = re.compile(r"['’](?:s|re|ve|ll|d|m|t)$", re.IGNORECASE)
_STOPS: Final = {"english": ENGLISH, "german": GERMAN}


def keywords(question: str) -> list[str]:
    """The telling words, each once, in order; all of them where the question has nothing but small words."""
    found = [_ELISION.sub("", word) for word in _WORD.findall(question)]
    stops = _STOPS[language_of(question)]
    telling = [word for word in found if fold(word) not in stops]
    return list({fold(word): word for word in telling or found}.values())


def query_document(question: str, *, vectors: bool = False) -> str:
    """Lines for `qmd query`; the one for meaning only where there are vectors to compare with."""
    words = [_quoted(word) for word in keywords(question)[:_MAX_WORDS]]
    pairs = [f"{one} {two}" for one, two in pairwise(words)]
    longest_first = sorted(words, key=len, reverse=True)
    lines = list(dict.fromkeys([" ".join(words), *longest_first, *pairs]))
    meaning = [f"vec: {_plain(question)}"] if vectors and _plain(question) else []
    return "\n".join([*meaning, *(f"lex: {line}" for line in lines[:MAX_LINES] if line)])


def _quoted(word: str) -> str:
    """Identifiers and paths are looked for as they stand."""
    return word if word.isalnum() else f'"{word}"'


def _plain(question: str) -> str:
    """One line in which nothing is taken for an operator."""
    return re.sub(r"(?<!\w)-+|[\"\s]+", " ", question).strip()


MAX_OUTPUT: Final = 4 * 1024 * 1024
_TAIL: Final = 2_000
_READ: Final = 65_536
_INHERITED: Final = frozenset({"PATH", "HOME", "USER", "LANG", "TMPDIR", "LD_LIBRARY_PATH"})
_INHERITED_STARTS: Final = (
    "LC_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT",
    "NODE_EXTRA_CA",
    "HF_HOME",
)


class QmdFailed(BackendFailed):
    """`qmd` is not there, ended badly, took too long or gave something that is no answer."""

    code = "qmd_failed"


@dataclass(frozen=True, slots=True)
class QmdProgram:
    """One agent's `qmd`: its config and index lie in `folder` and nowhere else."""

    command: str
    folder: Path

    def run(self, *args: str, timeout: float) -> str:
        """What the command prints. Whatever goes wrong is `QmdFailed`, and then nothing of it still runs."""
        self._prepare()
        process = self._start(args)
        try:
            out, told = _collect(process, time.monotonic() + timeout, f"qmd {args[0]}", timeout)
        finally:
            _end(process)
        if process.returncode != 0:
            raise QmdFailed(f"qmd {args[0]} ended with {process.returncode}{_last_line(told)}")
        return out.decode("utf-8", "replace")

    def environment(self, env: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Own folders, no colours, and none of the secrets that this process may have in its own."""
        kept = {k: v for k, v in env.items() if k in _INHERITED or k.upper().startswith(_INHERITED_STARTS)}
        own = {"XDG_CONFIG_HOME": str(self._config), "XDG_CACHE_HOME": str(self._cache), "NO_COLOR": "1"}
        return {**kept, **own}

    @property
    def _config(self) -> Path:
        return self.folder / "xdg-config"

    @property
    def _cache(self) -> Path:
        return self.folder / "xdg-cache"

    def _prepare(self) -> None:
        """Make the folders; models that the user has already are shared, not fetched once an agent."""
        try:
            for place in (self._config, self._cache / "qmd"):
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            models, ours = Path.home() / ".cache" / "qmd" / "models", self._cache / "qmd" / "models"
            if models.is_dir():
                with contextlib.suppress(FileExistsError):
                    ours.symlink_to(models)
        except OSError as error:
            raise QmdFailed(f"the folder of qmd cannot be used: {error.strerror}") from error

    def _start(self, args: tuple[str, ...]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                [os.path.expanduser(self.command), *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise QmdFailed(
                f"the program {self.command!r} cannot be run: {getattr(error, 'strerror', None) or error}",
                hint="Install qmd (npm, @tobilu/qmd), or set memory.qmd.command to where it is.",
            ) from error


def _collect(
    process: subprocess.Popen[bytes], deadline: float, name: str, timeout: float
) -> tuple[bytes, bytes]:
    """What it prints until it ends, and the end of what it says beside it."""
    out, told = bytearray(), bytearray()
    assert process.stdout is not None
    assert process.stderr is not None
    with selectors.DefaultSelector() as pipes:
        pipes.register(process.stdout, selectors.EVENT_READ, out)
        pipes.register(process.stderr, selectors.EVENT_READ, told)
        while pipes.get_map():
            left = deadline - time.monotonic()
            ready = pipes.select(left) if left > 0 else []
            if not ready:
                raise QmdFailed(f"{name} did not end within {round(timeout * 1000)} ms")
            for key, _ in ready:
                piece = os.read(key.fd, _READ)
                key.data.extend(piece)
                if not piece:
                    pipes.unregister(key.fileobj)
            if len(out) > MAX_OUTPUT:
                raise QmdFailed(f"{name} printed more than {MAX_OUTPUT} bytes")
            del told[:-_TAIL]
    try:
        process.wait(max(deadline - time.monotonic(), 0.05))
    except subprocess.TimeoutExpired as error:
        raise QmdFailed(f"{name} did not end within {round(timeout * 1000)} ms") from error
    return bytes(out), bytes(told)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing behind: what still runs of its group is killed, with all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    streams: tuple[IO[bytes] | None, ...] = (process.stdout, process.stderr)
    for stream in streams:
        if stream is not None:
            stream.close()


def _last_line(told: bytes) -> str:
    lines = [line.strip() for line in told.decode("utf-8", "replace").splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""


_PLACE: Final = re.compile(r"qmd://([^/]+)/(.+)", re.DOTALL)
_HEADER: Final = re.compile(r"@@ -(\d{1,9}),(\d{1,9})(?: @@)?[^\n]*(?:\n|$)")
_LISTED: Final = re.compile(r"^(\S+) \(qmd://", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class QmdHit:
    """One result as `qmd` tells it: a file of a collection, and the lines around what matched."""

    docid: str
    collection: str
    path: str
    score: float
    snippet: str
    body: str = ""

    def words(self) -> tuple[str, int | None]:
        """What to show, and the line that it begins with; none where `qmd` did not tell it."""
        header = _HEADER.match(self.snippet)
        if header is not None:
            return self.snippet[header.end() :], max(int(header[1]), 1)
        return (self.body, 1) if self.body else (self.snippet.strip(), None)


def hits_from(output: str) -> list[QmdHit]:
    """The results in what `qmd query --json` printed."""
    try:
        rows = json.loads(output)
    except ValueError as error:
        raise QmdFailed(f"qmd query printed no JSON: {output.strip()[:80]!r}") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise QmdFailed("qmd query printed something other than a list of results")
    return [_hit(row) for row in rows]


def collections_from(output: str) -> frozenset[str]:
    """The names in what `qmd collection list` printed."""
    return frozenset(_LISTED.findall(output))


def _hit(row: Mapping[str, Any]) -> QmdHit:
    place = _PLACE.fullmatch(_text(row, "file", needed=True))
    score = row.get("score")
    if (
        place is None
        or isinstance(score, bool)
        or not isinstance(score, int | float)
        or not math.isfinite(score)
    ):
        raise QmdFailed(f"qmd query printed a result without its file or score: {str(dict(row))[:80]}")
    return QmdHit(
        docid=_text(row, "docid"),
        collection=place[1],
        path=place[2],
        score=min(max(float(score), 0.0), 1.0),
        snippet=_text(row, "snippet"),
        body=_text(row, "body"),
    )


def _text(row: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
    value = row.get(name, None if needed else "")
    if not isinstance(value, str):
        raise QmdFailed(f"qmd query printed a result whose {name} is no text")
    return value


SESSIONS: Final = "sessions"
QUIET_MS: Final = 300_000
_PAGE: Final = 500
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Exported:
    position: int
    at: int


class SessionExports:
    """One agent's conversations in `folder`; what fell out of the retention or was deleted leaves it."""

    def __init__(self, store: Store, agent: str, folder: Path, clock: Clock) -> None:
        self._store = store
        self._agent = agent
        self._folder = folder
        self._notes = folder.parent / "sessions.json"
        self._clock = clock

    def refresh(self, rules: TranscriptIndexing) -> int:
        """Write what has grown by enough, or is quiet by now; returns how many files changed."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        known, seq = self._read_notes()
        with self._store.read(SYSTEM) as tx:
            kept = {s.id: s for s in self._kept(tx, rules)} if rules.enabled else {}
            touched, seq = self._touched(tx, seq)
            due = [s for s in kept.values() if self._is_due(tx, s, known.get(s.id), touched, rules)]
        for session in due:
            known[session.id] = self._write(session)
        gone = self._remove_all_but(kept)
        self._write_notes({id_: note for id_, note in known.items() if id_ in kept}, seq)
        return len(due) + gone

    def _kept(self, tx: Tx, rules: TranscriptIndexing) -> Iterable[Session]:
        """The agent's sessions within the retention, the latest first."""
        since = self._clock.now() - rules.retention_days * DAY_MS if rules.retention_days else 0
        for offset in range(0, _MOST, _PAGE):
            page = sessions.listing(
                tx, status=None, agent_ids=frozenset((self._agent,)), limit=_PAGE, offset=offset
            )
            yield from (session for session in page if session.updated_at >= since)
            if len(page) < _PAGE or page[-1].updated_at < since:
                return

    def _is_due(
        self,
        tx: Tx,
        session: Session,
        before: _Exported | None,
        touched: frozenset[str] | None,
        rules: TranscriptIndexing,
    ) -> bool:
        if before is None or touched is None or session.id in touched:
            return True
        new = entries.transcript(tx, session.id, after=before.position, limit=rules.delta_messages)
        grown = sum(len(entry.content.encode()) for entry in new)
        quiet = self._clock.now() - session.updated_at >= QUIET_MS
        return bool(new) and (quiet or len(new) >= rules.delta_messages or grown >= rules.delta_bytes)

    def _touched(self, tx: Tx, seq: int | None) -> tuple[frozenset[str] | None, int]:
        """Sessions of which something was corrected or deleted since; None: it cannot be told any more."""
        low, high = changes.bounds(tx)
        if seq is None or seq < low - 1 or seq > high:
            return None, high
        ids: set[str] = set()
        while batch := changes.since(tx, seq):
            ids |= {c.entity_id for c in batch if c.type in ("log.patched", "log.deleted")}
            seq = batch[-1].seq
        found = entries.get_many(tx, sorted(ids)) if ids else []
        return frozenset(entry.session_id for entry in found if entry.session_id is not None), seq

    def _write(self, session: Session) -> _Exported:
        """The file appears whole or not at all."""
        with self._store.read(SYSTEM) as tx:
            head = entries.head(tx)
        draft = self._folder / f".{session.id}.draft"
        with draft.open("wb") as out:
            export_markdown(self._store, session, out)
        os.replace(draft, self._folder / f"{session.id}.md")
        return _Exported(head, self._clock.now())

    def _remove_all_but(self, kept: Iterable[str]) -> int:
        wanted = {f"{id_}.md" for id_ in kept}
        surplus = [path for path in self._folder.iterdir() if path.is_file() and path.name not in wanted]
        for path in surplus:
            path.unlink(missing_ok=True)
        return len(surplus)

    def _read_notes(self) -> tuple[dict[str, _Exported], int | None]:
        try:
            told = json.loads(self._notes.read_text())
            return {id_: _Exported(**note) for id_, note in told["sessions"].items()}, int(told["seq"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}, None

    def _write_notes(self, known: dict[str, _Exported], seq: int) -> None:
        draft = self._notes.with_suffix(".draft")
        draft.write_text(json.dumps({"sessions": {i: asdict(n) for i, n in known.items()}, "seq": seq}))
        os.replace(draft, self._notes)
