"""What goes along with a delegate: a file beside the store, written first, removed at its record's end."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from holdfast.errors import InvalidInput, NotFound, TooLarge

MAX_BYTES: Final = 8 * 1024 * 1024
MOST: Final = 50
_FRESH_SECONDS: Final = 3_600
_NAME: Final = re.compile(r"[^/\\\x00-\x1f]{1,255}")


@dataclass(frozen=True, slots=True)
class Attachment:
    """One file for a delegate; `name` is a bare file name."""

    name: str
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"
    mime_type: str | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in (".", ".."):
            raise InvalidInput(f"not a file name: {self.name[:80]!r}", hint="Use a name without a path.")
        if self.encoding == "base64":
            try:
                base64.b64decode(self.content, validate=True)
            except (binascii.Error, ValueError) as error:
                raise InvalidInput(
                    f"{self.name[:80]!r} is not base64", hint='Use encoding "utf8".'
                ) from error

    @property
    def data(self) -> bytes:
        if self.encoding == "base64":
            return base64.b64decode(self.content)
        return self.content.encode("utf-8", "surrogatepass")


class Payloads:
    """A folder of them, one file for each record."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, record_id: str, attachments: Sequence[Attachment]) -> None:
        """On disk before this returns; a repeat writes the same."""
        data = json.dumps([asdict(one) for one in attachments]).encode()
        if len(data) > MAX_BYTES or len(attachments) > MOST:
            raise TooLarge(
                f"the attachments have {len(data):,} bytes; {MAX_BYTES:,} are the most",
                hint="Write large things to a file in the workspace and name it in the task.",
            )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self._path(record_id).with_suffix(".partial")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path(record_id))

    def read(self, record_id: str) -> tuple[Attachment, ...]:
        try:
            found = json.loads(self._path(record_id).read_bytes())
        except FileNotFoundError as error:
            raise NotFound("the attachments of this delegate are gone", code="attachments_gone") from error
        return tuple(Attachment(**one) for one in found)

    def ids(self) -> list[str]:
        """The records whose attachments are here."""
        return [path.stem for path in self._folder.glob("*.json")]

    def is_old(self, record_id: str) -> bool:
        """Whether they were not written just now: then their record is there, if it ever will be."""
        try:
            return self._path(record_id).stat().st_mtime < time.time() - _FRESH_SECONDS
        except FileNotFoundError:
            return False

    def scrub(self, record_ids: Iterable[str]) -> None:
        for id_ in record_ids:
            self._path(id_).unlink(missing_ok=True)

    def _path(self, record_id: str) -> Path:
        return self._folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', record_id)}.json"
