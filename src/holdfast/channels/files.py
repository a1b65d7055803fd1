"""Files with messages. What people send is kept with their words; pictures and short texts are shown to the
model, and what the owner sends lies in the workspace too. What an agent sends comes from its workspace."""

from __future__ import annotations

import base64
import glob
import hashlib
import mimetypes
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from holdfast.agents.loop import Ask
from holdfast.agents.loop.asks import MAX_IMAGE_CHARS, MAX_IMAGES
from holdfast.board import attachments
from holdfast.board.attachments import Attachment, Files, Upload
from holdfast.channels.inbound import Inbound
from holdfast.channels.transport import File, SendFailed
from holdfast.config.board import Attachments
from holdfast.context import Image
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, TooLarge
from holdfast.ids import uuid7
from holdfast.log import Audience, Tx, entries
from holdfast.text import clip

PICTURES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
TEXTS: Final = frozenset(("text/plain", "text/markdown", "text/csv", "application/json"))
MOST_QUOTED: Final = 20_000
INBOX: Final = "inbox"
MOST_SENT: Final = 8


@dataclass(frozen=True, slots=True)
class Brought:
    """What a message brought along: the words with what is told of its files, pictures, files to keep."""

    text: str
    images: tuple[Image, ...] = ()
    kept: tuple[Upload, ...] = ()


class FileRoom:
    """Where files of messages lie, and what may be sent."""

    def __init__(
        self, folder: Path, limits: Callable[[], Attachments], workspace: Callable[[str], Path]
    ) -> None:
        self._files = Files(folder)
        self._limits = limits
        self._workspace = workspace

    @property
    def limits(self) -> Attachments:
        return self._limits()

    def bring(self, message: Inbound, text: str, agent_id: str, *, owner: bool) -> Brought:
        """Check what came with a message. Text within a file is quoted: it is nobody's instruction."""
        lines = [f"[file left out: {clip(' '.join(line.split()), 200)}]" for line in message.left_out]
        kept: list[Upload] = []
        for file in message.files:
            try:
                if len(kept) >= self.limits.max_files:
                    raise TooLarge(f"a message has at most {self.limits.max_files} files")
                upload = attachments.check(
                    Upload(file.name, file.mime, file.data), max_bytes=self.limits.max_bytes
                )
            except HoldfastError as error:
                lines.append(f"[file left out: {attachments.safe_name(file.name)}: {error.message}]")
                continue
            kept.append(upload)
            place = self._save(upload, _mark(message.key), agent_id) if owner else None
            lines.append(_told(upload, place))
        shown = "\n".join(part for part in (text, *lines) if part)
        return Brought(shown, _pictures(kept), tuple(kept))

    def attach(self, ask: Ask, words: str, sent: Sequence[Upload], agent_id: str) -> Ask:
        """A message of the pages or the API with its files: of any kind, told as on a channel, kept with its
        entry; what the owner sends is saved in the workspace then."""
        most = self.limits
        if len(sent) > most.max_files:
            raise TooLarge(f"a message has at most {most.max_files} files", code="too_many_files")
        kept = [attachments.identified(one, max_bytes=most.max_bytes) for one in sent]
        mark = _mark(ask.key or uuid7())
        places = [f"{INBOX}/{mark}-{one.file_name}" if ask.owner else None for one in kept]
        told = (_told(one, place) for one, place in zip(kept, places, strict=True))

        def enter(tx: Tx, entry_id: str) -> None:
            if ask.owner:
                for one in kept:
                    self._save(one, mark, agent_id)
            self.keep(tx, kept, entry_id, entries.get(tx, entry_id).audience)

        text = "\n".join(part for part in (words, *told) if part)
        return replace(ask, text=text, images=(*ask.images, *_pictures(kept)), with_entry=enter)

    def keep(self, tx: Tx, kept: Sequence[Upload], entry_id: str | None, heard: Audience) -> None:
        """Note the files with the words that they came with."""
        for upload in kept:
            attachments.add(tx, upload, self._files.put(upload.data), audience=heard, entry_id=entry_id)

    def forget(self, gone: Attachment, agent_id: str, *, last: bool) -> None:
        """Remove the copies of a file that was forgotten: of each the same bytes under its name, no other."""
        inbox = self._workspace(agent_id) / INBOX
        for copy in inbox.glob(f"*-{glob.escape(gone.file_name)}"):
            alike = not copy.is_symlink() and copy.stat().st_size == gone.size_bytes
            if alike and hashlib.sha256(copy.read_bytes()).hexdigest() == gone.sha256:
                copy.unlink()
        if last:
            self._files.drop(gone.sha256)

    def checked(self, files: Sequence[File]) -> tuple[Upload, ...]:
        """Files that are to stand in the log, where a browser may ask for them: only of kinds that it may."""
        most = self.limits.max_bytes
        return tuple(attachments.check(Upload(one.name, one.mime, one.data), max_bytes=most) for one in files)

    def sendable(self, workspace: Path, names: Sequence[str]) -> list[dict[str, Any]]:
        """Files of a workspace, kept for a delivery; `InvalidInput` for what cannot be sent."""
        if len(names) > MOST_SENT:
            raise InvalidInput(f"at most {MOST_SENT} files go with a message")
        return [self._sendable(workspace.resolve(), name) for name in names]

    def read(self, kept: Sequence[Any]) -> tuple[File, ...]:
        """The files of a delivery, as they were when it was posted."""
        return tuple(
            File(str(one["name"]), str(one["mime"]), b"".join(self._files.read(str(one["sha256"]))))
            for one in kept
        )

    def _sendable(self, root: Path, name: str) -> dict[str, Any]:
        path = (root / name).resolve()
        if not path.is_relative_to(root) or not path.is_file():
            raise InvalidInput(f"no file {name[:200]!r} in the workspace", code="unknown_file")
        if path.stat().st_size > self.limits.max_bytes:
            raise TooLarge(f"{path.name} has more than {self.limits.max_bytes} bytes", code="file_too_large")
        mime = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        sha256 = self._files.put(path.read_bytes())
        return {"name": path.name, "mime": mime, "sha256": sha256, "bytes": path.stat().st_size}

    def _save(self, upload: Upload, mark: str, agent_id: str) -> str:
        """Into the workspace under a name of its own: the same message again is the same file. An agent may
        have put a link in the way: nothing is written through one."""
        workspace = self._workspace(agent_id).resolve()
        place = workspace / INBOX / f"{mark}-{upload.file_name}"
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.parent.resolve() != place.parent:
            raise Forbidden(f"the folder {INBOX} leads out of the workspace", code="attachments_outside")
        draft = place.with_name(f".{secrets.token_hex(8)}")
        draft.write_bytes(upload.data)
        draft.replace(place)
        return f"{INBOX}/{place.name}"


def _mark(message_id: str) -> str:
    """Short, and of this message alone: services and callers choose ids as they like."""
    return hashlib.sha256(message_id.encode()).hexdigest()[:16]


def _told(upload: Upload, place: str | None) -> str:
    """What the model reads of a file: its name, its kind, where it lies, and a short text itself."""
    size = f"{max(1, len(upload.data) // 1024):,} kB"
    saved = "" if place is None else f", saved as {place}"
    head = f"[file: {upload.file_name}, {upload.mime_type}, {size}{saved}]"
    if upload.mime_type not in TEXTS:
        return head
    quoted = clip(upload.data.decode("utf-8", "replace"), MOST_QUOTED).replace("```", "'''")
    return f"{head}\n```\n{quoted}\n```"


def require_sendable(files: Sequence[File], most_bytes: int, channel: str) -> None:
    """A file that the service would not take is a failure at once, with the reason."""
    for file in files:
        if not most_bytes:
            raise SendFailed(f"channel {channel} takes no files", final=True)
        if len(file.data) > most_bytes:
            raise SendFailed(f"{file.name} is larger than {channel} takes ({most_bytes:,} bytes)", final=True)


def _pictures(kept: Sequence[Upload]) -> tuple[Image, ...]:
    found: list[Image] = []
    room = MAX_IMAGE_CHARS
    for upload in kept:
        data = base64.b64encode(upload.data).decode()
        if upload.mime_type in PICTURES and len(found) < MAX_IMAGES and len(data) <= room:
            found.append(Image(upload.mime_type, data))
            room -= len(data)
    return tuple(found)
