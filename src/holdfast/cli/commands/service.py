"""`holdfast service`: Holdfast in the background, kept alive by systemd (or launchd on macOS)."""

from __future__ import annotations

import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from holdfast.cli.output import print_fields, print_json
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import InvalidInput, NotFound, Unavailable

STOP_SPARE_SECONDS: Final = 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")
_QUOTED: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "%": "%%"})
name_option = click.option(
    "--name", default="holdfast", show_default=True, help="Name of the service; one for each home."
)


@dataclass(frozen=True, slots=True)
class Service:
    """A gateway to be run in the background: which program, on which home, how long it may take to stop."""

    name: str
    home: Path
    python: Path
    grace_seconds: int
    path: str

    @property
    def command(self) -> list[str]:
        return [str(self.python), "-m", "holdfast", "up", "--no-link", "--home", str(self.home)]

    @property
    def environment_file(self) -> Path:
        return self.home / "credentials" / "service.env"


def systemd_unit(service: Service) -> str:
    """The unit. What only a person can mend (exit 2) is not tried again; everything else is."""
    return f"""\
[Unit]
Description=Holdfast gateway for {service.home.name.translate(_QUOTED)}
StartLimitIntervalSec=600
StartLimitBurst=20

[Service]
Type=exec
ExecStart={" ".join(map(_argument, service.command))}
Environment={_argument(f"PATH={service.path}", environment=True)}
EnvironmentFile=-{str(service.environment_file).translate(_QUOTED)}
Restart=on-failure
RestartSec=2
RestartPreventExitStatus=2
KillSignal=SIGTERM
TimeoutStopSec={service.grace_seconds + STOP_SPARE_SECONDS}
UMask=0077

[Install]
WantedBy=default.target
"""


def launchd_plist(service: Service) -> bytes:
    """The same for macOS."""
    return plistlib.dumps(
        {
            "Label": service.name,
            "ProgramArguments": service.command,
            "EnvironmentVariables": {"PATH": service.path},
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": 10,
            "ExitTimeOut": service.grace_seconds + STOP_SPARE_SECONDS,
            "Umask": 0o077,
            "StandardOutPath": str(service.home / "logs" / "service.log"),
            "StandardErrorPath": str(service.home / "logs" / "service.log"),
        }
    )


@click.group(cls=Group)
def service() -> None:
    """Run in the background: install, uninstall, status."""


@service.command()
@name_option
@click.option("--dry-run", is_flag=True, help="Print what would be written, and write nothing.")
@pass_app
def install(app: App, name: str, dry_run: bool) -> None:
    """Write a service for this home that is started with the machine and again when it fails.

    \b
    Example:
      holdfast service install --home ~/.holdfast
    """
    wanted = _service(app, name)
    text = launchd_plist(wanted) if _is_mac() else systemd_unit(wanted).encode()
    target = _file(name)
    if dry_run:
        click.echo(f"# {target}\n{text.decode()}", nl=False)
        return
    app.home.prepare()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text)
    except OSError as error:
        raise Unavailable(
            f"{target} cannot be written: {error.strerror}", code="service_unwritable"
        ) from error
    click.echo(f"wrote {target}")
    for line in _next_steps(wanted, target):
        click.echo(line)


@service.command()
@name_option
def uninstall(name: str) -> None:
    """Stop the service and remove its file; the home stays."""
    target = _file(name)
    if not target.is_file():
        raise NotFound(f"there is no service {name} ({target})", hint="See `holdfast service status`.")
    if _is_mac():
        _ask("launchctl", "unload", str(target))
    else:
        _ask("systemctl", "--user", "disable", "--now", f"{name}.service")
    target.unlink()
    if not _is_mac():
        _ask("systemctl", "--user", "daemon-reload")
    click.echo(f"removed {target}")


@service.command()
@name_option
@json_option
@pass_app
@click.pass_context
def status(ctx: click.Context, app: App, name: str, as_json: bool) -> None:
    """Whether the service is installed and the gateway of this home answers; exit 1 if not."""
    from holdfast.cli.client import find_gateway

    target = _file(name)
    seen = find_gateway(app.home, None)
    body: dict[str, object] = {
        "installed": target.is_file(),
        "file": str(target),
        "manager": _manager_says(name) if target.is_file() else None,
        "answers": seen.state == "ours",
        "url": seen.url if seen.state == "ours" else None,
    }
    if as_json:
        print_json(body)
    else:
        print_fields(body)
    ctx.exit(0 if body["installed"] and body["answers"] else 1)


def _service(app: App, name: str) -> Service:
    from holdfast.config import load_config

    if not _NAME.fullmatch(name):
        raise InvalidInput(f"not the name of a service: {name!r}", hint="Use letters, digits, . _ and -.")
    config = load_config(app.home.config)
    return Service(
        name=name,
        home=app.home.path,
        # Not resolved: the link in a virtual environment is what makes it one.
        python=Path(sys.executable).absolute(),
        grace_seconds=config.gateway.shutdown_grace_seconds,
        path=os.environ.get("PATH", os.defpath),
    )


def _file(name: str, env: Mapping[str, str] = os.environ) -> Path:
    if _is_mac():
        return Path.home() / "Library" / "LaunchAgents" / f"{name}.plist"
    base = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "systemd" / "user" / f"{name}.service"


def _next_steps(wanted: Service, target: Path) -> list[str]:
    if _is_mac():
        return [
            f"Start it with: launchctl load {target}",
            "  This file has not been tested on a Mac: tell us if it does not work.",
        ]
    return [
        f"Start it with: systemctl --user daemon-reload && systemctl --user enable --now {wanted.name}",
        "  Without anybody logged in: loginctl enable-linger",
        f"  Its log: journalctl --user -u {wanted.name}, and {wanted.home / 'logs' / 'gateway.jsonl'}",
        f"  Variables for it, such as keys of models, go into {wanted.environment_file} (mode 600).",
    ]


def _manager_says(name: str) -> str:
    if _is_mac():
        return "loaded" if _ask("launchctl", "list", name) is not None else "not loaded"
    return _ask("systemctl", "--user", "is-active", f"{name}.service") or "systemd does not answer"


def _ask(*command: str) -> str | None:
    """What a program of the system says; None where it is not there or has nothing to say."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() or None


def _argument(text: str, *, environment: bool = False) -> str:
    """A word as systemd reads it back; in a command a dollar sign would be a variable."""
    quoted = text.translate(_QUOTED)
    return f'"{quoted if environment else quoted.replace("$", "$$")}"'


def _is_mac() -> bool:
    return sys.platform == "darwin"
