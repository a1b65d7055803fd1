"""`file_read`: text by lines and pages, folders by name, pictures for models that can look at them."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, BinaryIO, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents import opening
from holdfast.agents.tools.caps import cap_of
from holdfast.agents.tools.outputs import PREFIX, Outputs
from holdfast.agents.tools.paging import page_of
from holdfast.agents.tools.reach import Spot, reach_of
from holdfast.agents.tools.settings import has_folder, tools_of
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.context import Image, Trust
from holdfast.effects import Effect
from holdfast.errors import InvalidInput, TooLarge
from holdfast.home import Home
from holdfast.log import Threads

MOST_BYTES: Final = 64 * 1024**2
MOST_NAMES: Final = 500
_SNIFFED: Final = 8_192
_FOR_NOTE: Final = 120
_PICTURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


class ReadInput(BaseModel):
    """Read a file of the workspace, a kept output (output:…) or the names in a folder. Long text comes in
    pages: the note at the end says how to read on."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    path: Annotated[str, Field(min_length=1, max_length=4096, description="A path in the workspace.")]
    start: Annotated[int, Field(alias="from", ge=1, description="First line.")] = 1
    lines: Annotated[int | None, Field(ge=1, le=100_000, description="Lines at most.")] = None
    offset: Annotated[int, Field(ge=0, description="Characters of the first line to pass over.")] = 0


class FileReading:
    def __init__(self, home: Home, threads: Threads, outputs: Outputs) -> None:
        self._home = home
        self._threads = threads
        self._outputs = outputs

    def tool(self) -> Tool[ReadInput]:
        return Tool(
            name="file_read",
            input=ReadInput,
            run=self.run,
            effect=Effect.NONE,
            repeatable=True,
            for_others=has_folder,
        )

    async def run(self, caller: Caller, given: ReadInput, _: str) -> ToolOutput:
        return await self._threads(self._read, caller, given)

    def _read(self, caller: Caller, given: ReadInput) -> ToolOutput:
        if given.path.startswith(PREFIX):
            kept = self._outputs.find(caller.agent_id, caller.session.id, given.path)
            file = opening.opened(kept.path.parent, (kept.path.name,))
            return _text(caller, given, file, kept.trust)
        spot = reach_of(caller, self._home).spot(given.path)
        facts = opening.kind_at(spot.root.path, spot.steps)
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            return _folder(spot)
        return _text(caller, given, opening.opened(spot.root.path, spot.steps), Trust.TOOL)


def _folder(spot: Spot) -> ToolOutput:
    names = opening.listed(spot.root.path, spot.steps, MOST_NAMES)
    more = f"\n[only the first {MOST_NAMES} are shown]" if len(names) > MOST_NAMES else ""
    shown = "\n".join(names[:MOST_NAMES])
    return ToolOutput(text=f"{spot.shown} is a folder:\n{shown or '[it is empty]'}{more}")


def _text(
    caller: Caller, given: ReadInput, file: AbstractContextManager[BinaryIO], trust: Trust
) -> ToolOutput:
    settings = tools_of(caller).fs
    with file as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(_SNIFFED)
        picture = _picture(head)
        if picture is not None:
            return _seen(caller, given.path, picture, head + stream.read(settings.max_read_bytes + 1), size)
        if b"\0" in head:
            raise InvalidInput(f"{given.path!r} is not text ({size} bytes)", code="binary_file")
        if size > MOST_BYTES:
            raise TooLarge(
                f"{given.path!r} has {size} bytes, which is too much to page through",
                hint="Take a part of it with exec, such as sed -n or tail.",
            )
        stream.seek(0)
        most = max(1, min(cap_of(caller), settings.max_read_bytes) - _FOR_NOTE)
        page = page_of(_lines(stream), start=given.start, count=given.lines, offset=given.offset, most=most)
    if page.total == 0:
        return ToolOutput(text="[the file is empty]", trust=trust)
    if given.start > page.total:
        raise InvalidInput(f"{given.path!r} has only {page.total} lines", code="past_the_end")
    gap = "" if page.text.endswith("\n") or not page.note else "\n"
    details = {"path": given.path, "lines": page.total, "bytes": size}
    return ToolOutput(text=f"{page.text}{gap}{page.note}", trust=trust, details=details)


def _lines(stream: BinaryIO) -> Iterator[str]:
    for raw in stream:
        yield raw.decode("utf-8", "replace")


def _picture(head: bytes) -> str | None:
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for magic, mime in _PICTURES if head.startswith(magic)), None)


def _seen(caller: Caller, path: str, mime: str, data: bytes, size: int) -> ToolOutput:
    most = tools_of(caller).fs.max_read_bytes
    about = f"{Path(path).name}: {mime}, {size} bytes"
    if not caller.images:
        return ToolOutput(text=f"[{about}; this model cannot look at pictures]")
    if size > most:
        raise TooLarge(f"{about}: more than {most} bytes", hint="Make it smaller first.")
    picture = Image(mime, base64.b64encode(data).decode())
    return ToolOutput(text=f"[{about}]", images=(picture,))
