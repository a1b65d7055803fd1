"""`/api/providers`: where models come from, the keys that are kept for them, and logging in to them.

No secret is ever in an answer. A login that is under way is remembered by the process that began it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from holdfast.agents.models import logins as oauth
from holdfast.agents.models.catalogue import BUILT_IN
from holdfast.agents.models.credentials import Credential
from holdfast.agents.models.logins import Device, Logins, Started
from holdfast.clock import iso
from holdfast.config import public_dump
from holdfast.config.models import OAuth
from holdfast.errors import InvalidInput, NotFound
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Gateway, Here
from holdfast.gateway.contract import Answer, Iso, OkOut, answer, answers, ok
from holdfast.gateway.wire import Text, Wire
from holdfast.log import audit

router = APIRouter(tags=["system"], route_class=StrictRoute)

Ref = Annotated[str, Path(alias="id", min_length=1, max_length=256)]
Profile = Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,39}$")]
MOST_UNDER_WAY: Final = 16
LASTS_MS: Final = 15 * 60_000
_WAIT_SECONDS: Final = 20.0


class ProviderLoginOut(Answer):
    id: str
    expires_at: Iso | None
    refreshable: bool
    over: bool = Field(description="Only logging in again helps.")


class ProviderOut(Answer):
    name: str
    configured: bool = Field(description="It stands in the config; the others come with Holdfast.")
    keys: list[str] = Field(description="Names of the keys that are kept for the default agent.")
    api: str | None
    base_url: str | None
    models: list[str]
    has_key: bool
    oauth: bool = Field(description="One can log in to it.")
    logins: list[ProviderLoginOut]


class KeyIn(Wire):
    key: Annotated[Text, Field(min_length=8, max_length=4_000)]
    profile: Profile = "page"


class LoginBeginIn(Wire):
    profile: Profile = "login"


class LoginBegunOut(Answer):
    login_id: str
    kind: Literal["device", "page"] = Field(
        description="`device`: a code is typed elsewhere; `page`: what the page ended at is brought back."
    )
    url: str
    user_code: str | None


class LoginEndIn(Wire):
    login_id: Annotated[str, Field(max_length=64)]
    answer: Annotated[Text, Field(max_length=4_000)] | None = Field(
        default=None, description="The code, or the address that the page ended at."
    )


class LoginStateOut(Answer):
    state: Literal["waiting", "done"]
    login: ProviderLoginOut | None


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A login that a person is at."""

    provider: str
    profile: str
    began: int
    step: Started | Device = field(repr=False)


@router.get("/api/providers", response_model=list[ProviderOut])
async def providers(here: Here, caller: Admin) -> Response:
    """The providers of models in the config: whether there is a key, and who is logged in."""
    return answers(await here.hold.threads(_providers, here))


@router.delete("/api/providers/{id}/logins/{profile}", response_model=OkOut)
async def log_out_of(
    here: Here, caller: Admin, id_: Ref, profile: Annotated[str, Path(max_length=64)]
) -> Response:
    """Forget a login to a provider."""

    def write() -> None:
        Logins(here.hold.home, here.hold.clock).remove(id_, profile)
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "provider.logout", f"{id_}:{profile}")

    await here.hold.threads(write)
    return ok()


@router.put("/api/providers/{id}/key", response_model=OkOut)
async def keep_key(here: Here, caller: Admin, id_: Ref, body: KeyIn) -> Response:
    """Keep a key for a provider with the default agent's credentials; it is used at once, and never shown."""

    def write() -> None:
        _known(here, id_)
        agent = here.hold.settings.default_agent_id
        kept = f"{id_}:{body.profile}"
        credentials = here.hold.agency.models.credentials
        credentials.put(agent, kept, id_, body.key.strip())
        credentials.succeeded(Credential(kept, id_, ""))
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "provider.key", kept)

    await here.hold.threads(write)
    return ok()


@router.delete("/api/providers/{id}/keys/{profile}", response_model=OkOut)
async def drop_key(
    here: Here, caller: Admin, id_: Ref, profile: Annotated[str, Path(max_length=64)]
) -> Response:
    """Forget a key that was kept for the default agent."""

    def write() -> None:
        agent = here.hold.settings.default_agent_id
        if not here.hold.agency.models.credentials.drop(agent, f"{id_}:{profile}", id_):
            raise NotFound(f"there is no key {id_}:{profile}"[:200], code="unknown_key")
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "provider.key_forgotten", f"{id_}:{profile}")

    await here.hold.threads(write)
    return ok()


@router.post("/api/providers/{id}/login", response_model=LoginBegunOut)
async def begin_login(here: Here, caller: Admin, id_: Ref, body: LoginBeginIn) -> Response:
    """Begin to log in: where to go, and the code to type there if there is one."""

    def begin() -> LoginBegunOut:
        settings = _oauth(here, id_)
        step = _first_step(settings)
        login_id = secrets.token_urlsafe(16)
        _remember(here, login_id, UnderWay(id_, body.profile, here.hold.clock.now(), step))
        is_device = isinstance(step, Device)
        return LoginBegunOut(
            login_id=login_id,
            kind="device" if is_device else "page",
            url=_safe(step.url),
            user_code=step.user_code if isinstance(step, Device) else None,
        )

    return answer(await here.hold.threads(begin))


@router.post("/api/providers/{id}/login/end", response_model=LoginStateOut)
async def end_login(here: Here, caller: Admin, id_: Ref, body: LoginEndIn) -> Response:
    """End a login: with what the page ended at, or by waiting a while until the code was typed elsewhere."""

    def end() -> LoginStateOut:
        at = here.logins.get(body.login_id)
        if at is None or at.provider != id_ or at.began + LASTS_MS < here.hold.clock.now():
            raise NotFound("this login is over", code="login_over", hint="Begin again.")
        tokens = _redeemed(_oauth(here, id_), at.step, body.answer)
        if tokens is None:
            return LoginStateOut(state="waiting", login=None)
        here.logins.pop(body.login_id, None)
        kept = Logins(here.hold.home, here.hold.clock).keep(id_, at.profile, tokens)
        here.hold.agency.models.credentials.succeeded(Credential(kept.id, id_, "", "oauth"))
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "provider.login", kept.id)
        found = next(one for one in _logins(here, id_) if one.id == kept.id)
        return LoginStateOut(state="done", login=found)

    return answer(await here.hold.threads(end))


def _redeemed(settings: OAuth, step: Started | Device, said: str | None) -> oauth.Tokens | None:
    """What the server gives for it; None while nobody has typed the code."""
    if isinstance(step, Device):
        some = replace(step, expires_in=min(step.expires_in, max(_WAIT_SECONDS, step.interval)))
        try:
            return oauth.wait_device(settings, some)
        except oauth.OAuthPending:
            return None
    if said is None:
        hint = "Paste the code, or the address that the page ended at."
        raise InvalidInput("the code is missing", hint=hint)
    return oauth.redeem(settings, step, oauth.code_in(said, step, typed=True))


def _first_step(settings: OAuth) -> Started | Device:
    if settings.device_url is not None:
        return oauth.start_device(settings)
    port = settings.redirect_port or oauth.NOBODYS_PORT
    return oauth.start(settings, f"http://127.0.0.1:{port}{settings.redirect_path}")


def _safe(url: str) -> str:
    """The address that a provider names is a link on a page: to the web, and to nothing that runs."""
    if not re.match(r"https?://", url, re.IGNORECASE):
        raise oauth.OAuthRefused("the provider names an address that is none of the web")
    return url


def _remember(here: Gateway, login_id: str, at: UnderWay) -> None:
    now = here.hold.clock.now()
    for old in [name for name, one in here.logins.items() if one.began + LASTS_MS < now]:
        here.logins.pop(old, None)
    while len(here.logins) >= MOST_UNDER_WAY:
        here.logins.pop(next(iter(here.logins)), None)
    here.logins[login_id] = at


def _oauth(here: Gateway, provider: str) -> OAuth:
    found = here.hold.settings.models.providers.get(provider)
    if found is None or found.oauth is None:
        raise InvalidInput(
            f"nobody can log in to {provider[:64]!r}: the config does not say how",
            code="no_login",
            hint="Set oauth of the provider, or use a key.",
        )
    return found.oauth


def _known(here: Gateway, provider: str) -> None:
    known = {name for name, _ in _names(here)}
    if provider not in known:
        raise NotFound(
            f"no provider {provider[:64]!r}",
            code="unknown_provider",
            hint=f"There are: {', '.join(sorted(known))}.",
        )


def _names(here: Gateway) -> Iterator[tuple[str, bool]]:
    """Every provider that can be used, and whether the config names it; the config's first."""
    models = here.hold.settings.models
    yield from ((name, True) for name in models.providers)
    if models.mode == "merge":
        yield from (
            (n, False) for n, one in BUILT_IN.items() if n not in models.providers and not one.keyless
        )


def _logins(here: Gateway, provider: str) -> list[ProviderLoginOut]:
    now = here.hold.clock.now()
    return [
        ProviderLoginOut(
            id=one.id,
            expires_at=None if one.expires_at is None else iso(one.expires_at),
            refreshable=one.refreshable,
            over=one.over(now),
        )
        for one in Logins(here.hold.home, here.hold.clock).listing(provider)
    ]


def _providers(here: Gateway) -> list[ProviderOut]:
    settings = here.hold.settings
    shown = public_dump(settings)["models"]["providers"]
    kept = here.hold.agency.models.credentials.kept(settings.default_agent_id)
    return [
        ProviderOut(
            name=name,
            configured=configured,
            keys=[one.id for one in kept if one.provider == name and one.mode != "oauth"],
            api=shown[name].get("api") if configured else BUILT_IN[name].api,
            base_url=shown[name].get("baseUrl") if configured else None,
            models=[entry.id for entry in settings.models.providers[name].models] if configured else [],
            has_key=configured and settings.models.providers[name].api_key is not None,
            oauth=configured and settings.models.providers[name].oauth is not None,
            logins=_logins(here, name),
        )
        for name, configured in _names(here)
    ]
