"""Credentials for providers: where they are found, in which order they are used, and how long they rest.

An agent's own `agents/<id>/agent/auth-profiles.json` comes first, then the main agent's, then logins, then
the files in `credentials/`, then the config's key, then the environment. None is ever shown: each is masked
in the logs as soon as it is read.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.agents.models.catalogue import Endpoint
from holdfast.agents.models.logins import Login, Logins, written
from holdfast.agents.models.types import FailureReason
from holdfast.clock import Clock
from holdfast.config.models import AuthConfig, Cooldowns
from holdfast.errors import ConfigError, Conflict, InvalidInput
from holdfast.home import Home
from holdfast.logs import hide

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
RESTING: Final[frozenset[FailureReason]] = frozenset(("auth", "billing", "rate_limit"))


@dataclass(frozen=True, slots=True)
class Rest:
    """A credential's failures since its last success. Billing is counted apart: it lasts longer."""

    failures: int = 0
    billing: int = 0
    last_at: int = 0
    until: int = 0
    reason: FailureReason | None = None

    def resting(self, now: int) -> bool:
        return now < self.until


FRESH: Final = Rest()


def after_failure(
    rest: Rest, reason: FailureReason, now: int, rules: Cooldowns, retry_after_ms: int | None = None
) -> Rest:
    """The state after one more failure. A rest never ends earlier than one that was already given, nor
    than the provider asked for; failures older than the window do not count."""
    if now - rest.last_at >= rules.failure_window_hours * HOUR_MS:
        rest = Rest(until=rest.until)
    billing = rest.billing + (reason == "billing")
    failures = rest.failures + (reason != "billing")
    length = (
        _grown(rules.billing_backoff_hours * HOUR_MS, 2.0, billing, rules.billing_max_hours * HOUR_MS)
        if reason == "billing"
        else _grown(rules.base_minutes * MINUTE_MS, rules.factor, failures, rules.max_minutes * MINUTE_MS)
    )
    return Rest(failures, billing, now, max(rest.until, now + max(length, retry_after_ms or 0)), reason)


def _grown(first: int, factor: float, count: int, most: int) -> int:
    """`first` times `factor` for every failure after the first, at most `most`."""
    length = float(first)
    for _ in range(count - 1):
        if length >= most:
            break
        length *= factor
    return int(min(length, most))


log = logging.getLogger(__name__)

PROFILES: Final = "auth-profiles.json"
STATE: Final = "auth-state.json"
Mode = Literal["api_key", "oauth", "token"]
_SECRETS: Final[tuple[tuple[str, Mode], ...]] = (
    ("key", "api_key"),
    ("apiKey", "api_key"),
    ("api_key", "api_key"),
    ("access", "oauth"),
    ("access_token", "oauth"),
    ("accessToken", "oauth"),
    ("token", "token"),
)


_MILLIS_FROM: Final = 100_000_000_000


@dataclass(frozen=True, slots=True)
class Credential:
    """One way to be let in. `id` may be shown, `secret` never."""

    id: str
    provider: str
    secret: str = field(repr=False)
    mode: Mode = "api_key"
    expires_at: int | None = None
    refreshable: bool = False

    def expired(self, now: int) -> bool:
        """Whether it is of no use any more; one that can be refreshed is."""
        return not self.refreshable and self.expires_at is not None and self.expires_at <= now

    @property
    def is_anthropic_oauth(self) -> bool:
        """Whether this was given to a person by logging in, which Anthropic's API wants to be told."""
        return self.mode == "oauth" or self.secret.startswith("sk-ant-oat")


class Credentials:
    """The credentials of one home, with a memory of those that failed that outlives the process."""

    def __init__(
        self,
        home: Home,
        clock: Clock,
        env: Mapping[str, str],
        agent_dir: Callable[[str], Path] | None = None,
    ) -> None:
        """`agent_dir` says where an agent's profiles lie; unset: where the home has them."""
        self._home = home
        self._clock = clock
        self._env = env
        self._agent_dir = agent_dir or home.agent_dir
        self.logins = Logins(home, clock)
        self._lock = threading.Lock()
        self._files: dict[Path, tuple[tuple[int, int, int], Any]] = {}

    def usable(self, endpoint: Endpoint, agent_id: str, main_id: str, auth: AuthConfig) -> list[Credential]:
        """Every credential for a provider in the order of use: rested ones first, each group as ordered."""
        now = self._clock.now()
        found = list(self._found(endpoint, agent_id, main_id))
        order = {name: place for place, name in enumerate(auth.order.get(endpoint.provider, ()))}
        found.sort(key=lambda one: order.get(one.id, len(order)))
        rests = self._load()
        return sorted(
            found,
            key=lambda one: (one.expired(now), at if (at := rests.get(one.id, FRESH).until) > now else 0),
        )

    def rest(self, credential_id: str) -> Rest:
        return self._load().get(credential_id, FRESH)

    def failed(
        self,
        credential: Credential,
        reason: FailureReason,
        auth: AuthConfig,
        retry_after_ms: int | None = None,
    ) -> Rest:
        """Let a credential rest as `auth.cooldowns` says."""
        with self._lock:
            rests = self._load()
            rest = after_failure(
                rests.get(credential.id, FRESH), reason, self._clock.now(), auth.cooldowns, retry_after_ms
            )
            self._keep({**rests, credential.id: rest})
        return rest

    def succeeded(self, credential: Credential) -> None:
        """Forget what a credential did wrong."""
        if credential.id not in self._load():
            return
        with self._lock:
            self._keep({name: rest for name, rest in self._load().items() if name != credential.id})

    def renewed(
        self, credential: Credential, endpoint: Endpoint, *, refused: bool = False
    ) -> Credential | None:
        """A login as it can be used now, refreshed if it must be; None if it is none or is gone. Blocks."""
        if not credential.refreshable or endpoint.oauth is None:
            return None
        told = credential.secret if refused else None
        login = self.logins.renewed(credential.id, endpoint.oauth, endpoint.provider, told)
        return None if login is None else credential_of(login)

    def put(self, agent_id: str, profile_id: str, provider: str, secret: str, mode: Mode = "api_key") -> Path:
        """Keep a credential in an agent's profiles, readable by its owner only."""
        if not (profile_id.strip() and provider.strip() and secret.strip()):
            raise InvalidInput(
                "a profile needs a name, a provider and a secret", hint="None of them may be empty."
            )
        path = self._agent_dir(agent_id) / PROFILES
        told = {"api_key": "key", "oauth": "access", "token": "token"}[mode]
        with self._lock:
            kept = self._read(path)
            if kept is None and path.exists():
                raise Conflict(f"{path} cannot be read", hint="Mend the file or move it away.")
            kept = kept if isinstance(kept, dict) else {}
            profiles = kept.get("profiles")
            entry = {"type": mode, "provider": provider, told: secret}
            listed = {**(profiles if isinstance(profiles, dict) else {}), profile_id: entry}
            written(path, {**kept, "version": 1, "profiles": listed})
        hide(secret)
        return path

    def kept(self, agent_id: str) -> list[Credential]:
        """What is kept in an agent's profiles."""
        return profiles_in(self._read(self._agent_dir(agent_id) / PROFILES))

    def drop(self, agent_id: str, profile_id: str, provider: str) -> bool:
        """Forget one of them; whether it was there."""
        path = self._agent_dir(agent_id) / PROFILES
        with self._lock:
            kept = self._read(path)
            profiles = kept.get("profiles") if isinstance(kept, dict) else None
            if not isinstance(profiles, dict) or not isinstance(profiles.get(profile_id), dict):
                return False
            if profiles[profile_id].get("provider") != provider:
                return False
            left = {name: entry for name, entry in profiles.items() if name != profile_id}
            written(path, {**kept, "profiles": left})
        return True

    def _found(self, endpoint: Endpoint, agent_id: str, main_id: str) -> Iterator[Credential]:
        """Each credential once, where it is found first."""
        seen: set[str] = set()
        for one in self._all(endpoint, agent_id, main_id):
            if one.provider == endpoint.provider and one.secret not in seen:
                seen.add(one.secret)
                hide(one.secret)
                yield one

    def _all(self, endpoint: Endpoint, agent_id: str, main_id: str) -> Iterator[Credential]:
        for agent in dict.fromkeys((agent_id, main_id)):
            yield from profiles_in(self._read(self._agent_dir(agent) / PROFILES))
        name = endpoint.provider
        if endpoint.oauth is not None and self.logins.path(name).exists():
            yield from (credential_of(login) for login in self.logins.listing(name))
        kept = self._read(self._home.credentials / f"{name}.json")
        yield from profiles_in({name: kept} if _is_one(kept) else {name: kept or {}})
        if endpoint.api_key is not None:
            try:
                yield Credential(f"{name}:config", name, endpoint.api_key.reveal(self._env))
            except ConfigError as error:
                log.warning("the key of %s cannot be used: %s", name, error.message)
        for variable in endpoint.env_keys:
            if value := self._env.get(variable, "").strip():
                yield Credential(f"{name}:env:{variable}", name, value)

    def _read(self, path: Path) -> Any:
        """A JSON file, read again when it changed; None when it is not there or is none."""
        try:
            stamp = path.stat()
            seen = (stamp.st_ino, stamp.st_size, stamp.st_mtime_ns)
            known = self._files.get(path)
            if known is not None and known[0] == seen:
                return known[1]
            text = path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            log.warning("%s cannot be read, so nothing in it is used: %s", path, type(error).__name__)
            return None
        if stamp.st_mode & 0o077:
            log.warning("%s can be read by others: run chmod 600 on it", path)
        self._files[path] = (seen, _parsed(path, text))
        return self._files[path][1]

    def _state(self) -> Path:
        return self._home.credentials / STATE

    def _load(self) -> Mapping[str, Rest]:
        kept = self._read(self._state())
        return {name: _rest(one) for name, one in kept.items()} if isinstance(kept, dict) else {}

    def _keep(self, rests: Mapping[str, Rest]) -> None:
        written(self._state(), {name: asdict(rest) for name, rest in rests.items()})


def credential_of(login: Login) -> Credential:
    return Credential(
        login.id, login.provider, login.access, "oauth", login.expires_at, refreshable=login.refreshable
    )


def profiles_in(kept: Any) -> list[Credential]:
    """The profiles of a file, `{"profiles": {id: {provider, key}}}` or `{provider: {name: {token}}}`."""
    if not isinstance(kept, dict):
        return []
    listed = kept.get("profiles")
    named = listed.items() if isinstance(listed, dict) else ()
    found = [_profile(name, "", one) for name, one in named]
    for provider, under in kept.items():
        accounts = {"default": under} if _is_one(under) else under
        if isinstance(accounts, dict) and provider != "profiles":
            found += [_profile(f"{provider}:{name}", provider, one) for name, one in accounts.items()]
    return [one for one in found if one is not None]


def _parsed(path: Path, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        log.warning("%s is not JSON, so nothing in it is used", path)
        return None


def _is_one(value: Any) -> bool:
    """Whether this is a credential itself and not a map of them."""
    return isinstance(value, str) or (
        isinstance(value, dict) and any(isinstance(value.get(name), str) for name, _ in _SECRETS)
    )


def _profile(id_: str, provider: str, entry: Any) -> Credential | None:
    if isinstance(entry, str):
        entry = {"key": entry}
    if not isinstance(entry, dict):
        return None
    for name, mode in _SECRETS:
        secret = entry.get(name)
        if isinstance(secret, str) and secret.strip():
            said = entry.get("type") or entry.get("mode")
            expires = entry.get("expires") or entry.get("expires_at")
            return Credential(
                id_,
                str(entry.get("provider") or provider),
                secret.strip(),
                said if said in ("api_key", "oauth", "token") else mode,
                _millis(expires) if isinstance(expires, int | float) and expires > 0 else None,
            )
    return None


def _millis(when: float) -> int:
    """Seconds or milliseconds since the epoch, whichever it is."""
    return int(when if when > _MILLIS_FROM else when * 1000)


def _rest(kept: Any) -> Rest:
    """A kept state; what cannot be read counts as none."""
    try:
        return replace(FRESH, **kept)
    except TypeError:
        return FRESH
