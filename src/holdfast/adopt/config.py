"""The config of an OpenClaw home, taken over where ours says nothing yet."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Final

from holdfast.adopt.report import Report
from holdfast.config import ConfigStore, adopt_openclaw
from holdfast.config.source import parse_text, read_text
from holdfast.errors import HoldfastError

NAMES: Final = ("openclaw.json", "clawdbot.json", "moltbot.json")
# Two gateways cannot share a port, and workspaces are copied to where ours stand.
_OURS: Final = (
    ("gateway", "port"),
    ("gateway", "host"),
    ("gateway", "bind"),
    ("agents", "defaults", "workspace"),
)


def read_config(folder: Path, report: Report) -> dict[str, Any]:
    """The OpenClaw config as plain data; empty where there is none that can be read."""
    path = next((folder / name for name in NAMES if (folder / name).is_file()), None)
    if path is None:
        report.note("config", "left out", "openclaw.json", "there is none")
        return {}
    try:
        data = parse_text(read_text(path) or "{}", source=str(path))
    except HoldfastError as error:
        report.note("config", "failed", path.name, error.message)
        return {}
    if not isinstance(data, dict):
        report.note("config", "failed", path.name, "it holds no object")
        return {}
    return _with_agent_list(data)


def _with_agent_list(data: dict[str, Any]) -> dict[str, Any]:
    """Agents by id, as newer versions have them, as the list of older ones."""
    agents = data.get("agents")
    if not isinstance(agents, dict) or not isinstance(agents.get("entries"), dict) or "list" in agents:
        return data
    listed = [{"id": id_, **(one if isinstance(one, dict) else {})} for id_, one in agents["entries"].items()]
    rest = {name: value for name, value in agents.items() if name != "entries"}
    return {**data, "agents": {**rest, "list": listed}}


def adopt_config(store: ConfigStore, data: dict[str, Any], report: Report) -> None:
    """Merge what we know of `data` under what our own file says; the rest is named in the report."""
    if not data:
        return
    given = copy.deepcopy(data)
    for path in _OURS:
        _drop(given, path)
    for agent in _agents(given):
        agent.pop("workspace", None)
        agent.pop("agentDir", None)
    kept, dropped = adopt_openclaw(given)
    for path_text in dropped:
        report.note("config", "left out", path_text, "Holdfast has no such key, or takes no such value")
    try:
        wanted = _unset(kept, store.data(), "", report)
        if wanted and not report.dry_run:
            store.patch(wanted)
    except HoldfastError as error:
        report.note("config", "failed", store.path.name, error.message)
        return
    if wanted:
        report.note("config", "added", ", ".join(sorted(wanted)))
    else:
        report.count("config", "unchanged")


def _unset(theirs: dict[str, Any], ours: Any, path: str, report: Report) -> dict[str, Any]:
    """What `theirs` says and `ours` does not; lists and values are taken whole or not at all."""
    new: dict[str, Any] = {}
    for name, value in theirs.items():
        at = f"{path}.{name}".lstrip(".")
        if value is None:
            continue
        if name not in ours:
            new[name] = value
        elif isinstance(value, dict) and isinstance(ours[name], dict):
            inner = _unset(value, ours[name], at, report)
            new |= {name: inner} if inner else {}
        elif ours[name] != value:
            report.note("config", "differs", at, "the value that was set here was kept")
    return new


def _agents(data: dict[str, Any]) -> list[dict[str, Any]]:
    agents = data.get("agents")
    listed = agents.get("list") if isinstance(agents, dict) else None
    return [agent for agent in listed if isinstance(agent, dict)] if isinstance(listed, list) else []


def _drop(data: Any, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        data = data.get(name) if isinstance(data, dict) else None
    if isinstance(data, dict):
        data.pop(path[-1], None)
