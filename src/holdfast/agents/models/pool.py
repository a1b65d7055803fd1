"""Connections to providers, kept open between calls, and how many calls may run at once."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.models.catalogue import Endpoint

if TYPE_CHECKING:
    import httpx2

CONNECT_SECONDS: Final = 10.0
_MOST_CLIENTS: Final = 128


class Pool:
    """One HTTP client for each address, one gate for each provider. A client belongs to the loop it was made
    in; in another loop there are others."""

    def __init__(self) -> None:
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()

    def http(self, endpoint: Endpoint) -> httpx2.AsyncClient:
        kept = self._here().http
        name = (endpoint.base_url, endpoint.timeout_seconds)
        if name not in kept:
            kept[name] = _client(endpoint)
        return kept[name]

    def built(self, name: tuple[object, ...], make: Callable[[], Any]) -> Any:
        """What `make` gave for this name before; the least used are forgotten."""
        kept = self._here().built
        if name not in kept:
            kept[name] = make()
            while len(kept) > _MOST_CLIENTS:
                kept.popitem(last=False)
        kept.move_to_end(name)
        return kept[name]

    def gate(self, endpoint: Endpoint) -> AbstractAsyncContextManager[Any]:
        """Waits while the provider has as many calls as it may have."""
        most = endpoint.max_concurrent
        if most is None:
            return nullcontext()
        return self._here().gates.setdefault((endpoint.provider, most), asyncio.Semaphore(most))

    async def aclose(self) -> None:
        here = self._loops.pop(asyncio.get_running_loop(), None)
        for client in here.http.values() if here is not None else ():
            await client.aclose()

    def _here(self) -> _Loop:
        return self._loops.setdefault(asyncio.get_running_loop(), _Loop())


class _Loop:
    def __init__(self) -> None:
        self.http: dict[tuple[str, float], httpx2.AsyncClient] = {}
        self.gates: dict[tuple[str, int], asyncio.Semaphore] = {}
        self.built: OrderedDict[tuple[object, ...], Any] = OrderedDict()


def timeout(endpoint: Endpoint) -> httpx2.Timeout:
    """The longest silence between two pieces of an answer, however long the whole takes."""
    import httpx2

    silence = endpoint.timeout_seconds
    return httpx2.Timeout(connect=min(CONNECT_SECONDS, silence), read=silence, write=silence, pool=None)


@cache
def trusted() -> ssl.SSLContext:
    """The authorities that are trusted, read once: it takes a tenth of a second."""
    import httpx2

    return httpx2.create_ssl_context()


@cache
def nobody() -> ssl.SSLContext:
    """For plain HTTP, where there is nothing to check: TLS with this trusts no one."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def authorities(url: str) -> ssl.SSLContext:
    return nobody() if url.startswith("http://") else trusted()


def _client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Proxies from the environment are for the world outside: loopback is always reached directly."""
    import httpx2

    return httpx2.AsyncClient(
        verify=authorities(endpoint.base_url),
        timeout=timeout(endpoint),
        limits=httpx2.Limits(max_connections=1000, max_keepalive_connections=50, keepalive_expiry=60.0),
        trust_env=not endpoint.loopback,
        follow_redirects=False,
    )


def revealed(headers: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    return {name: secret.reveal(env) for name, secret in headers.items()}
