"""Attachments: files with messages, kept once by their hash, and only of kinds that are harmless to show.

A file's kind is what its first bytes say. What a sender or a file name claims must agree with it. A file of
an entry is read by whoever may read the entry, any other by its own audience.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from holdfast.board.tables import attachments as table
from holdfast.clock import Millis
from holdfast.errors import InvalidInput, NotFound, TooLarge, Unavailable
from holdfast.ids import uuid7
from holdfast.log import FOR_OWNER, Audience, Tx, entries
from holdfast.text import clean_text

MAX_NAME: Final = 160
MAX_PER_ENTRY: Final = 100
CHUNK: Final = 64 * 1024

_MAGIC: Final[dict[str, tuple[tuple[int, bytes], ...]]] = {
    "image/png": ((0, b"\x89PNG\r\n\x1a\n"),),
    "image/jpeg": ((0, b"\xff\xd8\xff"),),
    "image/gif": ((0, b"GIF87a"), (0, b"GIF89a")),
    "image/webp": ((8, b"WEBP"),),
    "application/pdf": ((0, b"%PDF-"),),
    "application/zip": ((0, b"PK\x03\x04"), (0, b"PK\x05\x06")),
    "audio/mpeg": ((0, b"ID3"), (0, b"\xff\xfb"), (0, b"\xff\xf3"), (0, b"\xff\xf2")),
    "audio/wav": ((8, b"WAVE"),),
    "audio/ogg": ((0, b"OggS"),),
    "video/mp4": ((4, b"ftyp"),),
    "video/webm": ((0, b"\x1aE\xdf\xa3"),),
}
_TEXTS: Final = frozenset(("text/plain", "text/markdown", "text/csv", "application/json"))
ALLOWED: Final = frozenset(_MAGIC) | _TEXTS
UNKNOWN: Final = "application/octet-stream"
_ALIASES: Final = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav"}


@dataclass(frozen=True, slots=True)
class Upload:
    """A file as it was sent."""

    file_name: str
    mime_type: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    id: str
    file_name: str
    mime_type: str
    size_bytes: int
    sha256: str
    created_at: Millis
    audience: Audience = FOR_OWNER
    entry_id: str | None = None
    space_id: str | None = None


class Files:
    """The folder in which contents lie under their hash: the same content is kept once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, sha256: str) -> Path:
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            raise InvalidInput("not a hash")
        return self._folder / sha256[:2] / sha256

    def put(self, data: bytes) -> str:
        """Keep a content; it appears whole or not at all."""
        sha256 = hashlib.sha256(data).hexdigest()
        path = self.path(sha256)
        if path.exists():
            return sha256
        draft = path.with_name(f".{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with draft.open("xb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            draft.chmod(0o600)
            draft.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise Unavailable(f"the file cannot be kept: {error.strerror}", code="home_unusable") from error
        return sha256

    def read(self, sha256: str) -> Iterator[bytes]:
        """The content in pieces; `NotFound` before the first if it is gone."""
        try:
            source = self.path(sha256).open("rb")
        except OSError as error:
            raise NotFound("the file of this attachment is gone", code="attachment_gone") from error
        return self._pieces(source)

    def drop(self, sha256: str) -> None:
        self.path(sha256).unlink(missing_ok=True)

    @staticmethod
    def _pieces(source: contextlib.AbstractContextManager[object]) -> Iterator[bytes]:
        with source as file:
            while piece := file.read(CHUNK):  # type: ignore[attr-defined]
                yield piece


def identified(upload: Upload, *, max_bytes: int) -> Upload:
    """Any file, with a safe name and the kind that its bytes show; where they show none, it is only saved."""
    _require_size(upload, max_bytes)
    kinds = (kind for kind in _MAGIC if _is_kind(kind, upload.data))
    otherwise = "text/plain" if _is_text(upload.data) else UNKNOWN
    return Upload(safe_name(upload.file_name), next(kinds, otherwise), upload.data)


def _require_size(upload: Upload, max_bytes: int) -> None:
    if len(upload.data) > max_bytes:
        raise TooLarge(f"a file has at most {max_bytes} bytes", hint="Make it smaller, or link to it.")
    if not upload.data:
        raise InvalidInput("the file is empty", code="empty_file")


def check(upload: Upload, *, max_bytes: int) -> Upload:
    """The upload with a safe name and its true kind, or the reason why it is not taken."""
    _require_size(upload, max_bytes)
    claimed = upload.mime_type.partition(";")[0].strip().lower()
    claimed = _ALIASES.get(claimed, claimed)
    if claimed not in ALLOWED:
        raise UnsupportedKind(f"files of type {claimed[:60]!r} are not taken", hint=f"Allowed: {_KINDS}.")
    if not _is_kind(claimed, upload.data):
        raise UnsupportedKind(f"the content is not {claimed}", hint="Send it with its true type.")
    return Upload(safe_name(upload.file_name), claimed, upload.data)


class UnsupportedKind(InvalidInput):
    code = "unsupported_media_type"
    status = 415


def safe_name(name: str) -> str:
    """A name without folders, control characters or quotes."""
    last = re.split(r"[\\/]", clean_text(name))[-1]
    kept = "".join(c for c in last if c.isprintable() and c not in '"<>|:*?').strip(" .")
    return kept[-MAX_NAME:] or "file"


def add(
    tx: Tx,
    upload: Upload,
    sha256: str,
    *,
    audience: Audience,
    space_id: str | None = None,
    entry_id: str | None = None,
) -> Attachment:
    """Note an attachment whose content is kept already; that of an entry has the entry's audience."""
    made = Attachment(
        id=f"att-{uuid7()}",
        file_name=upload.file_name,
        mime_type=upload.mime_type,
        size_bytes=len(upload.data),
        sha256=sha256,
        created_at=tx.now,
        audience=audience if entry_id is None else entries.get(tx, entry_id).audience,
        entry_id=entry_id,
        space_id=space_id,
    )
    tx.conn.execute(sa.insert(table), {c.name: getattr(made, c.name) for c in table.c})
    return made


def get(tx: Tx, id_: str) -> Attachment:
    """The attachment; one that may not be read is as good as none."""
    row = tx.conn.execute(sa.select(table).where(table.c.id == id_)).mappings().first()
    found = None if row is None else Attachment(**row)
    if found is None or not _may_read(tx, found):
        raise NotFound(f"no attachment {id_[:80]!r}", code="unknown_attachment")
    return found


def of_entry(tx: Tx, entry_id: str) -> list[Attachment]:
    """Those of an entry, if that may be read."""
    if not entries.get_many(tx, [entry_id]):
        return []
    query = sa.select(table).where(table.c.entry_id == entry_id).order_by(table.c.id)
    return [Attachment(**row) for row in tx.conn.execute(query.limit(MAX_PER_ENTRY)).mappings()]


def of_entries(tx: Tx, entry_ids: Sequence[str]) -> dict[str, list[Attachment]]:
    """Those of entries that the reader was given already."""
    found: dict[str, list[Attachment]] = {}
    query = sa.select(table).where(table.c.entry_id.in_(entry_ids)).order_by(table.c.id)
    for row in tx.conn.execute(query.limit(MAX_PER_ENTRY * len(entry_ids))).mappings():
        found.setdefault(row["entry_id"], []).append(Attachment(**row))
    return found


def bind(tx: Tx, ids: Sequence[str], entry_id: str) -> None:
    """Say to which entry attachments belong, if they may be read: from then on by whoever reads the entry."""
    audience = entries.get(tx, entry_id).audience
    own = [get(tx, id_).id for id_ in sorted(ids)]
    query = sa.update(table).where(table.c.id.in_(own))
    tx.conn.execute(query.values(entry_id=entry_id, audience=audience))


def delete(tx: Tx, id_: str) -> tuple[Attachment, bool]:
    """Forget an attachment; True when no other has the same content, which then may go too."""
    found = get(tx, id_)
    tx.conn.execute(sa.delete(table).where(table.c.id == id_))
    same = tx.conn.execute(sa.select(table.c.id).where(table.c.sha256 == found.sha256).limit(1)).first()
    return found, same is None


def _may_read(tx: Tx, found: Attachment) -> bool:
    if found.entry_id is not None:
        return bool(entries.get_many(tx, [found.entry_id]))
    return tx.reader.may_read_of(found.audience, None)


def _is_kind(kind: str, data: bytes) -> bool:
    if kind in _TEXTS:
        return _is_text(data)
    return any(data[at : at + len(mark)] == mark for at, mark in _MAGIC[kind])


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode("utf-8")
    except UnicodeDecodeError:
        return False


_KINDS: Final = ", ".join(sorted(ALLOWED))
