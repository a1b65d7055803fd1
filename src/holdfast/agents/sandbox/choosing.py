"""Whether a session is sandboxed, by what, and which folder its sandbox keeps."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agents.sandbox.backend import Backend, Limits
from holdfast.agents.sandbox.bubblewrap import Bubblewrap
from holdfast.agents.sandbox.docker import Docker
from holdfast.agents.sandbox.host import Host
from holdfast.errors import InvalidInput, Unavailable
from holdfast.keys import MainKey, parse_key

if TYPE_CHECKING:
    from holdfast.config.agents import Sandbox
    from holdfast.config.tools import Exec


@dataclass(frozen=True, slots=True)
class Place:
    """Where the commands of a session run. `sandboxed` is what the tool policy must be told."""

    backend: Backend
    scratch: Path
    sandboxed: bool


def is_sandboxed(settings: Sandbox, session_key: str) -> bool:
    """By the mode: no session, all but the agent's main one, or every one."""
    if settings.mode == "off":
        return False
    return settings.mode == "all" or not _is_main(session_key)


def place_of(
    settings: Sandbox,
    root: Path,
    *,
    agent_id: str,
    session_key: str,
    other: Callable[[], Backend | None] = lambda: None,
) -> Place:
    """The backend and the folder of a session; made here, readable by its owner only. `other` is a plugin's
    backend, which goes before what the settings name.

    A sandbox that is asked for and cannot be had is an error, never a command on the open machine.
    """
    sandboxed = is_sandboxed(settings, session_key)
    scratch = root / scope_name(settings, agent_id=agent_id, session_key=session_key)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Place(backend_of(settings, other()) if sandboxed else Host(), scratch, sandboxed)


def limits_of(settings: Exec) -> Limits:
    """The bounds of one command as the config has them."""
    return Limits(seconds=settings.timeout_seconds, output_bytes=settings.max_output_chars)


def scope_name(settings: Sandbox, *, agent_id: str, session_key: str) -> str:
    """What shares one sandbox, as the name of a folder."""
    if settings.scope == "shared":
        return "shared"
    kind, what = ("agent", agent_id) if settings.scope == "agent" else ("session", session_key)
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", what)[:40].strip("-")
    return f"{kind}-{readable}-{hashlib.sha256(what.encode()).hexdigest()[:12]}"


def backend_of(settings: Sandbox, other: Backend | None = None) -> Backend:
    """The sandbox that the settings ask for, or the other; `Unavailable` says what is missing."""
    wanted: dict[str, list[Backend]] = {
        "auto": [Bubblewrap(), _docker(settings)],
        "bubblewrap": [Bubblewrap()],
        "docker": [_docker(settings)],
    }
    reasons: list[str] = []
    for backend in wanted[settings.backend] if other is None else [other]:
        reason = backend.missing()
        if reason is None:
            return backend
        reasons.append(reason)
    raise Unavailable(
        f"there is no sandbox: {'; '.join(reasons)}",
        code="no_sandbox",
        hint="Install or start one, or set agents.defaults.sandbox.mode to off.",
    )


def _docker(settings: Sandbox) -> Docker:
    own = settings.docker
    env = {name: secret.reveal(os.environ) for name, secret in own.env.items()}
    return Docker(own.image, own.network, own.memory, own.cpus, env)


def _is_main(session_key: str) -> bool:
    try:
        return isinstance(parse_key(session_key), MainKey)
    except InvalidInput:
        return False
