"""Login by an OpenID provider: the authorization code with PKCE, state and nonce, and what is believed of it.

What a provider says is believed only as far as its signature, its audience, its time and the nonce of this
very login go. Who is let in, with which role and into which teams, the config says.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.runtime import OidcConfig
from holdfast.errors import ConfigError, Forbidden, NotFound, Unauthorized, Unavailable
from holdfast.log import Tx
from holdfast.people import Right, Role, User, roles, teams, users

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import OAuth2Client

SECONDS: Final = 10.0
# Signed with a key that only the provider has: never `none`, never one that is made of our own secret.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA", "RS384", "RS512", "PS384", "PS512", "ES384", "ES512")
_DISCOVERY: Final = "/.well-known/openid-configuration"


@dataclass(frozen=True, slots=True)
class Granted:
    """What a provider gave for a code: whom it vouches for, and a token to ask again with, if any."""

    claims: Mapping[str, Any]
    refresh: str | None


class Provider:
    """The provider that the config names. Every method blocks."""

    def __init__(self, settings: OidcConfig, redirect: str) -> None:
        if settings.issuer is None or settings.client_id is None:
            raise NotFound(
                "no provider is configured", code="no_provider", hint="Set teams.oidc.issuer and clientId."
            )
        self._settings = settings
        self._issuer = settings.issuer
        self._client_id = settings.client_id
        self._redirect = redirect

    def address(self, state: str, nonce: str, verifier: str) -> str:
        """Where the person logs in."""
        # A provider hands out tokens to ask again with only where the person is asked for it.
        asks = {"prompt": "consent"} if "offline_access" in self._settings.scopes else {}
        with self._client() as client:
            url, _ = client.create_authorization_url(
                self._described(client)["authorization_endpoint"],
                state=state,
                nonce=nonce,
                code_verifier=verifier,
                response_type="code",
                **asks,
            )
        return str(url)

    def redeem(self, code: str, verifier: str, nonce: str, now: int) -> Granted:
        """Trade a code for what the provider says of the person, checked."""
        with self._client() as client:
            known = self._described(client)
            given = _asked(
                lambda: client.fetch_token(
                    known["token_endpoint"],
                    code=code,
                    code_verifier=verifier,
                    grant_type="authorization_code",
                )
            )
            return self._granted(client, known, given, nonce, now)

    def renew(self, refresh: str, subject: str, now: int) -> Granted:
        """Ask the provider whether it still vouches for somebody."""
        with self._client() as client:
            known = self._described(client)
            client.scope = None  # what was granted stays granted; to name more would be refused
            given = _asked(lambda: client.refresh_token(known["token_endpoint"], refresh_token=refresh))
            granted = self._granted(client, known, given, None, now)
        if granted.claims.get("sub") != subject:
            raise _not_believed("it is about somebody else")
        return Granted(granted.claims, granted.refresh or refresh)

    def logout_address(self, back: str) -> str | None:
        """Where one logs out at the provider too, if it has such a place."""
        with self._client() as client:
            place = self._described(client).get("end_session_endpoint")
            if place is None:
                return None
            named = {"client_id": self._client_id, "post_logout_redirect_uri": back}
            return str(client.build_request("GET", place, params=named).url)

    def _granted(
        self,
        client: OAuth2Client,
        known: Mapping[str, Any],
        given: Mapping[str, Any],
        nonce: str | None,
        now: int,
    ) -> Granted:
        token = given.get("id_token")
        if not isinstance(token, str):
            raise _not_believed("it sent no ID token")
        claims = self._signed(token, _json(client, known["jwks_uri"]))
        check_claims(
            claims,
            issuer=self._issuer,
            client_id=self._client_id,
            nonce=nonce,
            now=now // 1000,
            leeway=self._settings.leeway_seconds,
        )
        refresh = given.get("refresh_token")
        return Granted(claims, refresh if isinstance(refresh, str) else None)

    def _signed(self, token: str, keys: Mapping[str, Any]) -> Mapping[str, Any]:
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            found = KeySet.import_key_set({"keys": list(keys.get("keys") or ())})
            return dict(jwt.decode(token, found, algorithms=list(ALGORITHMS)).claims)
        except (JoseError, ValueError, TypeError) as error:
            raise _not_believed(f"its signature does not hold ({type(error).__name__})") from error

    def _described(self, client: OAuth2Client) -> Mapping[str, Any]:
        found = _json(client, self._issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != self._issuer:
            raise ConfigError(
                f"teams.oidc.issuer: the provider calls itself {str(found.get('issuer'))[:200]!r}",
                hint="Write it to the letter as the provider does.",
            )
        return found

    def _client(self) -> OAuth2Client:
        try:
            from authlib.integrations.httpx_client import OAuth2Client
        except ImportError as error:
            raise Unavailable(
                "logins by a provider need the package authlib",
                code="no_authlib",
                hint="pip install 'holdfast[people]'",
            ) from error
        secret = self._settings.client_secret
        return OAuth2Client(
            client_id=self._client_id,
            client_secret=None if secret is None else secret.reveal(os.environ),
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            scope=" ".join(self._settings.scopes),
            redirect_uri=self._redirect,
            code_challenge_method="S256",
            timeout=SECONDS,
            follow_redirects=False,
            trust_env=False,
        )


def check_claims(
    claims: Mapping[str, Any], *, issuer: str, client_id: str, nonce: str | None, now: int, leeway: int
) -> None:
    """OpenID Connect Core 3.1.3.7; `Unauthorized` with the first thing that does not hold."""
    heard = claims.get("aud")
    audiences = heard if isinstance(heard, list) else [heard]
    times = [claims.get(name) for name in ("exp", "iat")]
    checks = (
        (claims.get("iss") == issuer, "it is another's"),
        (client_id in audiences, "it is for somebody else"),
        (claims.get("azp", client_id) == client_id, "it was given to somebody else"),
        (len(audiences) == 1 or "azp" in claims, "it does not say to whom it was given"),
        (isinstance(claims.get("sub"), str) and claims["sub"], "it names nobody"),
        (all(isinstance(one, int | float) for one in times), "it has no times"),
    )
    for holds, why in checks:
        if not holds:
            raise _not_believed(why)
    if claims["exp"] + leeway <= now:
        raise _not_believed("it is over", clock=True)
    if max(claims["iat"], claims.get("nbf", 0)) - leeway > now:
        raise _not_believed("it is of a time to come", clock=True)
    if nonce is not None and claims.get("nonce") != nonce:
        raise _not_believed("it was made for another login")


def person_of(tx: Tx, settings: OidcConfig, claims: Mapping[str, Any]) -> User:
    """Whom the provider vouches for, with the role and the teams that the config maps its groups to."""
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    user = users.of_provider(tx, issuer, subject) or _met(tx, settings, claims, issuer, subject)
    if not user.active:
        raise Unauthorized("no such login", code="bad_login", hint="Ask an administrator.")
    given = claims.get(settings.groups_claim)
    groups = frozenset(map(str, given if isinstance(given, list) else [given] if given else ()))
    _into_teams(tx, settings, user, groups)
    if settings.roles and not _owns(user.role):
        return users.change(tx, user, role=_role(settings, groups))
    return user


def _met(tx: Tx, settings: OidcConfig, claims: Mapping[str, Any], issuer: str, subject: str) -> User:
    """Somebody of the provider's who comes for the first time."""
    login = claims.get(settings.login_claim)
    sure = settings.login_claim != "email" or claims.get("email_verified") is True
    if not isinstance(login, str) or not sure:
        raise Forbidden(
            f"the provider does not vouch for a {settings.login_claim}",
            code="oidc_no_login",
            hint="Ask for the right scopes, or set teams.oidc.loginClaim.",
        )
    try:
        known = users.get(tx, login)
    except NotFound:
        known = None
    if known is not None:
        return _linked(tx, known, issuer, subject)
    if not settings.create:
        raise Forbidden(
            "the provider knows this person, and nobody here does",
            code="oidc_unknown",
            hint=f"Add them first: holdfast users invite, or a user {login[:80]!r}.",
        )
    role = _role(settings, frozenset())
    return users.add(tx, login, role=role, name=_name(claims), issuer=issuer, subject=subject)


def _linked(tx: Tx, user: User, issuer: str, subject: str) -> User:
    """Who has a password here, or is the owner, is not taken over by a name that a provider says."""
    if user.issuer is not None or user.has_password or _owns(user.role):
        raise Forbidden("somebody else has this login here", code="oidc_taken", hint="Ask an administrator.")
    return users.vouched(tx, user, issuer, subject)


def _role(settings: OidcConfig, groups: frozenset[str]) -> Role:
    """The one that may the most of those that the groups stand for; never the owner's."""
    found = [Role(settings.roles[one]) for one in groups if one in settings.roles]
    found = [one for one in found if not _owns(one)]
    return max(found, key=lambda one: len(roles.RIGHTS[one]), default=Role(settings.default_role))


def _owns(role: Role) -> bool:
    return roles.may(role, Right.HOME)


def _into_teams(tx: Tx, settings: OidcConfig, user: User, groups: Iterable[str]) -> None:
    """Into the teams of one's groups, and out of those whose group one is in no more."""
    wanted = {settings.teams[one] for one in groups if one in settings.teams}
    known = {team.id: team for team in teams.listing(tx)}
    for id_ in sorted(set(settings.teams.values()) & known.keys()):
        if id_ in wanted:
            teams.join(tx, id_, user)
        elif user.id in known[id_].members:
            teams.leave(tx, id_, user)


def sealed(text: str, cookie: str) -> str:
    """Kept so that only the browser which has the cookie can have it opened."""
    from cryptography.fernet import Fernet

    return Fernet(_key(cookie)).encrypt(text.encode()).decode()


def opened(text: str, cookie: str) -> str:
    from cryptography.fernet import Fernet

    return Fernet(_key(cookie)).decrypt(text.encode()).decode()


def _key(cookie: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(f"oidc refresh {cookie}".encode()).digest())


def _name(claims: Mapping[str, Any]) -> str | None:
    name = claims.get("name")
    return name if isinstance(name, str) and 0 < len(name.strip()) <= 120 and name.isprintable() else None


def _json(client: OAuth2Client, url: str) -> Mapping[str, Any]:
    def ask() -> Any:
        answer = client.request("GET", url, withhold_token=True)
        answer.raise_for_status()
        return answer.json()

    found = _asked(ask)
    if not isinstance(found, dict):
        raise _unreachable("it answers what nobody can read")
    return found


def _asked(ask: Any) -> Any:
    """What the provider answers; its refusals and its silence in our own words."""
    import httpx
    from authlib.common.errors import AuthlibBaseError

    try:
        return ask()
    except AuthlibBaseError as error:
        raise Unauthorized(
            f"the provider refused it: {str(error.error)[:80]}", code="oidc_refused", hint="Log in again."
        ) from error
    except (httpx.HTTPError, ValueError) as error:
        raise _unreachable(type(error).__name__) from error


def _unreachable(why: str) -> Unavailable:
    return Unavailable(
        f"the login provider does not answer ({why})", code="oidc_unreachable", hint="Try again later."
    )


def _not_believed(why: str, *, clock: bool = False) -> Unauthorized:
    hint = "Compare the clocks of both machines." if clock else "Log in again."
    return Unauthorized(f"what the provider sent is not believed: {why}", code="oidc_not_believed", hint=hint)
