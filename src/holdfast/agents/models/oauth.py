"""OAuth 2 as a client speaks it: authorisation code with PKCE, device code, refresh. Blocks; no state here.

Nothing that a server says is repeated but its error's name: an answer may hold tokens.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from holdfast.config.models import OAuth
from holdfast.errors import Forbidden, InvalidInput, Unauthorized, Unavailable
from holdfast.logs import hide

SECONDS: Final = 20.0
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_POLL_SECONDS: Final = 5.0
_LONGEST_DEVICE: Final = 1800.0
_MOST_ANSWER: Final = 256 * 1024


class OAuthRefused(Unauthorized):
    """The server will not give a token for this, however often it is asked."""

    code = "oauth_refused"


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
    raise OAuthRefused("nobody confirmed the code in time", hint="Begin again.")


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
