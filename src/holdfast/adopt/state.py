"""What OpenClaw keeps beside sessions: cron jobs and exec approvals, in its state database or older files."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.adopt.report import Report
from holdfast.clock import iso
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.log import OWNER, Tx

if TYPE_CHECKING:
    from holdfast.agents.cron import Wish
    from holdfast.runtime import Holdfast

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
