"""Fetching from the web: which addresses may be reached, and how an answer is read."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from holdfast.errors import Forbidden, InvalidInput, Unavailable

if TYPE_CHECKING:
    import httpx


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            *("169.254.169.254", "169.254.170.2", "169.254.170.23", "100.100.100.200"),
            *("168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254"),
        ),
    )
)
# Addresses by which a gateway or a relay reaches another address, which is then the one that counts.
_TRANSLATED: Final = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96"),
    )
)
# What is set aside by IANA; the interpreter's own tables differ from release to release.
_SET_ASIDE: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            *("0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24"),
            *("198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
            *("2001::/23", "2001:db8::/32", "3fff::/20"),
        ),
    )
)
_OPEN_SIX: Final = ipaddress.ip_network("2000::/3")


def address_refusal(text: str, *, allow_private: bool = False) -> str | None:
    """Why this address is out of bounds; None for one of the open internet.

    The metadata services of clouds stay out of reach even where private addresses are allowed, and so does
    what stands for another address, since that could be theirs.
    """
    try:
        address: Address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return "it is not an address"
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address in _METADATA:
        return "it is a cloud's metadata service"
    if address.is_multicast:
        return "it is a multicast address"
    if address.is_unspecified:
        return "it is no address of any machine"
    if not address.is_loopback and any(address in net for net in _TRANSLATED):
        return "it stands for another address"
    return None if allow_private else _not_open(address)


def _not_open(address: Address) -> str | None:
    if address.is_loopback:
        return "it is this machine"
    if address.is_link_local:
        return "it is a link-local address"
    if address.is_private or (isinstance(address, ipaddress.IPv6Address) and address.is_site_local):
        return "it is in a private network"
    aside = any(address in net for net in _SET_ASIDE) or not address.is_global or address.is_reserved
    beyond = address.version == 6 and address not in _OPEN_SIX
    return "it is a reserved address" if aside or beyond else None


MOST_URL: Final = 4_096
MOST_ADDRESSES: Final = 4
_SCHEMES: Final = ("http", "https")
_HEADERS: Final = {
    "User-Agent": "Mozilla/5.0 (compatible; Holdfast web_fetch)",
    "Accept": "text/html, text/markdown, text/plain, application/json, application/xhtml+xml, */*;q=0.1",
    "Accept-Encoding": "gzip",
}

Resolve: TypeAlias = Callable[[str, int], Awaitable[list[str]]]
Refusal: TypeAlias = Callable[[str], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    max_bytes: int
    max_redirects: int
    seconds: float
    allow_private: bool = False


@dataclass(frozen=True, slots=True)
class Fetched:
    """What came; `cut` says that there was more than was read."""

    url: str
    status: int
    headers: dict[str, str]
    body: bytes
    cut: bool

    @property
    def type(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        for part in self.headers.get("content-type", "").split(";")[1:]:
            name, _, value = part.strip().partition("=")
            if name.lower() == "charset":
                return value.strip("\"' ")
        return None


async def looked_up(host: str, port: int) -> list[str]:
    """All addresses of a name, as the system finds them."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Unavailable(f"{host[:200]} cannot be found: {error}", code="unknown_host") from error
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Fetcher:
    """Gets pages. `refusal` says of an address why it is out of bounds; `trusted` are the certificates."""

    def __init__(
        self,
        resolve: Resolve = looked_up,
        refusal: Refusal | None = None,
        trusted: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._resolve = resolve
        self._refusal = refusal
        self._trusted = trusted or _well_known

    async def get(self, url: str, bounds: Bounds) -> Fetched:
        """The page, its redirects followed; `Forbidden` for one that leads out of bounds."""
        try:
            async with asyncio.timeout(bounds.seconds):
                return await self._followed(_checked(url), bounds)
        except TimeoutError as error:
            raise Unavailable(f"no answer within {bounds.seconds:.0f} s", code="fetch_timeout") from error

    async def _followed(self, url: httpx.URL, bounds: Bounds) -> Fetched:
        for _ in range(bounds.max_redirects + 1):
            async with self._answer(url, bounds) as response:
                location = response.headers.get("location")
                if not (response.is_redirect and location):
                    body, cut = await _read(response, bounds.max_bytes)
                    return Fetched(str(url), response.status_code, dict(response.headers), body, cut)
            url = _checked(str(url.join(location)))
        raise Unavailable(f"more than {bounds.max_redirects} redirects", code="too_many_redirects")

    @asynccontextmanager
    async def _answer(self, url: httpx.URL, bounds: Bounds) -> AsyncIterator[httpx.Response]:
        """Connected to an address that was checked; the name stays in the request and in the certificate."""
        import httpx

        host = url.raw_host.decode("ascii")
        trusted = self._trusted()
        async with httpx.AsyncClient(verify=trusted, trust_env=False, timeout=bounds.seconds) as client:
            response = await self._sent(client, url, host, await self._addresses(url, host, bounds))
            try:
                yield response
            finally:
                await response.aclose()

    async def _sent(
        self, client: httpx.AsyncClient, url: httpx.URL, host: str, found: list[str]
    ) -> httpx.Response:
        import httpx

        failed: Exception | None = None
        for address in found[:MOST_ADDRESSES]:
            request = client.build_request(
                "GET",
                url.copy_with(host=address),
                headers={**_HEADERS, "Host": url.netloc.decode("ascii")},
                extensions={"sni_hostname": host},
            )
            try:
                return await client.send(request, stream=True, follow_redirects=False)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failed = error
            except httpx.HTTPError as error:
                raise Unavailable(f"{host} did not answer: {error}", code="fetch_failed") from error
        raise Unavailable(f"{host} cannot be reached: {failed}", code="fetch_failed") from failed

    async def _addresses(self, url: httpx.URL, host: str, bounds: Bounds) -> list[str]:
        """One bad address among several is enough to refuse: the name is not what it pretends to be."""
        port = url.port or (443 if url.scheme == "https" else 80)
        found = [_literal(host)] if _literal(host) else await self._resolve(host, port)
        if not found:
            raise Unavailable(f"{host} has no address", code="unknown_host")
        for address in found:
            why = self._refused(address, bounds)
            if why is not None:
                raise Forbidden(
                    f"{host} may not be fetched: {why} ({address})",
                    code="address_refused",
                    hint="Only pages of the open internet can be fetched.",
                )
        return found

    def _refused(self, address: str, bounds: Bounds) -> str | None:
        if self._refusal is not None:
            return self._refusal(address)
        return address_refusal(address, allow_private=bounds.allow_private)


@cache
def _well_known() -> ssl.SSLContext:
    """The certificates that browsers trust, read once."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def _checked(text: str) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(text[: MOST_URL + 1].strip())
    except (httpx.InvalidURL, ValueError) as error:
        raise InvalidInput(
            f"not an address: {text[:200]!r}", hint="Such as https://example.org/page."
        ) from error
    if len(text) > MOST_URL or url.scheme not in _SCHEMES or not url.raw_host:
        raise InvalidInput(f"not a web address: {text[:200]!r}", hint="Only http and https are fetched.")
    if url.userinfo:
        raise InvalidInput(
            "an address with a user name or password is not fetched", code="credentials_in_url"
        )
    return url.copy_with(fragment=None)


def _literal(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        return ""


async def _read(response: httpx.Response, most: int) -> tuple[bytes, bool]:
    """The body as it was meant, bounded after it is unpacked."""
    import httpx

    coding = response.headers.get("content-encoding", "identity").strip().lower()
    if coding not in ("identity", "", "gzip", "x-gzip", "deflate"):
        raise Unavailable(f"the page is packed as {coding[:40]!r}", code="fetch_failed")
    unpack = None if coding in ("identity", "") else zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    try:
        async for chunk in response.aiter_raw():
            body += chunk if unpack is None else unpack.decompress(chunk, most + 1 - len(body))
            if len(body) > most:
                return bytes(body[:most]), True
    except (httpx.HTTPError, zlib.error) as error:
        raise Unavailable(f"the page broke off: {error}", code="fetch_failed") from error
    return bytes(body), bool(_left(unpack))


def _left(unpack: Any) -> bool:
    return unpack is not None and bool(unpack.unconsumed_tail)
