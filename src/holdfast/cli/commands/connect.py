"""`holdfast connect`: make another program use this home."""

from __future__ import annotations

import copy
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click

from holdfast.cli.output import print_json
from holdfast.cli.root import App, Command, Group, json_option, pass_app
from holdfast.errors import HoldfastError, InvalidInput, NotFound, Unavailable


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


ID: Final = "holdfast"
PARTS: Final = ("engine", "memory", "logger", "tools", "context")
_PLUGIN: Final = ("src", "build.mjs", "openclaw.plugin.json", "package.json", "README.md")
_FREE: Final = {"contextEngine": (None, "", "legacy", ID), "memory": (None, "", "memory-core", ID)}
_OWN_MEMORY: Final = "memory-core"
"""OpenClaw's own memory: its tools have the names of ours, so only one of the two can be there."""
_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Wanted:
    """What OpenClaw's config is to say of us."""

    url: str
    token_file: str
    plugin: str
    without: frozenset[str] = frozenset()
    take_slots: bool = False
    continuation: bool = False

    @property
    def config(self) -> dict[str, Any]:
        parts = {name: name not in self.without for name in PARTS if name != "context"}
        return {
            "baseUrl": self.url,
            "tokenFile": self.token_file,
            "parts": {**parts, "continuation": self.continuation},
            "contextAugment": "context" not in self.without,
        }


def connected(config: dict[str, Any], wanted: Wanted) -> tuple[dict[str, Any], list[str]]:
    """OpenClaw's config with us in it, and what a person should know. What is not ours stays as it is."""
    new, notes = copy.deepcopy(config), []
    plugins = _child(new, "plugins")
    if plugins.get("enabled") is False or ID in plugins.get("deny", ()):
        raise InvalidInput(
            "OpenClaw's config forbids this plugin", hint="See plugins.enabled and plugins.deny in it."
        )
    if isinstance(plugins.get("allow"), list) and ID not in plugins["allow"]:
        plugins["allow"].append(ID)
    paths = _child(plugins, "load").setdefault("paths", [])
    if wanted.plugin not in paths:
        paths.append(wanted.plugin)
    entry = _child(_child(plugins, "entries"), ID)
    entry["enabled"] = True
    _child(entry, "hooks")["allowConversationAccess"] = True
    entry["config"] = {**_child(entry, "config"), **wanted.config}
    slots = _child(plugins, "slots")
    for slot, part in (("contextEngine", "engine"), ("memory", "memory")):
        holder = slots.get(slot)
        if part in wanted.without:
            if holder == ID:
                del slots[slot]
        elif wanted.take_slots or holder in _FREE[slot]:
            slots[slot] = ID
        else:
            notes.append(f"slot {slot} is held by {holder!r} and was left to it; --take-slots takes it")
    if slots.get("memory") == ID:
        _child(plugins["entries"], _OWN_MEMORY)["enabled"] = False
    return new, notes


def disconnected(config: dict[str, Any]) -> dict[str, Any]:
    """OpenClaw's config without us; slots that were ours fall back to OpenClaw's own."""
    new = copy.deepcopy(config)
    plugins = _child(new, "plugins")
    path = _child(plugins, "load").get("paths", [])
    plugins["load"]["paths"] = [one for one in path if Path(str(one)).name != "holdfast-plugin"]
    _child(plugins, "entries").pop(ID, None)
    if _child(plugins, "slots").get("memory") == ID and plugins["entries"].get(_OWN_MEMORY) == {
        "enabled": False
    }:
        del plugins["entries"][_OWN_MEMORY]
    plugins["slots"] = {slot: holder for slot, holder in plugins["slots"].items() if holder != ID}
    if isinstance(plugins.get("allow"), list):
        plugins["allow"] = [one for one in plugins["allow"] if one != ID]
    return new


@click.command(cls=Command)
@click.argument("folder", metavar="[DIR]", default=None, required=False, type=click.Path(path_type=Path))
@click.option("--url", help="Where this home's gateway answers; else as it is configured.")
@click.option(
    "--without", multiple=True, type=click.Choice(PARTS), help="Leave a part switched off (may be repeated)."
)
@click.option("--continuation", is_flag=True, help="Let agents elect turns of their own.")
@click.option("--take-slots", is_flag=True, help="Also take slots that another plugin holds.")
@click.option("--program", help="How OpenClaw is called; else `openclaw` where it is on PATH.")
@click.option("--dry-run", is_flag=True, help="Only print the config as it would be.")
@click.option("--undo", is_flag=True, help="Take this home out of OpenClaw's config again.")
@json_option
@pass_app
def openclaw(
    app: App,
    folder: Path | None,
    url: str | None,
    without: tuple[str, ...],
    continuation: bool,
    take_slots: bool,
    program: str | None,
    dry_run: bool,
    undo: bool,
    as_json: bool,
) -> None:
    """Make an OpenClaw use this home: engine, memory, log, continuity, tools. Its config is backed up first.

    Run it again at any time; `--undo` takes it back.

    \b
    Example:
      holdfast connect openclaw ~/.openclaw --without memory
    """
    state = _state(folder)
    path = Path(os.environ.get("OPENCLAW_CONFIG_PATH") or state / "openclaw.json")
    config = _read(path)
    if undo:
        backup = None if dry_run else _write(path, disconnected(config))
        click.echo(f"This home is out of {path} (as it was: {backup}). Restart OpenClaw's gateway.")
        return
    wanted = Wanted(
        url=(url or _url(app)).rstrip("/"),
        token_file=str(state / "holdfast.token"),
        plugin=str(state / "holdfast-plugin"),
        without=frozenset(without),
        take_slots=take_slots,
        continuation=continuation,
    )
    new, notes = connected(config, wanted)
    if dry_run:
        print_json(new)
        return
    _place_plugin(Path(wanted.plugin))
    _place_token(app, Path(wanted.token_file))
    backup = _write(path, new)
    seen = _seen(wanted, program)
    if as_json:
        print_json({"config": str(path), "backup": backup, "notes": notes, **seen})
    else:
        _tell(path, backup, notes, seen)


def _state(folder: Path | None) -> Path:
    state = (folder or Path(os.environ.get("OPENCLAW_STATE_DIR") or "~/.openclaw")).expanduser().absolute()
    if not state.is_dir():
        raise NotFound(f"there is no OpenClaw home at {state}", hint="Name it: holdfast connect openclaw DIR")
    return state


def _url(app: App) -> str:
    from holdfast.cli.client import address, find_gateway
    from holdfast.config import load_config

    config = load_config(app.home.config)
    found = find_gateway(app.home, config, patience=10)
    return found.url if found.state == "ours" else address(config.gateway.host, config.gateway.port)


def _read(path: Path) -> dict[str, Any]:
    from holdfast.config.source import parse_text, read_text

    data = parse_text(read_text(path) or "{}", source=str(path))
    if not isinstance(data, dict):
        raise InvalidInput(f"{path} holds no object")
    return data


def _write(path: Path, config: dict[str, Any]) -> str | None:
    """Write the config whole or not at all; gives the copy of what was there, if that differs."""
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    before = path.read_text() if path.exists() else None
    if before == text:
        return None
    backup = None
    if before is not None:
        n = 1
        while (copy_ := path.with_name(f"{path.name}.before-holdfast.{n}")).exists():
            n += 1
        shutil.copy2(path, copy_)
        backup = str(copy_)
    draft = path.with_name(f".{path.name}.holdfast")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    os.replace(draft, path)
    return backup


def _place_plugin(target: Path) -> None:
    """Copy the plugin's sources and have Node take the types off; nothing is fetched."""
    package = Path(__file__).resolve().parents[2]
    source = next(
        (
            p
            for p in (package / "openclaw_plugin", package.parents[1] / "integrations/openclaw")
            if p.is_dir()
        ),
        None,
    )
    if source is None:
        raise NotFound("this installation has no plugin for OpenClaw", hint="Install holdfast anew.")
    target.mkdir(parents=True, exist_ok=True)
    for name in _PLUGIN:
        if (source / name).is_dir():
            shutil.rmtree(target / name, ignore_errors=True)
            shutil.copytree(source / name, target / name)
        elif (source / name).is_file():
            shutil.copy2(source / name, target / name)
    done = subprocess.run(
        [_node(), "build.mjs"], cwd=target, capture_output=True, text=True, timeout=_SECONDS
    )
    if done.returncode != 0:
        raise Unavailable(
            f"the plugin could not be built: {done.stderr.strip()[-300:]}",
            hint="It needs Node 24, as OpenClaw.",
        )


def _node() -> str:
    """The first Node that is new enough: that of the person, or the one beside our own Python."""
    for found in (shutil.which("node"), shutil.which("node", path=str(Path(sys.executable).parent))):
        if found is not None:
            said = subprocess.run(
                [found, "--version"], capture_output=True, text=True, timeout=_SECONDS
            ).stdout
            if int(said.strip().removeprefix("v").partition(".")[0] or 0) >= 24:
                return found
    raise NotFound("Node 24 or newer is not on PATH", hint="OpenClaw needs it too; put it first on PATH.")


def _ran(command: Sequence[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)


def _place_token(app: App, path: Path) -> None:
    """A token of its own that may write and not administer; one that is known is kept."""
    from holdfast.gateway import tokens
    from holdfast.gateway.tokens import Scope
    from holdfast.log import OWNER

    name = f"openclaw-{sha256(str(path).encode()).hexdigest()[:8]}"
    with app.open(create=True) as hold, hold.store.write(OWNER, ordered=False) as tx:
        is_live = any(one.name == name and one.revoked_at is None for one in tokens.listing(tx))
        if is_live and path.is_file():
            return
        if is_live:
            tokens.revoke(tx, name)
        _, text = tokens.add(tx, name, scope=Scope.WRITE)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as out:
        out.write(text + "\n")
    path.chmod(0o600)


def _seen(wanted: Wanted, program: str | None) -> dict[str, Any]:
    """What answers: our gateway with the plugin's token, and OpenClaw with the plugin in it."""
    from holdfast.cli.client import Client

    seen: dict[str, Any] = {"url": wanted.url, "gateway": "answers", "openclaw": None}
    try:
        Client(wanted.url, Path(wanted.token_file).read_text().strip()).get("/api/whoami")
    except HoldfastError as error:
        seen["gateway"] = error.message
    command = shlex.split(program) if program else [found] if (found := shutil.which("openclaw")) else []
    if command:
        seen["openclaw"] = _inspected(command)
    return seen


def _inspected(command: Sequence[str]) -> dict[str, Any]:
    try:
        done = _ran([*command, "plugins", "inspect", ID, "--runtime", "--json"])
        found = json.loads(done.stdout[done.stdout.index("{") :])
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        return {"error": f"OpenClaw could not be asked: {error}"}
    return {
        "status": (found.get("plugin") or {}).get("status"),
        "hooks": sorted(one["name"] for one in found.get("typedHooks", ())),
        "tools": sorted(name for one in found.get("tools", ()) for name in one.get("names", ())),
        "problems": [
            str(one.get("message"))
            for one in found.get("diagnostics", ())
            if "verify where this plugin came from" not in str(one.get("message"))
        ],
    }


def _tell(path: Path, backup: str | None, notes: list[str], seen: dict[str, Any]) -> None:
    click.echo(f"{path}: written" + (f"; as it was: {backup}" if backup else ""))
    for note in notes:
        click.echo(f"note: {note}")
    click.echo(f"gateway {seen['url']}: {seen['gateway']}")
    inside = seen["openclaw"]
    if inside is None:
        click.echo("OpenClaw itself was not asked: it is not on PATH (--program says how it is called).")
    elif "error" in inside:
        click.echo(inside["error"])
    else:
        click.echo(
            f"plugin {inside['status']}: {len(inside['tools'])} tools, hooks {', '.join(inside['hooks'])}"
        )
        for problem in inside["problems"]:
            click.echo(f"problem: {problem}")
    click.echo("Restart OpenClaw's gateway, then say something to it: `holdfast board log` shows it.")


def _child(parent: dict[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    if not isinstance(found, dict):
        found = parent[name] = {}
    return found


@click.group(cls=Group)
def connect() -> None:
    """Make another program use this home."""


connect.add_command(claude_code)
connect.add_command(codex)
connect.add_command(openclaw)
