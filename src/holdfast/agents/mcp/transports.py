"""The ways to a server of others, each within limits, and logging in there.

Whatever it sends, it cannot fill our memory or disk; and a program ends with all that it started.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import httpx2
import mcp_types as types
from anyio.abc import ByteReceiveStream, Process
from mcp.client.auth import OAuthClientProvider
from mcp.client.stdio import get_default_environment
from mcp.os.posix.utilities import terminate_posix_process_tree
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from mcp.shared.message import SessionMessage

from holdfast.config.tools import McpServer
from holdfast.errors import Forbidden, Unauthorized, Unavailable
from holdfast.home import private_opener

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream


PORT: Final = 47653
PATH: Final = "/callback"
WAIT_SECONDS: Final = 300.0
Show = Callable[[str], Awaitable[None]]
Come = Callable[[], Awaitable[AuthorizationCodeResult]]


class SavedLogin:
    """The tokens of one server, and the client that we are to it, in a file."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / f"mcp_{name}.json"

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, **values: Any) -> None:
        kept = self._read() | values
        draft = self._path.with_suffix(".draft")
        with open(draft, "w", opener=private_opener) as stream:
            json.dump(kept, stream)
        draft.replace(self._path)

    async def get_tokens(self) -> OAuthToken | None:
        found = self._read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self._read().get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))


def provider(
    name: str, settings: McpServer, folder: Path, show: Show | None = None, come: Come | None = None
) -> OAuthClientProvider:
    """Logs in with what is kept, and renews it; without `show` nobody is there to log in anew."""

    async def nobody(_: str) -> None:
        raise Unauthorized(
            f"nobody is logged in to the MCP server {name}",
            code="mcp_login",
            hint=f"Run `holdfast mcp login {name}`.",
        )

    metadata = OAuthClientMetadata.model_validate(
        {
            "client_name": "Holdfast",
            "redirect_uris": [f"http://127.0.0.1:{PORT}{PATH}"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
    )
    return OAuthClientProvider(
        str(settings.url), metadata, SavedLogin(folder, name), show or nobody, come or come_back
    )


async def come_back() -> AuthorizationCodeResult:
    """The answer that a browser brings to loopback; the first one that has a code counts."""
    answer: asyncio.Future[AuthorizationCodeResult] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readline()).decode("latin-1").split(" ")
        target = urlsplit(line[1] if len(line) > 1 else "")
        query = {key: values[0] for key, values in parse_qs(target.query).items()}
        ours = target.path == PATH and not answer.done() and ("code" in query or "error" in query)
        text = b"You are logged in. This page can be closed." if ours else b"Nobody waits for this."
        head = (
            f"HTTP/1.1 {200 if ours else 400} OK\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + text)
        await writer.drain()
        writer.close()
        if ours and "code" in query:
            found = {name: query.get(name) for name in ("code", "state", "iss")}
            answer.set_result(AuthorizationCodeResult.model_validate(found))
        elif ours:
            answer.set_exception(
                Forbidden(f"the login was refused: {query['error'][:200]}", code="mcp_login")
            )

    server = await asyncio.start_server(serve, "127.0.0.1", PORT)
    async with server:
        try:
            return await asyncio.wait_for(answer, WAIT_SECONDS)
        except TimeoutError as error:
            raise Unavailable("nobody came back in time", code="mcp_login", hint="Begin again.") from error


MOST_ANSWER: Final = 16 * 1024 * 1024
STDERR: Final = 256 * 1024
GRACE_SECONDS: Final = 2.0


@asynccontextmanager
async def program(
    command: str, args: Sequence[str], env: Mapping[str, str], errors: Path
) -> AsyncIterator[tuple[Any, Any]]:
    """A program that is started with the least environment; `errors` has the end of what it complains of."""
    process = await anyio.open_process(
        [command, *args],
        env={**get_default_environment(), **env},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception]()
    outgoing, said = anyio.create_memory_object_stream[SessionMessage]()
    complained = anyio.Event()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_hear, process, heard, complained)
            group.start_soon(_say, process, said)
            group.start_soon(_keep, process.stderr, errors, complained)
            yield incoming, outgoing
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
            for stream in (heard, incoming, outgoing, said):
                stream.close()


async def _hear(
    process: Process, heard: MemoryObjectSendStream[SessionMessage | Exception], complained: anyio.Event
) -> None:
    """Hand on what the program says, line by line; that it ended is an error, since it was to stay."""
    assert process.stdout is not None
    held = bytearray()
    async for chunk in process.stdout:
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            await _handed_on(bytes(held) + line, heard)
            held.clear()
        held += rest
        if len(held) > MOST_ANSWER:
            raise Unavailable(f"a line of more than {MOST_ANSWER} bytes is too long", code="mcp_flood")
    with anyio.move_on_after(GRACE_SECONDS):
        await process.wait()
        await complained.wait()
    raise Unavailable(f"the program ended with {process.returncode}", code="mcp_gone")


async def _handed_on(line: bytes, heard: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Lines that are no messages are passed over: many programs print to stdout."""
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await heard.send(SessionMessage(message))


async def _say(process: Process, said: MemoryObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin is not None
    # That it does not listen any more is noticed where it is listened to.
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        async for one in said:
            line = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            await process.stdin.send(line.encode("utf-8", "replace") + b"\n")


async def _keep(stream: ByteReceiveStream | None, path: Path, complained: anyio.Event) -> None:
    assert stream is not None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(path, "w+b", opener=private_opener) as file:
        async for chunk in stream:
            file.write(chunk)
            if file.tell() > 2 * STDERR:
                file.seek(-STDERR, os.SEEK_END)
                end = file.read()
                file.seek(0)
                file.truncate()
                file.write(end)
            file.flush()
    complained.set()


async def _end(process: Process) -> None:
    """Have it end: by the end of its input, else by force; with whatever it started."""
    assert process.stdin is not None
    with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await process.stdin.aclose()
    with anyio.move_on_after(GRACE_SECONDS):
        await process.wait()
    await terminate_posix_process_tree(process, GRACE_SECONDS)
    await process.aclose()
    # Pipes that something else still holds keep it open, and nothing public closes it.
    transport = getattr(getattr(process, "_process", None), "_transport", None)
    if transport is not None:
        transport.close()


@asynccontextmanager
async def address(url: str, headers: Mapping[str, str], auth: Any = None) -> AsyncIterator[tuple[Any, Any]]:
    """A server that runs elsewhere. Redirects stay within its origin; that is the SDK's part."""
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    # What is compressed has no size that could be known before it is in memory.
    client = create_mcp_http_client(headers={**headers, "Accept-Encoding": "identity"}, auth=auth)
    client.event_hooks = {"request": [], "response": [_bounded]}
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


async def _bounded(response: httpx2.Response) -> None:
    """Bound a body; events are bounded one by one, by the SDK."""
    if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
        raise httpx2.DecodingError(
            "an answer is compressed, though it was not to be", request=response.request
        )
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _Counted(response.stream)  # type: ignore[arg-type]


class _Counted(httpx2.AsyncByteStream):
    """A body that breaks off when there is too much of it."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_ANSWER
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise httpx2.ReadError(f"an answer of more than {MOST_ANSWER} bytes is too long")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
