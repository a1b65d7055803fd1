"""Hooks in the settings of a coding agent: put in, taken out, and tried. All else in them stays as it is."""

from __future__ import annotations

import copy
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from holdfast.coding_agents import hook
from holdfast.errors import InvalidInput, Unavailable
from holdfast.home import Home

Host = Literal["claude-code", "codex"]
HOOK: Final = Path(hook.__file__)
SETTINGS: Final[dict[str, str]] = {"claude-code": ".claude/settings.json", "codex": ".codex/hooks.json"}
_MARK: Final = "coding_agents/hook.py"
_SECONDS: Final = 5
# No host waits longer than this for the end of a session, and Codex complains of a longer limit.
_END_SECONDS: Final = 3
_TRY_SECONDS: Final = 20
_EVENTS: Final = ("SessionStart", "UserPromptSubmit", "PostToolUse", "Stop", "SessionEnd")
# The host need not wait for these. For the others it must: a hook that it left behind ends when it does.
_UNAWAITED: Final = ("PostToolUse",)


def command(host: str, home: Home) -> str:
    """What the host has its shell run: a bare interpreter and one file, by their places.

    An interpreter that does not find its file ends with 2, which would block every prompt of a host that
    Holdfast was taken from: whatever becomes of it, it ends with 0.
    """
    return f"{shlex.join([sys.executable, '-I', '-S', str(HOOK), host, str(home.path)])} || exit 0"


def with_hooks(settings: dict[str, Any], host: str, line: str) -> dict[str, Any]:
    """The settings with our hooks in them, once; those of others stay where they are."""
    made = without_hooks(settings)
    hooks = made.setdefault("hooks", {})
    for event in _EVENTS:
        limit = _END_SECONDS if event == "SessionEnd" else _SECONDS
        handler: dict[str, Any] = {"type": "command", "command": line, "timeout": limit}
        if host == "claude-code" and event in _UNAWAITED:
            handler["async"] = True
        group: dict[str, Any] = {"hooks": [handler]}
        if event == "PostToolUse":
            group = {"matcher": "*", **group}
        hooks.setdefault(event, []).append(group)
    return made


def without_hooks(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings without ours, and without what stood there for ours alone."""
    made = copy.deepcopy(settings)
    hooks = made.get("hooks")
    if not isinstance(hooks, dict):
        return made
    for event in list(hooks):
        if isinstance(hooks[event], list):
            hooks[event] = [group for one in hooks[event] if (group := _others(one)) is not None]
            if not hooks[event]:
                del hooks[event]
    if not hooks:
        del made["hooks"]
    return made


def _others(group: Any) -> Any:
    """A group without our handler; None if it held nothing else."""
    if not isinstance(group, dict) or not isinstance(group.get("hooks"), list):
        return group
    kept = [one for one in group["hooks"] if not _is_ours(one)]
    if len(kept) == len(group["hooks"]):
        return group
    return {**group, "hooks": kept} if kept else None


def _is_ours(handler: Any) -> bool:
    return isinstance(handler, dict) and _MARK in str(handler.get("command", "")).replace("\\", "/")


def read_settings(path: Path) -> dict[str, Any]:
    """The settings as they are; a file that cannot be read as such is left alone."""
    try:
        found = json.loads(path.read_text(encoding="utf-8") or "{}")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as JSON: {error}", hint="Mend it first.") from error
    hooks = found.get("hooks", {}) if isinstance(found, dict) else None
    if not isinstance(hooks, dict):
        raise InvalidInput(f"{path} has another form than hooks have", hint="Mend it first.")
    return dict(found)


def write_settings(path: Path, settings: dict[str, Any]) -> None:
    """Written whole or not at all, through a link if it is one, with the mode that it had."""
    place = path.resolve()
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        mode = place.stat().st_mode & 0o777 if place.exists() else 0o600
        draft.touch(mode=mode)
        draft.write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        draft.replace(place)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written: {error.strerror}", code="settings_unusable") from error


@dataclass(frozen=True, slots=True)
class Tried:
    """What a hook did when it was run once, as the host would run it."""

    ok: bool
    seconds: float
    chars: int
    waiting: int
    error: str = ""


def attempt(host: str, home: Home) -> Tried:
    """Run the hook as at the beginning of a session."""
    event = {"hook_event_name": "SessionStart", "source": "startup", "session_id": "connect", "cwd": ""}
    last = home.path / hook.HOOKS / "last_error"
    last.unlink(missing_ok=True)
    began = time.monotonic()
    try:
        done = subprocess.run(
            command(host, home),
            shell=True,
            input=json.dumps(event).encode(),
            capture_output=True,
            timeout=_TRY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Tried(False, time.monotonic() - began, 0, 0, str(error))
    told = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout else ""
    waits = sum(len(files) for files, _ in hook.waiting(home.path / hook.HOOKS))
    wrong = last.read_text().strip() if last.is_file() else done.stderr.decode(errors="replace").strip()
    return Tried(done.returncode == 0 and not wrong, time.monotonic() - began, len(told), waits, wrong)
