"""The whole of an OpenClaw home, step by step: its config, its state, its sessions. Each step goes on where
another failed.
"""

from __future__ import annotations

import copy
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.adopt.report import Report, copy_file, copy_tree
from holdfast.adopt.sessions import adopt_sessions
from holdfast.clock import iso
from holdfast.config import ConfigStore, adopt_openclaw
from holdfast.config.source import parse_text, read_text
from holdfast.errors import HoldfastError, InvalidInput, NotFound
from holdfast.keys import canonical_agent_id
from holdfast.log import OWNER, Tx

if TYPE_CHECKING:
    from holdfast.agents.cron import Wish
    from holdfast.runtime import Holdfast


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


_STRICTER: Final = {"security": ("deny", "allowlist"), "ask": ("on-miss", "always")}
_DATABASE: Final = "state/openclaw.sqlite"


def adopt_cron_jobs(hold: Holdfast, source: Path, report: Report) -> None:
    """Jobs become standing tasks that are switched off: two programs must not do the same work twice."""
    from holdfast.agents.cron.tasks import make_task

    for job in _jobs(source, report):
        name = f"cron: {str(job.get('name') or job.get('id'))[:80]}"
        try:
            wish = _wish(job)
            with hold.store.write(OWNER) as tx:
                known = {task.created_by.get("openclaw") for task in _all_tasks(tx)}
                if job.get("id") in known:
                    report.count("cron", "unchanged")
                    continue
                if not report.dry_run:
                    make_task(tx, hold.settings, wish, {"openclaw": job.get("id")})
        except HoldfastError as error:
            report.note("cron", "left out", name, error.message)
            continue
        report.note("cron", "added", name, "switched off; see `holdfast cron list`")


def exec_defaults(source: Path, report: Report) -> dict[str, str]:
    """`security` and `ask` for all agents, as far as they ask for more care than nothing said."""
    found = _object(_approvals(source, report).get("defaults"))
    return {name: found[name] for name, taken in _STRICTER.items() if found.get(name) in taken}


def adopt_exec_approvals(hold: Holdfast, source: Path, report: Report) -> None:
    """Commands that a person allowed for good, as patterns; an allowance that is not clear is not taken."""
    from holdfast.agents.approvals import allowlist

    for agent_id, given in _object(_approvals(source, report).get("agents")).items():
        for one in _object(given).get("allowlist") or ():
            entry = {"pattern": one} if isinstance(one, str) else _object(one)
            name = f"{agent_id}: {str(entry.get('pattern'))[:120]}"
            try:
                patterns = _patterns(entry)
                agent = hold.settings.agent(agent_id).id
                with hold.store.write(OWNER) as tx:
                    known = {item.pattern for item in allowlist.listing(tx, agent)}
                    new = [pattern for pattern in patterns if pattern not in known]
                    for pattern in () if report.dry_run else new:
                        allowlist.allow(tx, agent, pattern, by="import openclaw")
            except HoldfastError as error:
                report.note("approvals", "refused", name, error.message)
                continue
            report.count("approvals", "added" if new else "unchanged")


def _patterns(entry: Mapping[str, Any]) -> tuple[str, str]:
    """OpenClaw's pattern names a program and lets it run with anything."""
    from holdfast.agents.policy.exec_policy import check_pattern

    if entry.get("argPattern"):
        raise InvalidInput("it is bound to arguments by a hash, which says nothing here")
    program = str(entry.get("pattern") or "").strip()
    if not program or len(program.split()) != 1:
        raise InvalidInput("it does not name one program")
    program = str(Path(program).expanduser()) if program.startswith("~/") else program
    return check_pattern(program), check_pattern(f"{program} *")


def _wish(job: Mapping[str, Any]) -> Wish:
    from holdfast.agents.cron import Wish

    schedule, payload = _object(job.get("schedule")), _object(job.get("payload"))
    prompt = payload.get("message") or payload.get("text")
    if payload.get("kind") not in ("agentTurn", "systemEvent") or not isinstance(prompt, str):
        raise InvalidInput(f"a job of kind {str(payload.get('kind'))[:40]!r} has no words for an agent")
    limit = payload.get("timeoutSeconds")
    return Wish(
        prompt=prompt,
        name=str(job.get("name") or "")[:80],
        agent_id=job.get("agentId") if isinstance(job.get("agentId"), str) else None,
        session="main" if job.get("sessionTarget") == "main" else "isolated",
        model=payload.get("model") if isinstance(payload.get("model"), str) else None,
        timeout_seconds=limit if isinstance(limit, int) and 0 < limit <= 604_800 else None,
        deliver="none" if _object(job.get("delivery")).get("mode") == "none" else "last",
        enabled=False,
        **_when(schedule),
    )


def _when(schedule: Mapping[str, Any]) -> dict[str, str]:
    zone = {"tz": schedule["tz"]} if isinstance(schedule.get("tz"), str) else {}
    match schedule:
        case {"kind": "cron", "expr": str(expr)}:
            return {"cron": expr, **zone}
        case {"kind": "every", "everyMs": int(ms)}:
            return {"every": f"{max(1, ms // 1000)}s"}
        case {"kind": "at", "atMs": int(ms)}:
            return {"at": iso(ms)}
        case {"kind": "at", "at": str(at)}:
            return {"at": at, **zone}
    raise InvalidInput("its schedule is of a kind that is not known here")


def _all_tasks(tx: Tx) -> Iterator[Any]:
    from holdfast.agents.cron import tasks

    offset = 0
    while page := tasks.listing(tx, offset=offset):
        yield from page
        offset += len(page)


def _jobs(source: Path, report: Report) -> list[dict[str, Any]]:
    rows = _rows(source, "SELECT job_json FROM cron_jobs ORDER BY sort_order, job_id", report)
    if rows:
        return [job for text in rows if (job := _parsed(text))]
    found = _file(source / "cron/jobs.json", report)
    listed = found.get("jobs") if isinstance(found, dict) else found
    return [job for job in listed if isinstance(job, dict)] if isinstance(listed, list) else []


def _approvals(source: Path, report: Report) -> dict[str, Any]:
    rows = _rows(source, "SELECT raw_json FROM exec_approvals_config LIMIT 1", report)
    found = _parsed(rows[0]) if rows else _file(source / "exec-approvals.json", report)
    return found if isinstance(found, dict) else {}


def _rows(source: Path, query: str, report: Report) -> list[str]:
    """The first column; a database without that table is one of another version."""
    path = source / _DATABASE
    if not path.is_file():
        return []
    try:
        conn = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        try:
            return [str(row[0]) for row in conn.execute(query)]
        finally:
            conn.close()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            report.note("home", "failed", _DATABASE, str(error))
    except sqlite3.Error as error:
        report.note("home", "failed", _DATABASE, str(error))
    return []


def _file(path: Path, report: Report) -> Any:
    try:
        return json.loads(path.read_text("utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        report.note("home", "failed", path.name, str(error))
        return {}


def _parsed(text: str) -> dict[str, Any]:
    try:
        return _object(json.loads(text))
    except ValueError:
        return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
