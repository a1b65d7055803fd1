"""The tools that read, write and edit files."""

from __future__ import annotations

import base64
import difflib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents import safe_files
from holdfast.agents.approvals import Approval, ApprovalRequest, admit_write, requests
from holdfast.agents.approvals.bound_files import state_of
from holdfast.agents.policy import exec_settings, judge_write
from holdfast.agents.tools.checks import approved, asked_approval
from holdfast.agents.tools.outputs import PREFIX, Outputs, page_of
from holdfast.agents.tools.settings import Spot, cap_of, has_files, reach_of, tools_of
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.context import Image, Trust, neutralise
from holdfast.context.fence import neutralised_with_places
from holdfast.effects import Effect
from holdfast.errors import Forbidden, InvalidInput, TooLarge
from holdfast.home import Home
from holdfast.log import SYSTEM, Store, Threads
from holdfast.text import clip

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
            for_others=has_files,
        )

    async def run(self, caller: Caller, given: ReadInput, _: str) -> ToolOutput:
        return await self._threads(self._read, caller, given)

    def _read(self, caller: Caller, given: ReadInput) -> ToolOutput:
        if given.path.startswith(PREFIX):
            kept = self._outputs.find(caller.agent_id, caller.session.id, given.path)
            file = safe_files.opened(kept.path.parent, (kept.path.name,))
            return _text(caller, given, file, kept.trust)
        spot = reach_of(caller, self._home).spot(given.path)
        facts = safe_files.kind_at(spot.root.path, spot.steps)
        if facts is not None and stat.S_ISDIR(facts.st_mode):
            return _folder(spot)
        return _text(caller, given, safe_files.opened(spot.root.path, spot.steps), Trust.TOOL)


def _folder(spot: Spot) -> ToolOutput:
    names = safe_files.listed(spot.root.path, spot.steps, MOST_NAMES)
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


_MOST_LINES: Final = 5_000
_SHOWN: Final = 400
_NEAR: Final = 0.6


@dataclass(frozen=True, slots=True)
class Edited:
    text: str
    count: int
    line: int


def replaced(text: str, old: str, new: str, *, every: bool = False) -> Edited:
    """The text with `old` replaced; it must be there exactly once unless `every` is asked for.

    Lines may be ended otherwise than in the file. Markers that were defused and characters that were made
    visible when the file was shown are found again, and lines that differ in that alone are put back.
    """
    if not old:
        raise InvalidInput("oldText is empty", hint="Quote what is to be replaced, or use file_write.")
    if old == new:
        raise InvalidInput("oldText and newText are the same", code="nothing_to_change")
    for wanted, given in _readings(text, old, new):
        at = list(_places(text, wanted))
        if at:
            return _put(text, wanted, given, at, every=every)
    shadow, places = neutralised_with_places(text)
    found = list(_places(shadow, old)) if shadow != text else []
    pieces = [text[places[at] : places[at + len(old)]] for at in found]
    if pieces and len(set(pieces)) == 1:
        at = [places[each] for each in found]
        return _put(text, pieces[0], _restored(pieces[0], new), at, every=every)
    if pieces:
        raise InvalidInput(
            "oldText looks the same in several places of the file, and is not",
            code="ambiguous_match",
            hint="Quote more of what stands around it.",
        )
    raise InvalidInput("oldText is not in the file", code="no_match", hint=near(text, old))


def near(text: str, old: str) -> str:
    """Where the file comes closest to a text that it does not hold."""
    lines, wanted = text.splitlines()[:_MOST_LINES], old.splitlines() or [old]
    loose, sought = [_loose(line) for line in lines], [_loose(line) for line in wanted]
    for start in range(len(lines) - len(wanted) + 1):
        if loose[start : start + len(wanted)] == sought:
            return _shown("It differs in blanks alone from", lines, start, len(wanted))
    target = max(sought, key=len)
    best = difflib.get_close_matches(target, loose, n=1, cutoff=_NEAR) if target else []
    if not best:
        return "Nothing like it is there; read the file again."
    return _shown("The nearest is", lines, max(0, loose.index(best[0]) - sought.index(target)), len(wanted))


def _readings(text: str, old: str, new: str) -> Iterator[tuple[str, str]]:
    yield old, new
    if "\r\n" in text and "\r\n" not in old:
        yield old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")


def _places(text: str, piece: str) -> Iterator[int]:
    at = text.find(piece)
    while at >= 0:
        yield at
        at = text.find(piece, at + len(piece))


def _put(text: str, old: str, new: str, at: list[int], *, every: bool) -> Edited:
    lines = [text.count("\n", 0, place) + 1 for place in at[:10]]
    if len(at) > 1 and not every:
        raise InvalidInput(
            f"oldText is in the file {len(at)} times, at lines {', '.join(map(str, lines))}",
            code="ambiguous_match",
            hint="Quote more of what stands around it, or set replaceAll.",
        )
    parts, end = [], 0
    for place in at:
        parts += [text[end:place], new]
        end = place + len(old)
    return Edited("".join([*parts, text[end:]]), len(at), lines[0])


def _restored(real: str, new: str) -> str:
    known = {neutralise(line): line for line in real.splitlines(keepends=True)}
    known |= {line.rstrip("\n"): was.rstrip("\n") for line, was in known.items()}
    return "".join(known.get(line, line) for line in new.splitlines(keepends=True))


def _loose(line: str) -> str:
    return " ".join(line.split())[:_SHOWN]


def _shown(lead: str, lines: list[str], start: int, count: int) -> str:
    until = min(len(lines), start + count)
    piece = "\n".join(lines[start:until])
    return f"{lead} lines {start + 1} to {until}:\n{clip(piece, _SHOWN)}"


MOST_CHARS: Final = 2_000_000
MOST_SHOWN: Final = 64_000
MOST_EDITED_BYTES: Final = 4 * 1024**2

FilePath = Annotated[str, Field(min_length=1, max_length=4096, description="A path in the workspace.")]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")
    path: FilePath


class WriteInput(_Input):
    """Write a whole file; one that is there is replaced, folders that are missing are made."""

    content: Annotated[str, Field(max_length=MOST_CHARS, description="The whole new content.")]


class EditInput(_Input):
    """Replace a piece of a file. oldText must be in it exactly, and once unless replaceAll is set."""

    oldText: Annotated[str, Field(min_length=1, max_length=MOST_CHARS, description="What stands there now.")]  # noqa: N815
    newText: Annotated[str, Field(max_length=MOST_CHARS, description="What is to stand there.")]  # noqa: N815
    replaceAll: Annotated[bool, Field(description="Every place, not just one.")] = False  # noqa: N815


class DeleteInput(_Input):
    """Delete a file or an empty folder. It cannot be taken back."""


class FileWriting:
    """Files that tell programs what to run are written only once a person let it, as for a command."""

    def __init__(self, home: Home, threads: Threads, store: Store) -> None:
        self._home = home
        self._threads = threads
        self._store = store

    def tools(self) -> tuple[Tool[Any], ...]:
        return (
            Tool(
                name="file_write",
                input=WriteInput,
                run=self.write,
                effect=Effect.OWN,
                repeatable=False,
                for_others=has_files,
            ),
            Tool(
                name="file_edit",
                input=EditInput,
                run=self.edit,
                effect=Effect.OWN,
                repeatable=False,
                for_others=has_files,
            ),
            Tool(
                name="file_delete",
                input=DeleteInput,
                run=self.delete,
                effect=Effect.OWN,
                repeatable=False,
                for_others=has_files,
            ),
        )

    async def write(self, caller: Caller, given: WriteInput, _: str) -> ToolOutput:
        await self._admitted(caller, "file_write", given, f"write it whole:\n{given.content}")
        return await self._threads(self._write, caller, given)

    async def edit(self, caller: Caller, given: EditInput, _: str) -> ToolOutput:
        where = "every place" if given.replaceAll else "one place"
        shown = f"change {where}:\n--- old\n{given.oldText}\n+++ new\n{given.newText}"
        await self._admitted(caller, "file_edit", given, shown)
        return await self._threads(self._edit, caller, given)

    async def delete(self, caller: Caller, given: DeleteInput, _: str) -> ToolOutput:
        await self._admitted(caller, "file_delete", given, "delete it")
        return await self._threads(self._delete, caller, given)

    async def _admitted(self, caller: Caller, tool: str, given: _Input, change: str) -> None:
        """Come back once the file may be written; it must then still be as it was when it was asked for."""
        spot = await self._threads(self._writable, caller, given.path)
        settings = exec_settings(caller.config, caller.agent_id)
        found = judge_write(spot.steps, settings.security, settings.ask)
        if not found.protected:
            return
        if found.verdict == "ask" and len(change) > MOST_SHOWN:
            raise TooLarge(f"{found.reason}, and {len(change)} characters are too many for a person to read")
        asked = partial(_request, caller, tool, spot, change, found.reason)

        def admitted() -> Approval | None:
            request = asked()
            return self._store.run(SYSTEM, lambda tx: admit_write(tx, request, found, settings))

        approval = await self._threads(admitted)
        if found.verdict == "block":
            raise Forbidden(
                f"{found.reason}, and nobody is asked",
                code="protected_file",
                hint="Do without it; only the operator can change this (tools.exec.ask).",
            )
        if approval is not None:
            await self._approved(caller, approval, asked)

    async def _approved(
        self, caller: Caller, asked: Approval, request: Callable[[], ApprovalRequest]
    ) -> None:
        def redeemed() -> None:
            now = request()
            self._store.run(SYSTEM, lambda tx: requests.use(tx, asked.id, now))

        approval = await approved(self._store, self._threads, caller, asked, "the change")
        await self._threads(redeemed)
        caller.progress(f"approved by {approval.decided_by}", asked_approval(approval))

    def _write(self, caller: Caller, given: WriteInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        data = given.content.encode("utf-8", "replace")
        new = safe_files.write_at(spot.root.path, spot.steps, data)
        text = f"{'Wrote' if new else 'Replaced'} {spot.shown} ({len(data)} bytes)."
        return ToolOutput(text=text, details={"path": spot.shown, "bytes": len(data), "created": new})

    def _edit(self, caller: Caller, given: EditInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        with safe_files.opened(spot.root.path, spot.steps) as stream:
            before = stream.read(MOST_EDITED_BYTES + 1)
        if len(before) > MOST_EDITED_BYTES:
            raise TooLarge(
                f"{spot.shown} has more than {MOST_EDITED_BYTES} bytes", hint="Use exec, or split it."
            )
        done = replaced(_decoded(before, spot), given.oldText, given.newText, every=given.replaceAll)
        data = done.text.encode("utf-8", "replace")
        safe_files.write_at(spot.root.path, spot.steps, data, expected=before)
        places = "one place" if done.count == 1 else f"{done.count} places"
        text = f"Changed {spot.shown} in {places}, first at line {done.line}."
        return ToolOutput(text=text, details={"path": spot.shown, "count": done.count, "line": done.line})

    def _delete(self, caller: Caller, given: DeleteInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        what = safe_files.delete_at(spot.root.path, spot.steps)
        return ToolOutput(text=f"Deleted the {what} {spot.shown}.", details={"path": spot.shown})

    def _writable(self, caller: Caller, path: str) -> Spot:
        spot = reach_of(caller, self._home).spot(path)
        if not spot.steps:
            raise InvalidInput(f"{path[:80]!r} is the folder itself", code="path_refused")
        if not spot.root.writable:
            raise Forbidden(
                f"{path[:200]!r} is in the workspace, which this sandbox may only read",
                code="read_only_workspace",
                hint="Write below /scratch instead.",
            )
        return spot


def _request(caller: Caller, tool: str, spot: Spot, change: str, reason: str) -> ApprovalRequest:
    """What a person is asked, with the file as it is at this moment. Reads it."""
    return ApprovalRequest(
        agent_id=caller.agent_id,
        tool=tool,
        command=f"{spot.shown}: {change}",
        arguments={"path": str(spot.real)},
        reason=reason,
        session_key=caller.session.key,
        turn_id=caller.turn_id,
        files={spot.shown: state_of(spot.real)},
        why_not_always="what is written there is looked at each time",
    )


def _decoded(data: bytes, spot: Spot) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{spot.shown} is not UTF-8 text", code="binary_file") from error
