"""`/api/oidc`: logging in by the provider that the config names, staying so, and logging out."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import replace
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from holdfast.errors import NotFound, Unauthorized
from holdfast.gateway import page_sessions
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Caller, Gateway, Here
from holdfast.gateway.contract import Answer, OkOut, answer, ok
from holdfast.gateway.guard import address_of
from holdfast.gateway.oidc import Granted, Provider, opened, person_of, sealed
from holdfast.gateway.page_sessions import COOKIE
from holdfast.gateway.tokens import NOBODY_YET, Principal
from holdfast.log import Origin, audit
from holdfast.people import contacts

router = APIRouter(tags=["people"], route_class=StrictRoute)

BROWSER: Final = "holdfast_oidc"
CALLBACK: Final = "/api/oidc/callback"
_MINUTE_MS: Final = 60_000
# The cookie of the login is not sent along by a page that another site led to; by this one's own link it is.
_ON: Final = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/">'
    '<title>Logged in</title><a href="/">Go on</a>'
)


class LogoutOut(Answer):
    ok: bool
    url: str | None


@router.get("/api/oidc/login")
async def login(here: Here, request: Request) -> Response:
    """Go to the provider. What comes back counts only in this browser, once, within ten minutes."""
    browser, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))

    def begin() -> str:
        provider = _provider(here, request)
        with here.write_as(NOBODY_YET, ordered=False) as tx:
            mine = _digest(browser)
            state = contacts.make_code(tx, "oidc", nonce=nonce, verifier=verifier, browser=mine)
        return provider.address(state, nonce, verifier)

    answer = RedirectResponse(await here.hold.threads(begin), 302, headers={"Cache-Control": "no-store"})
    answer.set_cookie(
        BROWSER,
        browser,
        max_age=contacts.CODE_MS // 1000,
        path="/api/oidc",
        httponly=True,
        samesite="lax",
        secure=_is_secure(here, request),
    )
    return answer


@router.get(CALLBACK)
async def callback(
    here: Here,
    request: Request,
    state: Annotated[str, Query(min_length=1, max_length=512)],
    code: Annotated[str | None, Query(max_length=4096)] = None,
    error: Annotated[str | None, Query(max_length=200)] = None,
) -> Response:
    """Where the provider sends the browser back to."""
    origin = Origin("page", address_of(request.scope))

    def come_in() -> tuple[str, str | None]:
        with here.write_as(NOBODY_YET, ordered=False) as tx:
            kept = contacts.spend_code(tx, "oidc", state)
        mine = _digest(request.cookies.get(BROWSER, ""))
        if code is None or not hmac.compare_digest(mine, str(kept["browser"])):
            why = "it was begun in another browser" if code else f"the provider said {error or 'nothing'!r}"
            raise Unauthorized(f"the login was broken off: {why}", code="oidc_broken_off", hint="Try again.")
        granted = _provider(here, request).redeem(code, kept["verifier"], kept["nonce"], _now(here))
        return _let_in(here, granted, origin, request.headers.get("user-agent")), granted.refresh

    cookie, _ = await here.hold.threads(come_in)
    answer = HTMLResponse(_ON, headers={"Cache-Control": "no-store"})
    answer.delete_cookie(BROWSER, path="/api/oidc")
    _keep(answer, here, request, cookie)
    return answer


@router.post("/api/oidc/refresh", response_model=OkOut)
async def refresh(here: Here, caller: Caller, request: Request) -> Response:
    """Have the provider vouch again: the login goes on for as long as before, or ends at once."""
    cookie = request.cookies.get(COOKIE, "")

    def again() -> None:
        kept = _kept(here, caller, cookie)
        try:
            token = opened(str(kept["refresh"]), cookie)
            granted = _provider(here, request).renew(token, str(kept["subject"]), _now(here))
        except Unauthorized:
            here.book.end_session(caller, cookie)
            raise
        with here.write_as(caller, ordered=False) as tx:
            person_of(tx, here.hold.settings.teams.oidc, granted.claims)
            page_sessions.prolong(tx, page_sessions.id_of(cookie), _lasts(here))
            _keep_refresh(here, tx, cookie, granted)
            audit.note(tx, "login.renewed", caller.name, by=caller.actor)

    await here.hold.threads(again)
    told = ok()
    _keep(told, here, request, cookie)
    return told


@router.post("/api/oidc/logout", response_model=LogoutOut)
async def logout(here: Here, caller: Caller, request: Request) -> Response:
    """End the login here; and the address at which it ends at the provider as well."""
    cookie = request.cookies.get(COOKIE, "")

    def end() -> str | None:
        here.book.end_session(caller, cookie)
        return _provider(here, request).logout_address(_base(here, request))

    told = answer(LogoutOut(ok=True, url=await here.hold.threads(end)))
    told.delete_cookie(COOKIE, samesite="strict", httponly=True)
    return told


def _let_in(here: Gateway, granted: Granted, origin: Origin, program: str | None) -> str:
    """The cookie of a new login of whom the provider vouches for."""
    with here.write_as(replace(NOBODY_YET, origin=origin), ordered=False) as tx:
        user = person_of(tx, here.hold.settings.teams.oidc, granted.claims)
        audit.note(tx, "login", user.login, by=f"user:{user.login}", issuer=str(granted.claims["iss"]))
    person = replace(here.book.of_user(user.id), origin=origin)
    cookie = here.book.open_session(person, days=1, lasts_ms=_lasts(here), program=program)
    with here.write_as(person, ordered=False) as tx:
        _keep_refresh(here, tx, cookie, granted)
    return cookie


def _keep_refresh(here: Gateway, tx: Any, cookie: str, granted: Granted) -> None:
    if granted.refresh is not None:
        kept = {"refresh": sealed(granted.refresh, cookie), "subject": str(granted.claims["sub"])}
        contacts.keep(tx, f"refresh:{cookie}", "refresh", kept, _lasts(here))


def _kept(here: Gateway, caller: Principal, cookie: str) -> dict[str, Any]:
    with here.read_as(caller) as tx:
        found = contacts.kept(tx, f"refresh:{cookie}", "refresh")
    if found is None:
        raise NotFound(
            "this login cannot be renewed", code="no_refresh", hint="Ask the provider for offline_access."
        )
    return found


def _keep(answer: Response, here: Gateway, request: Request, cookie: str) -> None:
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=_lasts(here) // 1000,
        httponly=True,
        samesite="strict",
        secure=_is_secure(here, request),
    )


def _provider(here: Gateway, request: Request) -> Provider:
    return Provider(here.hold.settings.teams.oidc, _base(here, request).rstrip("/") + CALLBACK)


def _base(here: Gateway, request: Request) -> str:
    return here.hold.settings.gateway.public_url or str(request.base_url)


def _is_secure(here: Gateway, request: Request) -> bool:
    public = here.hold.settings.gateway.public_url or ""
    return public.startswith("https://") or request.url.scheme == "https"


def _lasts(here: Gateway) -> int:
    return here.hold.settings.teams.oidc.session_minutes * _MINUTE_MS


def _now(here: Gateway) -> int:
    return int(here.hold.clock.now())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
