"""What somebody asks for when they make or change a standing task, checked against the config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.agents.cron import tasks
from holdfast.agents.cron.schedules import Cron, Schedule, schedule_of
from holdfast.agents.cron.tasks import Task, Where
from holdfast.agents.heartbeat.zones import zone_of
from holdfast.config import Config
from holdfast.errors import Busy, Conflict, InvalidInput
from holdfast.log import Tx

MOST_PROMPT: Final = 32_000
MOST_NAME: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A task as it is asked for; one of `cron`, `every` and `at` says when."""

    prompt: str
    name: str = ""
    agent_id: str | None = None
    cron: str | None = None
    every: str | None = None
    at: str | None = None
    tz: str | None = None
    session: Where = "isolated"
    model: str | None = None
    timeout_seconds: int | None = None
    deliver: str = "last"
    enabled: bool = True


def make(tx: Tx, config: Config, wish: Wish, created_by: Mapping[str, Any]) -> Task:
    """A new task; `Busy` when there are as many as there may be."""
    agent_id = config.agent(wish.agent_id or config.default_agent_id).id
    _check_text(wish.prompt, wish.name)
    if tasks.enabled_count(tx) >= config.cron.max_jobs:
        raise Busy(
            f"there are {config.cron.max_jobs} standing tasks already",
            code="too_many_tasks",
            hint="Remove some, or raise cron.maxJobs.",
        )
    return tasks.add(
        tx,
        name=_name(wish),
        agent_id=agent_id,
        schedule=_schedule(wish, config, agent_id, tx.now),
        prompt=wish.prompt.strip(),
        session=wish.session,
        model=wish.model,
        timeout_seconds=wish.timeout_seconds,
        deliver=wish.deliver,
        enabled=wish.enabled,
        created_by=dict(created_by),
    )


def change(tx: Tx, config: Config, task: Task, sent: Mapping[str, Any], revision: int | None = None) -> Task:
    """Change what was sent; a new schedule or being switched on counts from now."""
    if revision is not None and revision != task.revision:
        raise Conflict("the task changed meanwhile", code="stale_task", hint="Read it again.")
    values = {name: sent[name] for name in _CHANGEABLE if name in sent}
    _check_text(str(values.get("prompt", task.prompt)), str(values.get("name", task.name)))
    when = {name: sent[name] for name in ("cron", "every", "at", "tz") if sent.get(name)}
    if when:
        same = {"cron": task.schedule.expr} if isinstance(task.schedule, Cron) and set(when) == {"tz"} else {}
        wish = Wish(prompt=task.prompt, **when | same)
        values["schedule"] = _schedule(wish, config, task.agent_id, tx.now)
    schedule: Schedule = values.get("schedule", task.schedule)
    enabled = bool(values.get("enabled", task.enabled or bool(when)))
    comes = schedule.next(tx.now) if enabled else None
    if enabled and comes is None:
        raise InvalidInput("its time has passed", code="bad_schedule", hint="Give it a new schedule.")
    saved = tasks.save(tx, task, **values | {"enabled": enabled, "next_due": comes})
    tasks.plan(tx, saved)
    return saved


_CHANGEABLE: Final = ("name", "prompt", "session", "model", "timeout_seconds", "deliver", "enabled")


def _schedule(wish: Wish, config: Config, agent_id: str, now: int) -> Schedule:
    default = str(zone_of(config.cron.timezone, config.agent(agent_id)))
    return schedule_of(now, default, cron=wish.cron, every=wish.every, at=wish.at, tz=wish.tz)


def _name(wish: Wish) -> str:
    words = wish.name.strip() or wish.prompt.strip().splitlines()[0][:MOST_NAME].strip()
    return "".join(ch if ch.isprintable() else " " for ch in words)


def _check_text(prompt: str, name: str) -> None:
    if not prompt.strip() or len(prompt) > MOST_PROMPT:
        raise InvalidInput(f"a standing task needs a prompt of at most {MOST_PROMPT:,} characters")
    if len(name) > MOST_NAME:
        raise InvalidInput(f"a standing task's name has at most {MOST_NAME} characters")
