"""`holdfast init`: a commented config and a workspace, where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holdfast.cli.groups import App, Command, json_option, pass_app
from holdfast.cli.output import print_json
from holdfast.cli.workspaces import prepare_workspaces

if TYPE_CHECKING:
    from holdfast.home import Home


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
