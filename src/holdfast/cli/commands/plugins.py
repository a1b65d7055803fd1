"""`holdfast plugins`: what is there, what each may do, and getting more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import cell, print_fields, print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.config import Config, ConfigStore
    from holdfast.home import Home
    from holdfast.plugins import Plugin, PluginHost
    from holdfast.plugins.installing import Ready
    from holdfast.plugins.manifest import Manifest


@click.group(cls=Group)
def plugins() -> None:
    """List, info, install, enable, disable, uninstall, doctor."""


@plugins.command("list")
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """The plugins that are found. None of them is run for this; a running gateway says how they fare."""
    found = _told_by_gateway(app)
    if found is None:
        found = [one.json() for one in _host(app).find()]
    if as_json:
        print_json(found)
        return
    rows = [(p["id"], p["version"], p["from"], p["state"], p["reason"] or _troubles(p)) for p in found]
    print_table(["plugin", "version", "from", "state", "why"], rows, empty="No plugins.")


@plugins.command()
@click.argument("plugin_id")
@json_option
@pass_app
def info(app: App, plugin_id: str, as_json: bool) -> None:
    """One plugin: what it may do, its settings, where it came from."""
    from holdfast.plugins.installing import is_changed, record

    plugin = _find(_host(app).find(), plugin_id)
    known = record(app.home).get(plugin_id)
    manifest = plugin.found.manifest
    body = plugin.json() | {
        "path": str(plugin.found.folder),
        "may": [] if manifest is None else manifest.may(),
        "settings": {} if manifest is None else manifest.config.rules,
        "defaults": {} if manifest is None else manifest.config.defaults,
        "source": None if known is None else f"{known.kind}: {known.source}",
        "sha256": None if known is None else known.sha256,
        "changed": known is not None and is_changed(app.home, known),
    }
    if as_json:
        print_json(body)
        return
    shown = {
        name: body[name] for name in ("id", "name", "version", "description", "path", "source", "sha256")
    }
    properties = body["settings"].get("properties", {})
    print_fields(
        {
            **shown,
            "state": f"{body['state']}{': ' + body['reason'] if body['reason'] else ''}",
            "may": "; ".join(body["may"]),
            "settings": ", ".join(properties) or "none",
            "changed": "its files are not those that were installed" if body["changed"] else None,
        }
    )


@plugins.command()
@click.argument("source")
@click.option("-l", "--link", is_flag=True, help="Link a folder instead of copying it, to work on it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def install(app: App, source: str, link: bool, yes: bool, as_json: bool) -> None:
    """Install a plugin: a folder, a wheel, its address, or a package of the index.

    Nothing of it runs before you agree; what it may do is shown first. Its code then runs as you do.

    \b
    Examples:
      holdfast plugins install ./margin
      holdfast plugins install -l ./margin
      holdfast plugins install holdfast-margin==0.1.0
    """
    from holdfast.clock import SystemClock
    from holdfast.plugins.installing import fetched, install

    home = _home(app)
    with fetched(source, link=link) as ready:
        _show(ready)
        if not yes:
            click.confirm("Install it?", abort=True, err=True)
        config = app.config_store()
        made = install(home, ready, SystemClock())
        told = _let_in(config, ready.manifest)
    app.note("plugin.installed", made.id, version=str(made.version), sha256=made.sha256)
    if as_json:
        print_json({"id": made.id, "version": made.version, "sha256": made.sha256, "slots": told})
        return
    click.echo(f"Installed {made.id} {made.version} (sha256 {made.sha256[:16]}…).")
    for slot in told:
        click.echo(f"plugins.slots.{slot} is {made.id} now.")
    click.echo("A running gateway takes it up when it is started again.")


@plugins.command()
@click.argument("plugin_id")
@json_option
@pass_app
def enable(app: App, plugin_id: str, as_json: bool) -> None:
    """Have a plugin loaded."""
    _find(_host(app).find(), plugin_id)
    config = app.config_store()
    settings = config.current.plugins
    change: dict[str, Any] = {"entries": {plugin_id: {"enabled": True}}}
    if settings.allow is not None or _in_workspace(app, plugin_id):
        change["allow"] = sorted({*(settings.allow or _ids(app)), plugin_id})
    if plugin_id in settings.deny:
        change["deny"] = [one for one in settings.deny if one != plugin_id]
    config.patch({"plugins": change})
    app.note("plugin.enabled", plugin_id)
    _done(f"{plugin_id} is loaded when the gateway is started next.", plugin_id, True, as_json)


@plugins.command()
@click.argument("plugin_id")
@json_option
@pass_app
def disable(app: App, plugin_id: str, as_json: bool) -> None:
    """Have a plugin not used any more; a running gateway stops using it at once."""
    _find(_host(app).find(), plugin_id)
    app.config_store().patch({"plugins": {"entries": {plugin_id: {"enabled": False}}}})
    app.note("plugin.disabled", plugin_id)
    _done(f"{plugin_id} is not used any more.", plugin_id, False, as_json)


@plugins.command()
@click.argument("plugin_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def uninstall(app: App, plugin_id: str, yes: bool, as_json: bool) -> None:
    """Take a plugin out; slots that it held are the built-in part's again. Its data stays."""
    from holdfast.plugins.installing import record, uninstall

    home = _home(app)
    if plugin_id not in record(home):
        raise NotFound(
            f"no plugin {plugin_id[:64]!r} was installed in this home", hint="See `holdfast plugins list`."
        )
    if not yes:
        click.confirm(f"Take {plugin_id} out?", abort=True, err=True)
    config = app.config_store()
    config.patch(_let_go(config.current, plugin_id))
    uninstall(home, plugin_id)
    app.note("plugin.removed", plugin_id)
    _done(
        f"{plugin_id} is gone. Its data, if any, is in {home.plugins / '.data'}.", plugin_id, False, as_json
    )


@plugins.command()
@json_option
@pass_app
@click.pass_context
def doctor(ctx: click.Context, app: App, as_json: bool) -> None:
    """Load every plugin as a gateway would, and say what is wrong with it; exit 1 if anything is."""
    from holdfast.cli.agent_checks import findings

    home = _home(app)
    found = list(findings(home, _config(home), load=True))
    if as_json:
        print_json([{"level": one.level, "message": one.message, "mend": one.mend} for one in found])
    else:
        for one in found:
            click.echo(f"{one.level:<5} {cell(one.message)}")
            if one.mend and one.level != "ok":
                click.echo(f"      {cell(one.mend)}")
    ctx.exit(1 if any(one.level == "fail" for one in found) else 0)


def _done(said: str, id_: str, enabled: bool, as_json: bool) -> None:
    if as_json:
        print_json({"id": id_, "enabled": enabled})
    else:
        click.echo(said)


def _home(app: App) -> Home:
    home = app.home
    if not home.path.is_dir():
        raise NotFound(f"there is no home at {home.path}", hint="Make one with `holdfast init`.")
    return home


def _config(home: Home) -> Config:
    from holdfast.config import load_config

    return load_config(home.config)


def _host(app: App) -> PluginHost:
    from holdfast.cli.workspaces import workspace_of
    from holdfast.plugins import PluginHost

    home = _home(app)
    config = _config(home)
    places = [workspace_of(home, config, agent.id) for agent in config.agent_list]
    return PluginHost(home, lambda: config, lambda: list(dict.fromkeys(places)))


def _find(found: list[Plugin], id_: str) -> Plugin:
    for plugin in found:
        if plugin.id == id_:
            return plugin
    raise NotFound(f"no plugin {id_[:64]!r}", hint="See `holdfast plugins list`.")


def _in_workspace(app: App, id_: str) -> bool:
    from holdfast.plugins import Origin

    return _find(_host(app).find(), id_).found.origin is Origin.WORKSPACE


def _ids(app: App) -> list[str]:
    """Those that are let in now, so that naming one more shuts none of them out."""
    return [one.id for one in _host(app).find() if one.is_in]


def _show(ready: Ready) -> None:
    manifest = ready.manifest
    click.echo(cell(f"{manifest.title} {manifest.version} ({manifest.id}), from {ready.source}"), err=True)
    click.echo("It may:", err=True)
    for line in manifest.may():
        click.echo(cell(f"  - {line}"), err=True)
    if ready.needs:
        click.echo(cell(f"It brings along: {', '.join(ready.needs)}"), err=True)
    unmet = manifest.unmet()
    if unmet is not None:
        click.echo(cell(f"It will not be loaded yet: {unmet}."), err=True)


def _let_in(config: ConfigStore, manifest: Manifest) -> list[str]:
    """Agreeing is letting it in: among those allowed, and into the slots that were shown."""
    settings = config.current.plugins
    change: dict[str, Any] = {"entries": {manifest.id: {"enabled": True}}}
    if settings.allow is not None and manifest.id not in settings.allow:
        change["allow"] = [*settings.allow, manifest.id]
    if manifest.id in settings.deny:
        raise InvalidInput(f"{manifest.id} is denied", hint="Take it out of plugins.deny first.")
    if manifest.slots:
        change["slots"] = dict.fromkeys(manifest.slots, manifest.id)
    config.patch({"plugins": change})
    return list(manifest.slots)


def _let_go(config: Config, id_: str) -> dict[str, Any]:
    """The patch that takes a plugin out of the config: null stands for what is at its default again."""
    from holdfast.plugins.manifest import SLOTS

    settings = config.plugins
    change: dict[str, Any] = {}
    slots = {slot: None for slot in SLOTS if settings.slots.chosen(slot) == id_}
    if slots:
        change["slots"] = slots
    if id_ in settings.entries:
        change["entries"] = {id_: None}
    if settings.allow is not None and id_ in settings.allow:
        change["allow"] = [one for one in settings.allow if one != id_]
    return {"plugins": change}


def _told_by_gateway(app: App) -> list[dict[str, Any]] | None:
    from holdfast.cli.client import Client, find_gateway
    from holdfast.errors import HoldfastError

    home = _home(app)
    seen = find_gateway(home, _config(home))
    if seen.state != "ours":
        return None
    try:
        told = Client(seen.url, home.admin_token()).get("/api/plugins")
    except HoldfastError:
        return None
    return told if isinstance(told, list) else None


def _troubles(plugin: dict[str, Any]) -> str:
    return "; ".join(plugin["troubles"])[:200]
