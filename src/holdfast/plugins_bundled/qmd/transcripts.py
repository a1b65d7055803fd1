"""Conversations as markdown files, because `qmd` reads files: one for each session, renewed as it grows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from holdfast.clock import DAY_MS, Clock
from holdfast.config.memory import TranscriptIndexing
from holdfast.log import SYSTEM, Session, Store, Tx, changes, entries, sessions
from holdfast.log.transfer import export_markdown

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
