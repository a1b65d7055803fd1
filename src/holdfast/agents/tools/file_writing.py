"""`file_write`, `file_edit`, `file_delete`: whole or not at all, within what the session may write."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents import opening
from holdfast.agents.approvals import Approval, ApprovalRequest, admit_write, requests
from holdfast.agents.approvals.bound_files import state_of
from holdfast.agents.policy import exec_settings, judge_write
from holdfast.agents.tools.approving import approved, told
from holdfast.agents.tools.editing import replaced
from holdfast.agents.tools.reach import Spot, reach_of
from holdfast.agents.tools.settings import has_folder
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.effects import Effect
from holdfast.errors import Forbidden, InvalidInput, TooLarge
from holdfast.home import Home
from holdfast.log import SYSTEM, Store, Threads

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
                for_others=has_folder,
            ),
            Tool(
                name="file_edit",
                input=EditInput,
                run=self.edit,
                effect=Effect.OWN,
                repeatable=False,
                for_others=has_folder,
            ),
            Tool(
                name="file_delete",
                input=DeleteInput,
                run=self.delete,
                effect=Effect.OWN,
                repeatable=False,
                for_others=has_folder,
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
        caller.progress(f"approved by {approval.decided_by}", told(approval))

    def _write(self, caller: Caller, given: WriteInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        data = given.content.encode("utf-8", "replace")
        new = opening.write_at(spot.root.path, spot.steps, data)
        text = f"{'Wrote' if new else 'Replaced'} {spot.shown} ({len(data)} bytes)."
        return ToolOutput(text=text, details={"path": spot.shown, "bytes": len(data), "created": new})

    def _edit(self, caller: Caller, given: EditInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        with opening.opened(spot.root.path, spot.steps) as stream:
            before = stream.read(MOST_EDITED_BYTES + 1)
        if len(before) > MOST_EDITED_BYTES:
            raise TooLarge(
                f"{spot.shown} has more than {MOST_EDITED_BYTES} bytes", hint="Use exec, or split it."
            )
        done = replaced(_decoded(before, spot), given.oldText, given.newText, every=given.replaceAll)
        data = done.text.encode("utf-8", "replace")
        opening.write_at(spot.root.path, spot.steps, data, expected=before)
        places = "one place" if done.count == 1 else f"{done.count} places"
        text = f"Changed {spot.shown} in {places}, first at line {done.line}."
        return ToolOutput(text=text, details={"path": spot.shown, "count": done.count, "line": done.line})

    def _delete(self, caller: Caller, given: DeleteInput) -> ToolOutput:
        spot = self._writable(caller, given.path)
        what = opening.delete_at(spot.root.path, spot.steps)
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
