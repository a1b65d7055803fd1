"""What can be used without any setting: what was found, and the servers on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from holdfast.agents.models.pool import authorities
from holdfast.agents.models.types import ModelRef

ASK_SECONDS: Final = 0.6
_LEAST_WINDOW: Final = 1_024
_MOST_MODELS: Final = 200
_NOT_FOR_CHAT: Final = ("embed", "rerank", "whisper", "tts", "bge-")
_WINDOW_KEYS: Final = ("max_model_len", "context_length", "max_context_length", "loaded_context_length")


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that can be used as it stands. `via` says why: a credential's name, or an address."""

    provider: str
    kind: Literal["key", "server"]
    via: str
    models: tuple[str, ...] = ()
    windows: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a report."""

    provider: str
    found: bool
    text: str


class Discovery:
    """Servers on this machine. Looks once, and again when asked; `addresses` are theirs by provider."""

    def __init__(
        self, addresses: Callable[[], Mapping[str, str]], *, ask_seconds: float = ASK_SECONDS
    ) -> None:
        self._addresses = addresses
        self._ask_seconds = ask_seconds
        self._found: tuple[Found, ...] | None = None

    @property
    def known(self) -> Sequence[Found]:
        """What was found so far, without asking anyone now."""
        return self._found or ()

    @property
    def windows(self) -> Mapping[ModelRef, int]:
        """Windows that servers told of their models."""
        return {ModelRef(one.provider, name): size for one in self.known for name, size in one.windows}

    async def find(self, *, refresh: bool = False) -> Sequence[Found]:
        """The servers that answer; asked in parallel, and only the first time."""
        if self._found is None or refresh:
            asked = (self._ask(name, url) for name, url in self._addresses().items())
            self._found = tuple(one for one in await asyncio.gather(*asked) if one is not None)
        return self._found

    async def report(self, *, refresh: bool = False) -> list[Row]:
        """A line for every address that was asked."""
        found = {one.provider: one for one in await self.find(refresh=refresh)}
        return [
            Row(name, name in found, _server_text(url, found.get(name)))
            for name, url in self._addresses().items()
        ]

    async def _ask(self, provider: str, url: str) -> Found | None:
        """What a local server lists; None when there is none, or it is something else."""
        import httpx2

        try:
            async with (
                asyncio.timeout(self._ask_seconds),
                httpx2.AsyncClient(
                    trust_env=False, verify=authorities(url), timeout=self._ask_seconds
                ) as http,
            ):
                answer = await http.get(f"{url.rstrip('/')}/models")
                listed = answer.json()["data"] if answer.status_code == 200 else None
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, KeyError, TypeError):
            return None
        if not isinstance(listed, list):
            return None
        models = [one for one in listed[:_MOST_MODELS] if isinstance(one, dict) and _chats(one)]
        return Found(
            provider,
            "server",
            url,
            tuple(str(one["id"]) for one in models),
            tuple((str(one["id"]), window) for one in models if (window := _window(one)) is not None),
        )


def _chats(model: Mapping[str, Any]) -> bool:
    name = model.get("id")
    return isinstance(name, str) and name != "" and not any(word in name.lower() for word in _NOT_FOR_CHAT)


def _window(model: Mapping[str, Any]) -> int | None:
    """The window that a server tells of a model, under one of the names in use."""
    meta = model.get("meta")
    told = [model.get(name) for name in _WINDOW_KEYS] + (
        [meta.get("n_ctx"), meta.get("n_ctx_train")] if isinstance(meta, Mapping) else []
    )
    return next((value for value in told if isinstance(value, int) and value >= _LEAST_WINDOW), None)


def _server_text(url: str, found: Found | None) -> str:
    if found is None:
        return f"no answer at {url}"
    shown = ", ".join(found.models[:5]) + (", …" if len(found.models) > 5 else "")
    return f"at {url}: {shown or 'no models'}"
