"""`holdfast login` and `logout`: tokens for a provider, got by a person in a browser."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.groups import App, Command, json_option, pass_app
from holdfast.cli.output import print_json
from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.agents.models.logins import Logins, Tokens
    from holdfast.config import Config
    from holdfast.config.models import OAuth

profile_option = click.option(
    "--profile", default="login", show_default=True, help="Name of the login, where there are several."
)


@click.command(cls=Command)
@click.argument("provider", required=False)
@profile_option
@click.option("--no-browser", is_flag=True, help="Print the address, and take the code that is pasted.")
@json_option
@pass_app
def login(app: App, provider: str | None, profile: str, no_browser: bool, as_json: bool) -> None:
    """Log in to a provider that has `oauth` in the config; without a name, say who is logged in.

    \b
    Example:
      holdfast login anthropic
      holdfast login anthropic --no-browser
    """
    config, logins = _opened(app)
    if provider is None:
        _show(config, logins, as_json)
        return
    settings = _settings(config, provider)
    kept = logins.keep(provider, profile, _got(settings, no_browser=no_browser))
    _forgive(app, config, kept.id)
    if as_json:
        print_json({"id": kept.id, "expiresAt": kept.expires_at, "refreshable": kept.refreshable})
    else:
        click.echo(f"Logged in as {kept.id}.")


@click.command(cls=Command)
@click.argument("provider")
@profile_option
@pass_app
def logout(app: App, provider: str, profile: str) -> None:
    """Forget a login, and give its token back where the provider takes it.

    \b
    Example:
      holdfast logout anthropic
    """
    from holdfast.agents.models import logins
    from holdfast.errors import HoldfastError

    config, kept = _opened(app)
    gone = kept.remove(provider, profile)
    found = config.models.providers.get(provider)
    if found is not None and found.oauth is not None:
        try:
            logins.revoke(found.oauth, gone.refresh or gone.access)
        except HoldfastError as error:
            click.echo(f"The token was not given back: {error.message}.", err=True)
    click.echo(f"Logged out of {gone.id}.")


def _opened(app: App) -> tuple[Config, Logins]:
    from holdfast.agents.models.logins import Logins
    from holdfast.clock import SystemClock
    from holdfast.config import load_config

    if not app.home.path.is_dir():
        raise NotFound(f"there is no home at {app.home.path}", hint="Make one with `holdfast init`.")
    return load_config(app.home.config), Logins(app.home, SystemClock())


def _settings(config: Config, provider: str) -> OAuth:
    found = config.models.providers.get(provider)
    if found is None or found.oauth is None:
        known = [name for name, one in config.models.providers.items() if one.oauth is not None]
        raise InvalidInput(
            f"nobody can log in to {provider}: the config does not say how",
            hint=f"Set models.providers.{provider}.oauth, or use {' or '.join(known) or 'a key'}.",
        )
    return found.oauth


def _got(settings: OAuth, *, no_browser: bool) -> Tokens:
    from holdfast.agents.models import logins
    from holdfast.cli import logging_in

    if settings.device_url is not None and (no_browser or settings.authorization_url is None):
        return logging_in.by_device(settings)
    if no_browser:
        return logging_in.by_hand(settings, _pasted)
    with logging_in.listening(settings) as here:
        started = logins.start(settings, here.redirect)
        click.echo(f"Opening {started.url}\nWaiting for the page to come back; Ctrl-C gives up.", err=True)
        if click.launch(started.url) != 0:
            click.echo("No browser opened: visit that address yourself, or use --no-browser.", err=True)
        return logins.redeem(settings, started, here.code(started))


def _pasted(address: str) -> str:
    click.echo(f"Visit {address}", err=True)
    return str(click.prompt("The code, or the address that the page ended at", err=True, hide_input=True))


def _forgive(app: App, config: Config, id_: str) -> None:
    """A login that rested because its old token was refused begins anew."""
    import os

    from holdfast.agents.models.credentials import Credential, Credentials
    from holdfast.clock import SystemClock

    Credentials(app.home, SystemClock(), os.environ).succeeded(Credential(id_, "", "", "oauth"))


def _show(config: Config, logins: Logins, as_json: bool) -> None:
    from holdfast.clock import SystemClock, iso

    now = SystemClock().now()
    rows: list[dict[str, Any]] = []
    for provider, settings in config.models.providers.items():
        for one in logins.listing(provider) if settings.oauth is not None else ():
            state = "over" if one.refused or one.over(now) else "in"
            ends = None if one.expires_at is None else iso(one.expires_at)
            rows.append({"id": one.id, "state": state, "expiresAt": ends, "refreshable": one.refreshable})
    if as_json:
        print_json(rows)
    for row in rows if not as_json else ():
        more = "" if row["expiresAt"] is None else f", token until {row['expiresAt']}"
        click.echo(f"{row['id']}: {'logged in' if row['state'] == 'in' else 'over, log in again'}{more}")
    if not rows and not as_json:
        click.echo("Nobody is logged in.")
