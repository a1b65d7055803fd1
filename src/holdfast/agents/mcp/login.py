"""OAuth for servers of others, as the SDK does it; what it yields is kept in the home, for its owner only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)

from holdfast.config.tools import McpServer
from holdfast.errors import Forbidden, Unauthorized, Unavailable
from holdfast.home import private_opener

PORT: Final = 47653
PATH: Final = "/callback"
WAIT_SECONDS: Final = 300.0
Show = Callable[[str], Awaitable[None]]
Come = Callable[[], Awaitable[AuthorizationCodeResult]]


class Kept:
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
        str(settings.url), metadata, Kept(folder, name), show or nobody, come or come_back
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
