"""A running gateway as the command line sees it: is it there, is it ours, what does it say."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from holdfast.errors import Unauthorized, Unavailable, problem_error

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.home import Home

TIMEOUT_SECONDS: Final = 10.0
PATIENT_SECONDS: Final = 60.0
STRANGER_SECONDS: Final = 3.0
"""A gateway of this home says where it listens; whatever else holds the port is not waited for long."""
_EVERY_ADDRESS: Final = ("0.0.0.0", "::", "")


@dataclass(frozen=True, slots=True)
class Sighting:
    """What answers at an address: our gateway, something else, or nothing."""

    url: str
    state: Literal["ours", "foreign", "none"]
    version: str | None = None


class Client:
    """Calls the gateway of one home with the home's own token."""

    def __init__(self, url: str, token: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.url = url
        self._token = token
        self._timeout = timeout

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON at a path. `Unavailable` if nothing answers, `Unauthorized` if the token is not known."""
        import httpx

        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            answer = httpx.request(
                method,
                self.url + path,
                headers=headers,
                json=body,
                timeout=self._timeout,
                trust_env=False,
                verify=is_encrypted(self.url),
            )
            if answer.status_code in (401, 403):
                raise Unauthorized(f"the gateway at {self.url} does not know this home's token")
            if answer.status_code >= 400:
                raise problem_error(answer.status_code, answer.json())
            return answer.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise Unavailable(
                f"no gateway answers at {self.url}", code="no_gateway", hint="Start it with `holdfast up`."
            ) from error


def is_encrypted(url: str) -> bool:
    """Where nothing is, no certificate is checked: to load those that are trusted takes 20 ms each time."""
    return not url.startswith("http://")


def running_gateway(home: Home, *, timeout: float = TIMEOUT_SECONDS) -> Client | None:
    """The gateway of this home, if it runs."""
    found = find_gateway(home, None)
    return Client(found.url, home.admin_token(), timeout=timeout) if found.state == "ours" else None


def live_gateway(home: Home) -> str | None:
    """Where a gateway of this home says that it listens, if its process is there; nobody is asked."""
    known = _known(home)
    return known.url if known is not None and known.alive else None


def sight(home: Home, url: str, *, timeout: float = TIMEOUT_SECONDS) -> Sighting:
    """Look whether the gateway of this home answers at an address. Makes no token where there is none."""
    import httpx

    token_file = home.credentials / "token"
    try:
        token = token_file.read_text().strip() if token_file.is_file() else ""
    except OSError:
        token = ""
    try:
        health = httpx.get(f"{url}/healthz", timeout=timeout, trust_env=False, verify=is_encrypted(url))
    except (httpx.HTTPError, httpx.InvalidURL):
        return Sighting(url, "none")
    try:
        version = health.json().get("version")
        Client(url, os.environ.get("HOLDFAST_TOKEN") or token, timeout=timeout).get("/api/whoami")
    except (ValueError, AttributeError, Unauthorized, Unavailable):
        return Sighting(url, "foreign")
    return Sighting(url, "ours", version if isinstance(version, str) else None)


def find_gateway(home: Home, config: Config | None, *, patience: float = PATIENT_SECONDS) -> Sighting:
    """The gateway of this home: where it said it listens, else where the config says.

    One whose process is there may be slow to answer while it starts; it has the home open, so we wait for it,
    `patience` seconds at most.
    """
    known = _known(home)
    if known is not None:
        found = sight(home, known.url, timeout=patience if known.alive else min(patience, TIMEOUT_SECONDS))
        if found.state == "ours":
            return found
    host, port = ("127.0.0.1", 8787) if config is None else (config.gateway.host, config.gateway.port)
    return sight(home, address(host, port), timeout=STRANGER_SECONDS)


def address(host: str, port: int) -> str:
    """The address by which a gateway that listens there is reached from this machine."""
    if host in _EVERY_ADDRESS:
        host = "127.0.0.1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def announced(home: Home, url: str, store: str | None = None) -> Iterator[None]:
    """Leave word in the home of where the gateway listens, and on which store; a word that outlives it does
    no harm.

    `store` is its address as it may be shown. Where only the environment named that store, the word of it
    stays: the next command is not to begin another one.
    """
    from holdfast.home import make_private

    path = home.path / "gateway.json"
    make_private(path)  # the store may be told by a name that others need not know
    said: dict[str, Any] = {"url": url, "pid": os.getpid()}
    path.write_text(json.dumps(said | ({} if store is None else {"store": store})) + "\n")
    try:
        yield
    finally:
        if store is not None and os.environ.get("HOLDFAST_STORE"):
            path.write_text(json.dumps({"store": store}) + "\n")
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _Known:
    """Where something of a gateway is, and whether its process is there."""

    url: str
    alive: bool


def gateway_store(home: Home) -> _Known | None:
    """The store that the gateway of this home uses, or used last, by its own word."""
    said = _said(home)
    store = said.get("store")
    return _Known(store, _is_alive(said.get("pid"))) if isinstance(store, str) and "://" in store else None


def _known(home: Home) -> _Known | None:
    said = _said(home)
    url = said.get("url")
    if not (isinstance(url, str) and url.startswith("http://")):
        return None
    return _Known(url, _is_alive(said.get("pid")))


def _said(home: Home) -> dict[str, Any]:
    try:
        said = json.loads((home.path / "gateway.json").read_text())
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
