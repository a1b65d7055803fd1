"""The whole of an OpenClaw home, step by step; each step goes on where another failed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.adopt.config import adopt_config, read_config
from holdfast.adopt.files import copy_file, copy_tree
from holdfast.adopt.report import Report
from holdfast.adopt.sessions import adopt_sessions
from holdfast.adopt.state import adopt_cron_jobs, adopt_exec_approvals, exec_defaults
from holdfast.errors import InvalidInput, NotFound
from holdfast.keys import canonical_agent_id

if TYPE_CHECKING:
    from holdfast.runtime import Holdfast

OWN_SECRETS: Final = frozenset(("token", "cookie_key"))
_TAKEN: Final = ("agents", "credentials", "skills", "workspace", "cron", "exec-approvals.json", "state")
_DERIVED: Final = ("logs", "memory", "cache", "tmp", "media", "sandbox")


def adopt_openclaw_home(
    hold: Holdfast,
    folder: str | os.PathLike[str],
    *,
    dry_run: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Take over an OpenClaw home. The folder is only read; running it again adds only what is new there."""
    source = Path(folder).expanduser().absolute()
    _check(source, hold.home.path)
    report = Report(str(source), dry_run, progress=progress)
    data = read_config(source, report)
    adopt_config(hold.config, _with_exec(data, exec_defaults(source, report)), report)
    default = _default_agent(data)
    for agent_id in _agent_ids(source, data, default, report):
        _adopt_agent(hold, source, data, agent_id, default=agent_id == default, report=report)
    if (source / "credentials").is_dir():
        copy_tree(
            source / "credentials", hold.home.credentials, report, "credentials", mode=0o600, skip=OWN_SECRETS
        )
    if (source / "skills").is_dir():
        copy_tree(source / "skills", hold.home.skills, report, "skills")
    adopt_cron_jobs(hold, source, report)
    adopt_exec_approvals(hold, source, report)
    _name_the_rest(source, report)
    return report


def _with_exec(data: dict[str, Any], given: dict[str, str]) -> dict[str, Any]:
    """The config with how commands are approved, which OpenClaw keeps elsewhere; its own word wins."""
    tools = data.get("tools", {})
    own = tools.get("exec", {}) if isinstance(tools, dict) else None
    if not given or not isinstance(own, dict):
        return data
    return {**data, "tools": {**tools, "exec": {**given, **own}}}


def _check(source: Path, home: Path) -> None:
    if not source.is_dir():
        raise NotFound(f"there is no folder {source}", hint="Give the OpenClaw home, usually ~/.openclaw.")
    if source.resolve() == home.resolve():
        raise InvalidInput("a home cannot adopt itself", hint="Give the OpenClaw home, usually ~/.openclaw.")
    if not any(
        (source / name).exists() for name in ("openclaw.json", "clawdbot.json", "agents", "workspace")
    ):
        raise InvalidInput(
            f"{source} is not an OpenClaw home: it has neither openclaw.json nor agents/ nor workspace/",
            hint="Give the OpenClaw home, usually ~/.openclaw.",
        )


def _adopt_agent(
    hold: Holdfast, source: Path, data: dict[str, Any], agent_id: str, *, default: bool, report: Report
) -> None:
    workspace = _workspace(source, data, agent_id, default)
    if workspace is not None:
        report.begin(str(workspace))
        copy_tree(workspace, hold.home.workspace(agent_id, default=default), report, "workspace")
    folder = source / "agents" / agent_id
    profiles = folder / "agent" / "auth-profiles.json"
    if profiles.is_file():
        target = hold.settings.agent_dir(agent_id, hold.home.agent_dir(agent_id)) / profiles.name
        name = f"agents/{agent_id}/agent/{profiles.name}"
        copy_file(profiles, target, report, "credentials", name=name, mode=0o600)
    if folder.is_dir():
        adopt_sessions(hold.store, folder, agent_id, report)


def _agent_ids(source: Path, data: dict[str, Any], default: str, report: Report) -> Iterator[str]:
    """The agents of the config and those that only have a folder, each once."""
    folders = sorted(p.name for p in (source / "agents").glob("*") if p.is_dir())
    seen: set[str] = set()
    for name in [default, *(str(agent.get("id")) for agent in _listed(data)), *folders]:
        try:
            agent_id = canonical_agent_id(name)
        except InvalidInput as error:
            report.note("sessions", "refused", f"agents/{name[:80]}", error.message)
            continue
        if agent_id not in seen:
            seen.add(agent_id)
            yield agent_id


def _workspace(source: Path, data: dict[str, Any], agent_id: str, default: bool) -> Path | None:
    """Where the agent's workspace is: as configured, or in its usual place within the home."""
    own = next((agent.get("workspace") for agent in _listed(data) if agent.get("id") == agent_id), None)
    if own is None and default:
        own = _defaults(data).get("workspace")
    usual = "workspace" if default else f"workspace-{agent_id}"
    places = [source / usual]
    if isinstance(own, str) and own:
        configured = Path(own).expanduser()
        places = [
            source / configured if not configured.is_absolute() else configured,
            source / configured.name,
            *places,
        ]
    return next((place for place in places if place.is_dir()), None)


def _default_agent(data: dict[str, Any]) -> str:
    ids = [agent for agent in _listed(data) if isinstance(agent.get("id"), str)]
    marked = next((agent for agent in ids if agent.get("default") is True), None)
    chosen = marked or (ids[0] if ids else {"id": "main"})
    return str(chosen["id"]).lower()


def _listed(data: dict[str, Any]) -> list[dict[str, Any]]:
    agents = data.get("agents")
    listed = agents.get("list") if isinstance(agents, dict) else None
    return [agent for agent in listed if isinstance(agent, dict)] if isinstance(listed, list) else []


def _defaults(data: dict[str, Any]) -> dict[str, Any]:
    agents = data.get("agents")
    found = agents.get("defaults") if isinstance(agents, dict) else data.get("agent")
    return found if isinstance(found, dict) else {}


def _name_the_rest(source: Path, report: Report) -> None:
    """Say what of the home was not looked at, so that nobody thinks it came along."""
    for path in sorted(source.iterdir()):
        taken = path.name in _TAKEN or path.name.startswith(
            ("workspace-", "openclaw.json", "clawdbot.json", ".")
        )
        if not taken:
            detail = "derived, built anew here" if path.name in _DERIVED else "Holdfast does not read it"
            report.remark("home", "left out", path.name, detail)
