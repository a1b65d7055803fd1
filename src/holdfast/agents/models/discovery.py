"""What can be used without any setting, and what the servers on this machine say of themselves.

llama.cpp tells of its template and window under `/props`, Ollama under `/api/show` and `/api/ps`, LM Studio
under `/api/v0/models`, vLLM in its list of models.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.agents.models.catalogue import Served
from holdfast.agents.models.dialects import authorities
from holdfast.agents.models.types import ModelRef

if TYPE_CHECKING:
    import httpx2

ASK_SECONDS: Final = 0.6
MEET_SECONDS: Final = 3.0
OLLAMA_WINDOW: Final = 4_096
"""What Ollama gives a model that it was not told otherwise; more than that it cuts off without a word."""
_LEAST_WINDOW: Final = 1_024
_MOST_MODELS: Final = 200
_MOST_SHOWN: Final = 20
_NOT_FOR_CHAT: Final = ("embed", "rerank", "whisper", "tts", "bge-")
_WINDOW_KEYS: Final = ("max_model_len", "context_length", "loaded_context_length", "max_context_length")
_NUM_CTX: Final = re.compile(r"^\s*num_ctx\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that can be used as it stands. `via` says why: a credential's name, or an address."""

    provider: str
    kind: Literal["key", "server"]
    via: str
    models: tuple[str, ...] = ()
    served: tuple[tuple[str, Served], ...] = ()


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
        self._found: dict[str, Found] = {}
        self._looked = False
        self._asked: set[str] = set()

    @property
    def known(self) -> Sequence[Found]:
        """What was found so far, without asking anyone now."""
        return tuple(self._found.values())

    @property
    def served(self) -> Mapping[ModelRef, Served]:
        """What servers told of their models."""
        return {ModelRef(one.provider, name): facts for one in self.known for name, facts in one.served}

    def forget(self, provider: str) -> None:
        """Ask this server again before its next call: it failed, or may serve another model by now."""
        self._asked.discard(provider)

    async def meet(self, provider: str, url: str) -> None:
        """Have heard one server, once. One that says nothing in a short while is asked again the next time:
        a machine that is busy is no reason to take its model for another."""
        if provider in self._asked:
            return
        try:
            found = await self._told(provider, url, MEET_SECONDS)
        except TimeoutError:
            return
        self._asked.add(provider)
        if found is not None:
            self._found[provider] = found

    async def find(self, *, refresh: bool = False) -> Sequence[Found]:
        """The servers that answer; asked in parallel, and only the first time."""
        if not self._looked or refresh:
            servers = self._addresses()
            asked = (self._ask(name, url) for name, url in servers.items())
            answered = [one for one in await asyncio.gather(*asked) if one is not None]
            self._found = {one.provider: one for one in answered}
            self._asked, self._looked = set(self._found), True
        return self.known

    async def report(self, *, refresh: bool = False) -> list[Row]:
        """A line for every address that was asked."""
        found = {one.provider: one for one in await self.find(refresh=refresh)}
        return [
            Row(name, name in found, _server_text(url, found.get(name)))
            for name, url in self._addresses().items()
        ]

    async def _ask(self, provider: str, url: str) -> Found | None:
        try:
            return await self._told(provider, url, self._ask_seconds)
        except TimeoutError:
            return None

    async def _told(self, provider: str, url: str, seconds: float) -> Found | None:
        """What a local server lists; None when it is something else, `TimeoutError` when it says nothing.
        One that is too slow with the rest is taken by its list, and asked again after its next answer."""
        import httpx2

        async with httpx2.AsyncClient(trust_env=False, verify=authorities(url), timeout=seconds) as http:
            try:
                async with asyncio.timeout(seconds):
                    answer = await http.get(f"{url.rstrip('/')}/models")
                listed = answer.json()["data"] if answer.status_code == 200 else None
            except httpx2.TransportError as error:
                raise TimeoutError(f"no answer from {provider}") from error
            except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, KeyError, TypeError):
                return None
            if not isinstance(listed, list):
                return None
            models = [one for one in listed[:_MOST_MODELS] if isinstance(one, dict) and _chats(one)]
            known = {str(one["id"]): Served(window=_window(one)) for one in models}
            try:
                async with asyncio.timeout(seconds):
                    told = await self._details(http, provider, url, models)
            except TimeoutError:
                told = {name: replace(facts, settled=False) for name, facts in known.items()}
        served = {name: _over(facts, told.get(name)) for name, facts in known.items()}
        return Found(provider, "server", url, tuple(known), tuple(served.items()))

    async def _details(
        self, http: httpx2.AsyncClient, provider: str, url: str, models: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Served]:
        """What the server says of each model beyond its list, in whatever way it has; none is no failure."""
        root = url.rstrip("/").removesuffix("/v1")
        names = [str(one["id"]) for one in models]
        if provider == "ollama" or any(one.get("owned_by") == "library" for one in models):
            loaded, *shown = await asyncio.gather(
                _json(http, "GET", f"{root}/api/ps"),
                *(_json(http, "POST", f"{root}/api/show", {"model": name}) for name in names[:_MOST_SHOWN]),
            )
            running = {str(one.get("model")): one for one in _dicts(loaded.get("models"))}
            return {
                name: ollama(told, running.get(name, {})) for name, told in zip(names, shown, strict=False)
            }
        props, listed = await asyncio.gather(
            _json(http, "GET", f"{root}/props"), _json(http, "GET", f"{root}/api/v0/models")
        )
        if len(names) == 1 and props:
            return {names[0]: llama_cpp(props)}
        return {str(one.get("id")): lm_studio(one) for one in _dicts(listed.get("data"))}


async def _json(
    http: httpx2.AsyncClient, method: str, url: str, body: Mapping[str, Any] | None = None
) -> Mapping[str, Any]:
    import httpx2

    try:
        answer = await http.request(method, url, json=body)
        found = answer.json() if answer.status_code == 200 else {}
    except (httpx2.HTTPError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def llama_cpp(props: Mapping[str, Any]) -> Served:
    """From `/props`: the window of a slot, what the template takes, and whether it wants roles in turn."""
    settings = props.get("default_generation_settings")
    caps = props.get("chat_template_caps")
    modalities, template = props.get("modalities"), props.get("chat_template")
    has_template = isinstance(template, str) and template != ""
    return Served(
        window=_size(settings.get("n_ctx")) if isinstance(settings, Mapping) else None,
        images=_flag(modalities, "vision"),
        tools=_flag(caps, "supports_tools"),
        system=_flag(caps, "supports_system_role"),
        alternates="must alternate" in str(template) if has_template else None,
        identity=_digest(props.get("model_path"), template) if has_template else "",
    )


def ollama(shown: Mapping[str, Any], running: Mapping[str, Any]) -> Served:
    """From `/api/show`, and `/api/ps` for a model that is loaded. The window is the one that it runs with:
    the model's own may be far larger, and Ollama cuts what does not fit without a word."""
    told, info = shown.get("capabilities"), shown.get("model_info")
    sizes = info.items() if isinstance(info, Mapping) else ()
    trained = next(
        (size for name, v in sizes if name.endswith(".context_length") and (size := _size(v))), None
    )
    given = _NUM_CTX.search(str(shown.get("parameters") or ""))
    usual = None if trained is None else min(trained, int(given[1]) if given else OLLAMA_WINDOW)
    can = set(map(str, told)) if isinstance(told, list) else None
    details = shown.get("details")
    family = details.get("family") if isinstance(details, Mapping) else ""
    return Served(
        window=_size(running.get("context_length")) or usual,
        images=None if can is None else "vision" in can,
        thinks=None if can is None else "thinking" in can,
        tools=None if can is None else "tools" in can,
        identity=_digest(family, shown.get("template"), shown.get("modified_at")) if shown else "",
        settled=bool(running),
    )


def lm_studio(listed: Mapping[str, Any]) -> Served:
    """From a row of `/api/v0/models`; a model that is not loaded yet has its largest window."""
    can = listed.get("capabilities")
    kind = listed.get("type")
    return Served(
        window=_size(listed.get("loaded_context_length")) or _size(listed.get("max_context_length")),
        images=kind == "vlm" if kind in ("llm", "vlm") else None,
        tools="tool_use" in can if isinstance(can, list) else None,
        identity=_digest(listed.get("arch"), listed.get("quantization")),
    )


def _over(facts: Served, told: Served | None) -> Served:
    """What the list says, under what was told of the one model."""
    return facts if told is None else replace(told, window=told.window or facts.window)


def _flag(found: Any, name: str) -> bool | None:
    value = found.get(name) if isinstance(found, Mapping) else None
    return value if isinstance(value, bool) else None


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= _LEAST_WINDOW else None


def _digest(*parts: Any) -> str:
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "replace")).hexdigest()[:12]


def _dicts(found: Any) -> Iterable[Mapping[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _chats(model: Mapping[str, Any]) -> bool:
    name = model.get("id")
    return isinstance(name, str) and name != "" and not any(word in name.lower() for word in _NOT_FOR_CHAT)


def _window(model: Mapping[str, Any]) -> int | None:
    """The window that a server tells of a model, under one of the names in use."""
    meta = model.get("meta")
    told = [model.get(name) for name in _WINDOW_KEYS] + (
        [meta.get("n_ctx"), meta.get("n_ctx_train")] if isinstance(meta, Mapping) else []
    )
    return next((size for value in told if (size := _size(value)) is not None), None)


def _server_text(url: str, found: Found | None) -> str:
    if found is None:
        return f"no answer at {url}"
    shown = ", ".join(found.models[:5]) + (", …" if len(found.models) > 5 else "")
    return f"at {url}: {shown or 'no models'}"
