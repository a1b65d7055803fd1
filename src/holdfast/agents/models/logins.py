"""Logins: tokens that a person got by logging in (OAuth 2), kept for their owner only.

Nothing that a server says is repeated but its error's name: an answer may hold tokens.

One file for each provider under `credentials/logins`. Whoever refreshes holds a lock that other processes
see, and looks at the file again before: a token that another has refreshed meanwhile is the one to use.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from holdfast.clock import Clock
from holdfast.config.models import OAuth
from holdfast.errors import Forbidden, InvalidInput, NotFound, Unauthorized, Unavailable
from holdfast.home import Home
from holdfast.logs import hide


def written(path: Path, body: Mapping[str, Any]) -> None:
    """The file appears whole or not at all, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(body, indent=2, ensure_ascii=False) + "\n", "utf-8")
        draft.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}", code="home_unusable") from error


SECONDS: Final = 20.0
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_POLL_SECONDS: Final = 5.0
_LONGEST_DEVICE: Final = 1800.0
_MOST_ANSWER: Final = 256 * 1024


NOBODYS_PORT: Final = 47651
"""Where a page comes back to that nobody waits for: its address is read, and brought by hand."""


class OAuthRefused(Unauthorized):
    """The server will not give a token for this, however often it is asked."""

    code = "oauth_refused"


class OAuthPending(OAuthRefused):
    """Nobody has decided yet."""

    code = "oauth_pending"


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a server gave. `refresh` is None where it keeps the one that was sent."""

    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)
    expires_in: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """An authorisation under way: where the person goes, and what proves that the answer is ours."""

    url: str
    redirect: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Device:
    """What the person types elsewhere, and how we ask whether they did."""

    user_code: str
    url: str
    code: str = field(repr=False)
    interval: float = _POLL_SECONDS
    expires_in: float = 600.0


def start(settings: OAuth, redirect: str) -> Started:
    """Begin with PKCE; the verifier never leaves this process before the code comes back."""
    if settings.authorization_url is None:
        raise InvalidInput("there is no authorizationUrl", hint="Set models.providers.<id>.oauth.")
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    hide(verifier, state)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code",
        "client_id": settings.client_id,
        "redirect_uri": redirect,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        **({"scope": " ".join(settings.scopes)} if settings.scopes else {}),
    }
    joint = "&" if urlsplit(settings.authorization_url).query else "?"
    return Started(f"{settings.authorization_url}{joint}{urlencode(asked)}", redirect, state, verifier)


def code_in(said: str, started: Started, *, typed: bool = False) -> str:
    """The code in an address, a query, or `code#state` as some pages show it.

    An answer for another state is not ours; a bare code is taken only from who typed it.
    """
    said = said.strip()
    query = urlsplit(said).query if "://" in said else said.lstrip("?")
    found = {name: values[0] for name, values in parse_qs(query).items()}
    if not found.keys() & {"code", "error"} and typed:
        code, _, state = said.partition("#")
        found = {"code": code, "state": state or started.state}
    if not secrets.compare_digest(found.get("state", "").encode(), started.state.encode()):
        raise Forbidden("that answer belongs to another login", code="oauth_state", hint="Begin again.")
    if "error" in found or not found.get("code"):
        raise OAuthRefused(f"the login was refused: {_named(found.get('error'))}", hint="Begin again.")
    hide(found["code"])
    return found["code"]


def redeem(settings: OAuth, started: Started, code: str) -> Tokens:
    """Tokens for the code that came back."""
    form = {"grant_type": "authorization_code", "code": code, "redirect_uri": started.redirect}
    return _tokens(_asked(settings, {**form, "code_verifier": started.verifier}))


def refresh(settings: OAuth, token: str) -> Tokens:
    """New tokens for an old one; `OAuthRefused` if it was revoked."""
    return _tokens(_asked(settings, {"grant_type": "refresh_token", "refresh_token": token}))


def revoke(settings: OAuth, token: str) -> None:
    """Tell the server that a token is not used any more, where it can be told."""
    if settings.revocation_url is not None:
        _post(settings.revocation_url, {"token": token, "client_id": settings.client_id})


def start_device(settings: OAuth) -> Device:
    assert settings.device_url is not None
    form = {"client_id": settings.client_id, "scope": " ".join(settings.scopes)}
    status, said = _post(settings.device_url, form)
    code, url = said.get("device_code"), said.get("verification_uri_complete") or said.get("verification_uri")
    if status != 200 or not isinstance(code, str) or not isinstance(url, str):
        raise OAuthRefused(f"no device code was given: {_named(said.get('error'))}")
    hide(code)
    return Device(
        user_code=str(said.get("user_code") or ""),
        url=url,
        code=code,
        interval=float(said.get("interval", _POLL_SECONDS)),
        expires_in=min(float(said.get("expires_in", 600)), _LONGEST_DEVICE),
    )


def wait_device(settings: OAuth, device: Device, sleep: Callable[[float], None] = time.sleep) -> Tokens:
    """Ask until the person has decided, no more often than the server allows."""
    until, pause = time.monotonic() + device.expires_in, device.interval
    while time.monotonic() < until:
        sleep(pause)
        status, said = _ask(settings, {"grant_type": _DEVICE_GRANT, "device_code": device.code})
        error = said.get("error")
        if status == 200 and error is None:
            return _tokens(said)
        if error == "slow_down":
            pause += _POLL_SECONDS
        elif error != "authorization_pending":
            raise OAuthRefused(f"the login was refused: {_named(error)}", hint="Begin again.")
    raise OAuthPending("nobody confirmed the code in time", hint="Begin again.")


def _asked(settings: OAuth, form: Mapping[str, str]) -> Mapping[str, Any]:
    """What the token endpoint gave. A refusal for good is told apart from trouble that passes."""
    status, said = _ask(settings, form)
    if status == 200:
        return said
    error = _named(said.get("error"))
    if status in (400, 401, 403) and error not in ("temporarily_unavailable", "slow_down"):
        raise OAuthRefused(f"the server gave no token: {error}", hint="Log in again: `holdfast login`.")
    raise Unavailable(f"the server of tokens answered {status}: {error}", code="oauth_unavailable")


def _ask(settings: OAuth, form: Mapping[str, str]) -> tuple[int, Mapping[str, Any]]:
    own = {"client_id": settings.client_id}
    if settings.client_secret is not None:
        own["client_secret"] = settings.client_secret.reveal(os.environ)
    return _post(settings.token_url, {**form, **own})


def _post(url: str, form: Mapping[str, str]) -> tuple[int, Mapping[str, Any]]:
    import httpx

    local = urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    try:
        with httpx.Client(timeout=SECONDS, trust_env=not local, follow_redirects=False) as client:
            answer = client.post(url, data=dict(form), headers={"Accept": "application/json"})
            said = json.loads(answer.content[:_MOST_ANSWER] or b"{}")
    except httpx.HTTPError as error:
        raise Unavailable(
            f"{urlsplit(url).hostname} cannot be reached: {type(error).__name__}", code="oauth_unavailable"
        ) from None  # the request that the error holds has secrets in it
    except ValueError:
        said = {}
    return answer.status_code, said if isinstance(said, dict) else {}


def _tokens(said: Mapping[str, Any]) -> Tokens:
    access, again, lasts = said.get("access_token"), said.get("refresh_token"), said.get("expires_in")
    if not isinstance(access, str) or not access:
        raise OAuthRefused("the server's answer holds no token")
    kind = str(said.get("token_type") or "bearer").lower()
    if kind != "bearer":
        raise OAuthRefused(f"a token of type {kind[:20]!r} cannot be used", hint="Only bearer tokens can.")
    again = again if isinstance(again, str) and again else None
    hide(access, *([again] if again else []))
    return Tokens(access, again, int(lasts) if isinstance(lasts, int | float) and lasts > 0 else None)


def _named(error: object) -> str:
    """An error's name as the server gives it, and nothing that could be more than a name."""
    text = str(error or "no reason given")
    return text if len(text) <= 60 and all(c.isalnum() or c in "_-. " for c in text) else "unreadable"


log = logging.getLogger(__name__)

FOLDER: Final = "logins"
DEFAULT: Final = "login"
EARLY_MS: Final = 120_000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """One login. `refused` is set when its refresh token was: then only logging in again helps."""

    id: str
    provider: str
    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)
    expires_at: int | None = None
    refused: bool = False

    @property
    def refreshable(self) -> bool:
        return self.refresh is not None and not self.refused

    def ends_soon(self, now: int) -> bool:
        return self.expires_at is not None and self.expires_at - EARLY_MS <= now

    def over(self, now: int) -> bool:
        """Whether nothing can be asked with it any more."""
        return not self.refreshable and self.expires_at is not None and self.expires_at <= now


class Logins:
    """Those of one home. Blocks; call it in a thread."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._folder = home.credentials / FOLDER
        self._clock = clock
        self._lock = threading.Lock()

    def listing(self, provider: str) -> list[Login]:
        """The logins of a provider, in the order they were made."""
        try:
            kept: Any = json.loads(self.path(provider).read_text("utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError):
            log.warning("%s cannot be read, so no login in it is used", self.path(provider))
            return []
        listed = kept.get("logins") if isinstance(kept, dict) else None
        found = [_read(id_, provider, one) for id_, one in (listed or {}).items()]
        logins = [login for login in found if login is not None]
        for login in logins:
            hide(login.access, *([login.refresh] if login.refresh else []))
        return logins

    def keep(self, provider: str, profile: str, tokens: Tokens) -> Login:
        """Keep what a person logged in for; a login of that name before it is replaced."""
        if not _NAME.fullmatch(profile):
            raise InvalidInput(f"not a name for a login: {profile[:40]!r}", hint="Use letters and digits.")
        login = Login(
            id=f"{provider}:{profile}",
            provider=provider,
            access=tokens.access,
            refresh=tokens.refresh,
            expires_at=self._ends(tokens),
        )
        with self._held(provider):
            others = [one for one in self.listing(provider) if one.id != login.id]
            self._write(provider, [*others, login])
        return login

    def remove(self, provider: str, profile: str) -> Login:
        with self._held(provider):
            known = self.listing(provider)
            gone = next((one for one in known if one.id == f"{provider}:{profile}"), None)
            if gone is None:
                raise NotFound(f"there is no login {provider}:{profile}", code="unknown_login")
            self._write(provider, [one for one in known if one is not gone])
        return gone

    def renewed(self, id_: str, settings: OAuth, provider: str, refused: str | None = None) -> Login | None:
        """The login, refreshed if it ends soon, or if `refused` is the very token that it has.

        None if there is no such login. One whose refresh token is refused is marked so and given back as it
        is; so is one that cannot be refreshed now.
        """
        with self._held(provider):
            known = self.listing(provider)
            login = next((one for one in known if one.id == id_), None)
            if login is None or not login.refreshable:
                return login
            if not (login.access == refused or (refused is None and login.ends_soon(self._clock.now()))):
                return login
            after = self._refreshed(login, settings)
            if after != login:
                self._write(provider, [after if one is login else one for one in known])
            return after

    def _refreshed(self, login: Login, settings: OAuth) -> Login:
        assert login.refresh is not None
        try:
            tokens = refresh(settings, login.refresh)
        except OAuthRefused as error:
            log.warning("the login %s is over: %s; run `holdfast login`", login.id, error.message)
            return replace(login, refused=True)
        except Unavailable as error:
            log.warning("the login %s was not refreshed: %s", login.id, error.message)
            return login
        log.info("the login %s was refreshed", login.id)
        again = tokens.refresh or login.refresh
        return replace(login, access=tokens.access, refresh=again, expires_at=self._ends(tokens))

    def _ends(self, tokens: Tokens) -> int | None:
        return None if tokens.expires_in is None else self._clock.now() + tokens.expires_in * 1000

    def path(self, provider: str) -> Path:
        if not _NAME.fullmatch(provider):
            raise InvalidInput(f"not the name of a provider: {provider[:40]!r}")
        return self._folder / f"{provider}.json"

    def _write(self, provider: str, logins: list[Login]) -> None:
        path = self.path(provider)
        if not logins:
            path.unlink(missing_ok=True)
            return
        written(path, {"version": 1, "logins": {login.id: _json(login) for login in logins}})

    @contextlib.contextmanager
    def _held(self, provider: str) -> Iterator[None]:
        """Alone with a provider's file, among the threads here and the processes on this machine."""
        path = self.path(provider).with_suffix(".lock")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock, os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600)) as file:
            with contextlib.suppress(ImportError):  # where there is no fcntl, the thread's lock has to do
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _json(login: Login) -> dict[str, Any]:
    kept = {
        "provider": login.provider,
        "type": "oauth",
        "access": login.access,
        "refresh": login.refresh,
        "expires": login.expires_at,
        "refused": login.refused or None,
    }
    return {name: value for name, value in kept.items() if value is not None}


def _read(id_: str, provider: str, kept: Mapping[str, Any]) -> Login | None:
    try:
        expires = kept.get("expires")
        return Login(
            id=id_,
            provider=provider,
            access=str(kept["access"]),
            refresh=kept.get("refresh"),
            expires_at=None if expires is None else int(expires),
            refused=kept.get("refused") is True,
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
