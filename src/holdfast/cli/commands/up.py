"""`holdfast init` and `up`: a commented config and a workspace, and serving."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.output import print_json
from holdfast.cli.root import App, Command, json_option, pass_app
from holdfast.cli.workspaces import prepare_workspaces

if TYPE_CHECKING:
    from holdfast.home import Home
    from holdfast.runtime import Holdfast


@click.command(cls=Command)
@json_option
@pass_app
def init(app: App, as_json: bool) -> None:
    """Write a commented config and a workspace. Nothing that is there is overwritten.

    \b
    Example:
      holdfast init --home ~/.holdfast
    """
    from holdfast.config import load_config

    home = app.home
    home.prepare()
    written = write_config(home)
    written += prepare_workspaces(home, load_config(home.config))
    if as_json:
        print_json({"home": str(home.path), "written": [str(path) for path in written]})
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(
        f"{home.path} is ready. Start it with `holdfast up`." if written else f"{home.path} was ready."
    )


def write_config(home: Home) -> list[Path]:
    """Write the commented config unless there is one."""
    from holdfast.config import default_config_text
    from holdfast.errors import Unavailable

    try:
        handle = os.open(home.config, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(default_config_text())
    except FileExistsError:
        return []
    except OSError as error:
        raise Unavailable(
            f"{home.config} cannot be written: {error.strerror}",
            code="home_unusable",
            hint="Mend the permissions of the home, or choose another with --home.",
        ) from error
    return [home.config]


@click.command(cls=Command)
@click.option("--host", help="Address to listen on; else as configured (127.0.0.1).")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port; else as configured (8787). 0: any free one."
)
@click.option(
    "--store",
    "store_url",
    metavar="URL",
    help="The store, by its path or address, from now on: it is written into the config.",
)
@click.option("--no-link", is_flag=True, help="Print no login link, for logs that others may read.")
@click.option(
    "--lenient",
    is_flag=True,
    help="Warn of settings that do nothing, and start without.",
)
@pass_app
def up(
    app: App, host: str | None, port: int | None, store_url: str | None, no_link: bool, lenient: bool
) -> None:
    """Set everything up and serve, until Ctrl-C.

    \b
    Example:
      holdfast up --port 8787
    """
    from holdfast.cli.client import address, announced
    from holdfast.cli.commands.store import keep_store
    from holdfast.config.source import leniently
    from holdfast.gateway.page_sessions import login_link
    from holdfast.gateway.server import listen, serve
    from holdfast.gateway.site import is_built

    if lenient:
        click.get_current_context().with_resource(leniently())
    home = app.home
    if store_url is not None and (kept := keep_store(home, store_url)):
        click.echo(f"store: {kept} (kept in {home.config.name} for every command of this home)")
    home.prepare()
    _write_config(home)
    with app.open(create=True, writes_index=True) as hold:
        _set_up(hold)
        host = host or hold.settings.gateway.host
        port = hold.settings.gateway.port if port is None else port
        _refuse_a_second(hold, address(host, port))
        sock = listen(host, port)
        url = address(host, sock.getsockname()[1])
        click.echo(f"Holdfast is running at {url}")
        if no_link:
            click.echo("Log in with a link: holdfast token --link")
        else:
            shown = (hold.settings.gateway.public_url or url).rstrip("/")
            click.echo(f"Log in with: {login_link(home, hold.clock, shown)}")
            click.echo(
                "  That link works once, for ten minutes. Later: holdfast token --link, or holdfast token"
            )
        if not is_built():
            click.echo("  The pages are not built: run `make pages` in the sources, while this goes on.")
        with announced(home, url, hold.store.url.render_as_string(hide_password=True)):
            serve(hold, sock)


def _write_config(home: Home) -> None:

    for path in write_config(home):
        click.echo(f"wrote {path}")


def _set_up(hold: Holdfast) -> None:
    """Everything that a first start makes; on a later one there is nothing to do."""
    from holdfast.cli.workspaces import prepare_workspaces

    for path in prepare_workspaces(hold.home, hold.settings, new_only=True):
        click.echo(f"wrote {path}")
    hold.home.admin_token()


def _refuse_a_second(hold: Holdfast, url: str) -> None:
    """A home has one gateway, wherever it listens: its index and its word of where it is have one owner."""
    from holdfast.cli.client import find_gateway, sight
    from holdfast.errors import Unavailable

    found = find_gateway(hold.home, hold.settings)
    if found.state != "ours":
        found = sight(hold.home, url)
    if found.state == "ours":
        raise Unavailable(
            f"Holdfast is running at {found.url} already",
            code="already_running",
            hint="Use that one, or stop it first.",
        )
