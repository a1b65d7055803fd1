"""`web_search`: through the service that the operator chose, Brave's or a SearXNG of their own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.tools.settings import tools_of
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.config.tools import WebSearch as Settings
from holdfast.context import Trust
from holdfast.effects import Effect
from holdfast.errors import Unavailable
from holdfast.text import clip

BRAVE: Final = "brave"
BRAVE_URL: Final = "https://api.search.brave.com/res/v1/web/search"
_MOST_BYTES: Final = 2 * 1024**2
_SNIPPET: Final = 500


class SearchInput(BaseModel):
    """Search the web. Results are titles, addresses and a few words of each; web_fetch reads a page."""

    model_config = ConfigDict(extra="forbid")
    query: Annotated[str, Field(min_length=1, max_length=400, description="What to look for.")]
    count: Annotated[int | None, Field(ge=1, le=50, description="Results at most.")] = None


@dataclass(frozen=True, slots=True)
class _Ask:
    url: str
    params: Mapping[str, str]
    headers: Mapping[str, str]


class WebSearch:
    """`brave_url` is where Brave's service is."""

    def __init__(self, brave_url: str = BRAVE_URL) -> None:
        self._brave_url = brave_url

    def tool(self) -> Tool[SearchInput]:
        return Tool(
            name="web_search",
            input=SearchInput,
            run=self.run,
            effect=Effect.NONE,
            repeatable=True,
            for_others=always,
            offered=lambda caller: _usable(tools_of(caller).web.search),
        )

    async def run(self, caller: Caller, given: SearchInput, _: str) -> ToolOutput:
        settings = tools_of(caller).web.search
        most = min(settings.max_results, given.count or settings.max_results)
        found = await _asked(self._ask(settings, given.query, most), settings.timeout_seconds)
        rows = _rows(found)[:most]
        lines = [f"{n}. {row['title']}\n   {row['url']}\n   {row['text']}" for n, row in enumerate(rows, 1)]
        return ToolOutput(
            text="\n".join(lines) or "Nothing was found.",
            trust=Trust.OUTSIDE,
            details={"count": len(rows)},
        )

    def _ask(self, settings: Settings, query: str, most: int) -> _Ask:
        if settings.provider == BRAVE and settings.api_key is not None:
            key = settings.api_key.reveal(os.environ)
            return _Ask(
                self._brave_url, {"q": query, "count": str(min(most, 20))}, {"X-Subscription-Token": key}
            )
        base = (settings.provider or "").rstrip("/")
        return _Ask(f"{base}/search", {"q": query, "format": "json"}, {})


def _usable(settings: Settings) -> bool:
    """Brave with a key, or the address of a SearXNG."""
    if not settings.enabled or settings.provider is None:
        return False
    own = settings.provider.startswith(("http://", "https://"))
    return own or (settings.provider == BRAVE and settings.api_key is not None)


async def _asked(ask: _Ask, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            status, body = await _answer(ask, seconds)
    except TimeoutError as error:
        raise Unavailable(f"no answer within {seconds:.0f} s", code="search_failed") from error
    if status != 200:
        raise Unavailable(
            f"the search service answered {status}",
            code="search_failed",
            hint="Check tools.web.search in the config.",
        )
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unavailable("the search service did not answer in JSON", code="search_failed") from error


async def _answer(ask: _Ask, seconds: float) -> tuple[int, bytes]:
    import httpx

    headers = {**ask.headers, "Accept": "application/json"}
    body = bytearray()
    try:
        async with (
            httpx.AsyncClient(timeout=seconds, follow_redirects=False) as client,
            client.stream("GET", ask.url, params=dict(ask.params), headers=headers) as answer,
        ):
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise Unavailable(
                        f"the search service sent more than {_MOST_BYTES} bytes", code="search_failed"
                    )
            return answer.status_code, bytes(body)
    except httpx.HTTPError as error:
        raise Unavailable(f"the search service did not answer: {error}", code="search_failed") from error


def _rows(found: Any) -> list[dict[str, str]]:
    web = found.get("web") if isinstance(found, dict) else None
    rows = web.get("results") if isinstance(web, dict) else None
    if rows is None and isinstance(found, dict):
        rows = found.get("results")
    return [_row(row) for row in rows or () if isinstance(row, dict) and isinstance(row.get("url"), str)]


def _row(row: Mapping[str, Any]) -> dict[str, str]:
    text = row.get("description") or row.get("content") or ""
    return {
        "title": clip(" ".join(str(row.get("title") or "").split()), 200),
        "url": row["url"][:1000],
        "text": clip(" ".join(str(text).split()), _SNIPPET),
    }
