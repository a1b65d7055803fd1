"""Logins: tokens that a person got by logging in, kept for their owner only and refreshed once for all.

One file for each provider under `credentials/logins`. Whoever refreshes holds a lock that other processes
see, and looks at the file again before: a token that another has refreshed meanwhile is the one to use.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from holdfast.agents.models import oauth
from holdfast.agents.models.files import written
from holdfast.agents.models.oauth import OAuthRefused, Tokens
from holdfast.clock import Clock
from holdfast.config.models import OAuth
from holdfast.errors import InvalidInput, NotFound, Unavailable
from holdfast.home import Home
from holdfast.logs import hide

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
            tokens = oauth.refresh(settings, login.refresh)
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
