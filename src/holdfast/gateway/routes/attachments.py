"""`/api/attachments`: files with messages, in as a form and out as nothing that a browser would run."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.board import EVERYTHING, attachments, log_view, spaces
from holdfast.board.attachments import Attachment, Files, Upload
from holdfast.errors import Forbidden, InvalidInput, TooLarge
from holdfast.gateway.access import placed_by, require_spaces
from holdfast.gateway.board_wire import AttachmentOut, PolicyOut, attachment_out
from holdfast.gateway.bodies import Part, StrictRoute, boundary_of, parts
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import DeletedOut, answer, answers, deleted
from holdfast.gateway.tokens import Principal
from holdfast.log import Audience, Tx, audit

router = APIRouter(tags=["attachments"], route_class=StrictRoute)

AttachmentPath = Annotated[str, Path(alias="id", max_length=256)]
_FORM = {
    "multipart/form-data": {
        "schema": {
            "type": "object",
            "required": ["files"],
            "properties": {"files": {"type": "array", "items": {"type": "string", "format": "binary"}}},
        }
    }
}


@router.get("/api/attachments/policy", response_model=PolicyOut)
async def policy(here: Here, caller: Caller) -> Response:
    """What may be uploaded."""
    limits = here.hold.settings.board.attachments
    return answer(
        PolicyOut(
            allowed_mime_types=sorted(attachments.ALLOWED),
            max_files=limits.max_files,
            max_bytes=limits.max_bytes,
        )
    )


@router.post(
    "/api/attachments",
    status_code=201,
    response_model=list[AttachmentOut],
    openapi_extra={"requestBody": {"required": True, "content": _FORM}},
)
async def upload(
    request: Request,
    here: Here,
    caller: Caller,
    space_id: Annotated[str | None, Query(alias="spaceId", max_length=256)] = None,
    log_id: Annotated[str | None, Query(alias="logId", max_length=256)] = None,
) -> Response:
    """Keep files, all or none. With `logId` they belong to that entry, with `spaceId` to that space."""
    boundary = boundary_of(request.headers.get("content-type", ""))
    with tempfile.TemporaryFile() as spool:
        async for piece in request.stream():
            spool.write(piece)
        spool.flush()
        with _mapped(spool) as body:
            made = await here.hold.threads(_keep, here, caller, body, boundary, space_id, log_id)
    return answers([attachment_out(one) for one in made], status=201)


@router.get(
    "/api/attachments/{id}",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {}}}},
)
async def get(here: Here, caller: Caller, id_: AttachmentPath) -> Response:
    """The file itself, to be saved; a picture may be shown."""

    def read() -> tuple[Attachment, Iterator[bytes]]:
        with here.read_as(caller) as tx:
            found = attachments.get(tx, id_)
        return found, files(here).read(found.sha256)

    found, content = await here.hold.threads(read)
    return StreamingResponse(content, media_type=found.mime_type, headers=_headers(found))


@router.delete("/api/attachments/{id}", response_model=DeletedOut)
async def delete(here: Here, caller: Caller, id_: AttachmentPath) -> Response:
    """Forget an attachment; its content goes with the last one that has it."""

    def write() -> None:
        with here.write_as(caller) as tx:
            gone, last = attachments.delete(tx, id_)
            audit.note(tx, "deleted.attachment", id_, by=caller.actor)
            if last:
                # Within the transaction: an upload of the same content waits for it, then writes anew.
                files(here).drop(gone.sha256)

    await here.hold.threads(write)
    return deleted(id_)


def files(here: Gateway) -> Files:
    return Files(here.hold.home.path / "attachments")


def _keep(
    here: Gateway,
    caller: Principal,
    body: bytes | mmap.mmap,
    boundary: bytes,
    space_id: str | None,
    log_id: str | None,
) -> list[Attachment]:
    limits = here.hold.settings.board.attachments
    found = [part for part in parts(body, boundary, most=limits.max_files) if part.file_name is not None]
    if not found:
        raise InvalidInput("no files were sent", code="no_files", hint="Send them as form fields `files`.")
    for part in found:
        if part.end - part.start > limits.max_bytes:
            raise TooLarge(f"a file has at most {limits.max_bytes} bytes", hint="Make it smaller.")
    for part in found:
        _checked(body, part, limits.max_bytes)
    with here.write_as(caller) as tx:
        audience = _audience(tx, caller, space_id, log_id)
        made = []
        for part in found:
            one = _checked(body, part, limits.max_bytes)
            sha256 = files(here).put(one.data)
            made.append(
                attachments.add(tx, one, sha256, audience=audience, space_id=space_id, entry_id=log_id)
            )
        return made


def _checked(body: bytes | mmap.mmap, part: Part, max_bytes: int) -> Upload:
    """One file at a time in memory."""
    sent = Upload(part.file_name or "", part.mime_type, body[part.start : part.end])
    return attachments.check(sent, max_bytes=max_bytes)


def _audience(tx: Tx, caller: Principal, space_id: str | None, log_id: str | None) -> Audience:
    """Who may read a file: whoever may read its entry, else as what is put into its space."""
    if space_id is not None:
        require_spaces(caller, [space_id])
        spaces.require(tx, space_id)
    if log_id is not None:
        return log_view.get(tx, log_id, EVERYTHING).audience
    if caller.agents is not None:
        raise Forbidden(
            "a token limited to agents keeps files only with their entries",
            code="entry_required",
            hint="Send the logId of an entry that it may see.",
        )
    return placed_by(tx, caller, space_id)


def _headers(found: Attachment) -> dict[str, str]:
    """Nothing here runs: not as a script, not in a frame, not as another type than was checked."""
    shown = "inline" if found.mime_type.startswith("image/") else "attachment"
    return {
        "Content-Disposition": f"{shown}; filename*=UTF-8''{quote(found.file_name, safe='')}",
        "Content-Length": str(found.size_bytes),
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "private, no-store",
        "ETag": f'"{found.sha256}"',
    }


@contextmanager
def _mapped(spool: Any) -> Iterator[bytes | mmap.mmap]:
    """What was spooled, as bytes that need not be in memory; an empty file cannot be mapped."""
    if spool.seek(0, 2) == 0:
        yield b""
        return
    with mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ) as body:
        yield body
