"""The HTTP interface as the MCP server calls it, and reading by id through it, word for word and in pages.

Whatever a tool reads or writes goes through a route, so that a token may do here what it may do there.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import quote, urlencode

from holdfast.errors import HoldfastError, InvalidInput, NotFound, Unavailable, problem_error

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


PAGE_BYTES: Final = 8_000
_ROWS: Final = 20
_LINES: Final = 200
_WHERE: Final = {"topic-": "topicId", "task-": "taskId", "turn-": "turnId"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of what is read, and where it stands in the pages that it comes from, to go on from there.

    Its `head` may be another on the next page, as when an entry is put into a topic meanwhile.
    """

    text: str
    page: str = ""
    id: str = ""
    head: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the next page begins: which of the ids, which page of it, behind which piece, at which letter."""

    number: int = 0
    page: str = ""
    id: str = ""
    offset: int = 0

    def __str__(self) -> str:
        return json.dumps([self.number, self.page, self.id, self.offset], separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Place:
        try:
            number, page, id_, offset = json.loads(text) if text else (0, "", "", 0)
            if not (isinstance(page, str) and isinstance(id_, str)):
                raise TypeError
            return cls(int(number), page, id_, max(0, int(offset)))
        except (ValueError, TypeError) as error:
            raise InvalidInput("not a cursor", hint="Send back `next` of the answer before.") from error


async def open_ids(api: Api, ids: list[str], cursor: str, room: int = PAGE_BYTES) -> tuple[str, str | None]:
    """As much of these as one answer holds, and where to go on; of several, one that is not there says so."""
    from holdfast.context.fence import disarmed

    place, left = Place.parse(cursor), room
    parts: list[str] = []
    for number in range(place.number, len(ids)):
        start = place if number == place.number else Place(number)
        try:
            async for piece in pieces(api, ids[number], start.page):
                if start.id and start.id != piece.id:
                    continue  # shown on the page before
                head = "" if start.offset else disarmed(piece.head)
                text = head + disarmed(piece.text)[start.offset :]
                fits = fitting(text, left)
                if fits < len(text):
                    cut = 0 if parts else max(fits, len(head) + 1)
                    here = Place(number, piece.page, piece.id, start.offset + max(0, cut - len(head)))
                    return "\n".join(parts) or text[:cut], str(here)
                parts.append(text)
                left -= weight(text) + 2
                start = Place(number)
        except HoldfastError as error:
            if len(ids) == 1:
                raise
            parts.append(f"{ids[number]}: {error.message}")
    return "\n".join(parts), None


def weight(text: str) -> int:
    """The bytes that a text takes in an answer, where its quotes and line ends are escaped."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def fitting(text: str, most: int) -> int:
    """How many letters of a text take at most so many bytes, ending at a line or a word where one is near."""
    if weight(text) <= most:
        return len(text)
    low, high = 0, min(len(text), max(0, most))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if weight(text[:middle]) <= most else (low, middle - 1)
    for mark in ("\n", " "):
        cut = text.rfind(mark, low * 3 // 4, low)
        if cut > 0:
            return cut + 1
    return low


async def pieces(api: Api, id_: str, page: str) -> AsyncIterator[Piece]:
    """What an id stands for, from a page of it on."""
    if id_.startswith("log-"):
        entry = (await api.call("GET", f"/api/log/{quote(id_)}")).body
        yield said(entry)
        return
    if id_.startswith("topic-") and not page:
        yield Piece(_head((await api.call("GET", f"/api/topics/{quote(id_)}")).body))
    if id_.startswith("task-") and not page:
        yield Piece(_head((await api.call("GET", f"/api/tasks/{quote(id_)}")).body))
    found = False
    async for piece in _listed(api, id_, page):
        found = True
        yield piece
    if not found and not page and not id_.startswith(("topic-", "task-")):
        raise NotFound(f"nothing is known of {id_[:200]!r}", hint="Use an id as recall or board gave it.")


async def _listed(api: Api, id_: str, page: str) -> AsyncIterator[Piece]:
    where = next((name for prefix, name in _WHERE.items() if id_.startswith(prefix)), None)
    if where is None and id_.lower().endswith((".md", ".markdown")):
        async for piece in _lines(api, id_, page):
            yield piece
        return
    query: dict[str, str | int | None] = {where or "sessionKey": id_.removeprefix("session:"), "limit": _ROWS}
    while True:
        answer = await api.call("GET", "/api/log", {**query, "cursor": page or None})
        for entry in answer.body:
            yield said(entry, page, entry["id"])
        if answer.next is None:
            return
        page = answer.next


async def _lines(api: Api, path: str, page: str) -> AsyncIterator[Piece]:
    start = int(page) if page.isdecimal() else 1
    while True:
        query: dict[str, str | int | None] = {"path": path, "from": start, "lines": _LINES}
        body = (await api.call("GET", "/api/memory/get", query)).body
        yield Piece(body["text"], str(start), f"L{start}")
        if not body["more"] or not body["lines"]:
            return
        start += body["lines"]


def said(entry: Mapping[str, Any], page: str = "", id_: str = "") -> Piece:
    """An entry word for word, under a line that says what it is, whose, and when."""
    who = entry.get("agentLabel") or entry.get("agentId") or "?"
    source = entry.get("source") or {}
    facts = [entry["id"], entry["createdAt"][:16], str(who), entry["type"]]
    facts += [str(one) for one in (entry.get("topicId"), source.get("sessionKey")) if one]
    return Piece(f"{entry['content']}\n", page, id_, f"## {' · '.join(facts)}\n")


def _head(item: Mapping[str, Any]) -> str:
    facts = [item["id"], item.get("status") or "", f"due {item['dueDate']}" if item.get("dueDate") else ""]
    lines = [f"# {item.get('name') or item.get('title')}", " · ".join(one for one in facts if one)]
    lines += [text for text in (item.get("description"), item.get("digest")) if text]
    return "\n".join(lines) + "\n"
