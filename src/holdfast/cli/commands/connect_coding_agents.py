"""`holdfast connect claude-code|codex`: log its sessions here, and begin them where the last one ended."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from holdfast.cli.groups import App, Command, json_option, pass_app
from holdfast.cli.output import print_json


def _options(command: Any) -> Any:
    for option in (
        click.option(
            "--project", type=click.Path(path_type=Path), help="Only in this folder; else everywhere."
        ),
        click.option("--remove", is_flag=True, help="Take the hooks out again."),
        click.option("--dry-run", is_flag=True, help="Only print what the settings would be."),
        json_option,
    ):
        command = option(command)
    return command


@click.command("claude-code", cls=Command)
@_options
@pass_app
def claude_code(app: App, project: Path | None, remove: bool, dry_run: bool, as_json: bool) -> None:
    """Put hooks into the settings of Claude Code: log every session, and give each the continuity block.

    Run it again at any time. It starts nothing: events wait in a file while no gateway runs.

    \b
    Example:
      holdfast connect claude-code
    """
    _connect(app, "claude-code", project, remove=remove, dry_run=dry_run, as_json=as_json)


@click.command("codex", cls=Command)
@_options
@pass_app
def codex(app: App, project: Path | None, remove: bool, dry_run: bool, as_json: bool) -> None:
    """Put hooks into ~/.codex/hooks.json: log every session, and give each the continuity block.

    Codex asks once whether it may run them.

    \b
    Example:
      holdfast connect codex
    """
    _connect(app, "codex", project, remove=remove, dry_run=dry_run, as_json=as_json)


def _connect(
    app: App, host: str, project: Path | None, *, remove: bool, dry_run: bool, as_json: bool
) -> None:
    from holdfast.coding_agents import connect as hooks

    path = (project or Path.home()) / hooks.SETTINGS[host]
    before = hooks.read_settings(path)
    line = hooks.command(host, app.home)
    after = hooks.without_hooks(before) if remove else hooks.with_hooks(before, host, line)
    if dry_run:
        print_json(after)
        return
    if not remove:
        _make_token(app)
    if after != before:
        hooks.write_settings(path, after)
    if remove:
        click.echo(f"The hooks are out of {path}." if after != before else f"There were none in {path}.")
        return
    tried = hooks.attempt(host, app.home)
    told = {"settings": str(path), "changed": after != before, "ok": tried.ok, "error": tried.error or None}
    told |= {"seconds": round(tried.seconds, 3), "blockChars": tried.chars, "waiting": tried.waiting}
    if as_json:
        print_json(told)
    else:
        _say(app, host, told)


def _say(app: App, host: str, told: dict[str, Any]) -> None:
    from holdfast.cli.client import live_gateway

    click.echo(f"Hooks of {host} are in {told['settings']}.")
    if not told["ok"]:
        click.echo(f"The hook does not work: {told['error']}")
    elif live_gateway(app.home) is None:
        click.echo("No gateway runs: what is said waits in the home until `holdfast up`.")
    else:
        click.echo(f"Tried: it took {told['seconds']} s and gave a block of {told['blockChars']} characters.")
    if host == "codex":
        click.echo("Codex will ask once whether it may run them (/hooks).")
    else:
        click.echo("For its tools too: claude mcp add holdfast -- holdfast mcp")


def _make_token(app: App) -> None:
    """A token of the hooks' own, which may write and can be revoked; made once."""
    from holdfast.coding_agents.hook import TOKEN
    from holdfast.errors import NotFound
    from holdfast.gateway import tokens
    from holdfast.log import OWNER

    if app.home.kept_secret(TOKEN):
        return
    with app.open(create=True) as hold, hold.store.write(OWNER) as tx:
        with suppress(NotFound):
            tokens.revoke(tx, "coding-agents")
        _, text = tokens.add(tx, "coding-agents", scope=tokens.Scope.WRITE)
    app.home.keep_secret(TOKEN, text)
