"""The HTTP interface as the MCP server calls it: within a gateway, or of one that runs elsewhere.

Whatever a tool reads or writes goes through a route, so that a token may do here what it may do there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlencode

from holdfast.errors import Unavailable, problem_error

if TYPE_CHECKING:
    from httpx2 import AsyncClient

Query = Mapping[str, str | int | None]
TIMEOUT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of an answer, and where a list goes on."""

    body: Any
    next: str | None = None


class Api(Protocol):
    async def call(
        self, method: str, path: str, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        """One call; what a route refuses is raised as the error that it was."""

    def changes(self) -> AsyncIterator[Mapping[str, Any]]:
        """What changes from now on, as far as the caller may know of it."""


class Remote:
    """A gateway that runs elsewhere, called with a token."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def call(
        self, method: str, path: str, query: Query | None = None, body: Mapping[str, Any] | None = None
    ) -> Answer:
        import httpx2

        url = path if not query else f"{path}?{encoded(query).decode()}"
        headers = {"Content-Type": "application/json"}
        try:
            found = await self._client.request(method, url, content=as_bytes(body), headers=headers)
        except httpx2.HTTPError as error:
            raise Unavailable(
                "the gateway does not answer", code="no_gateway", hint="Start it with `holdfast up`."
            ) from error
        return answer_of(found.status_code, found.headers.get("x-next-cursor"), found.content)

    async def changes(self) -> AsyncIterator[Mapping[str, Any]]:
        async with self._client.stream("GET", "/api/stream", timeout=None) as live:
            async for line in live.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))


def remote_client(url: str, token: str) -> AsyncClient:
    """What `Remote` speaks through; whoever opens it closes it. No proxy stands before one's own gateway."""
    import httpx2

    headers = {"Authorization": f"Bearer {token}"}
    # Without encryption there is no certificate to check, and to load those that are trusted takes 20 ms.
    encrypted = not url.startswith("http://")
    return httpx2.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, verify=encrypted
    )


def encoded(query: Query | None) -> bytes:
    return urlencode({name: value for name, value in (query or {}).items() if value is not None}).encode()


def as_bytes(body: Mapping[str, Any] | None) -> bytes:
    return b"" if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def answer_of(status: int, next_: str | None, content: bytes) -> Answer:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if status >= 400 or (body is None and content != b"null"):
        raise problem_error(status if status >= 400 else 502, body)
    return Answer(body, next_)
