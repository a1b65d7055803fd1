"""Standing tasks in the form that pages, tools and programs are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from holdfast.agents.cron import tasks
from holdfast.agents.cron.tasks import Task
from holdfast.clock import iso
from holdfast.log import Tx
from holdfast.log.tables import outbox


def task_json(tx: Tx, task: Task) -> dict[str, Any]:
    return tasks_json(tx, [task])[0]


def tasks_json(tx: Tx, found: Sequence[Task]) -> list[dict[str, Any]]:
    states = _deliveries(tx, found)
    return [_told(task, states.get(task.id)) for task in found]


def look(tx: Tx, ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """What a change of kind `cron` is about."""
    return {told["id"]: told for told in tasks_json(tx, tasks.get_many(tx, ids))}


def _told(task: Task, delivery: str | None) -> dict[str, Any]:
    """`lastDelivery` is a state of its own: that a run went well does not say that its reply arrived."""
    return {
        "id": task.id,
        "name": task.name,
        "agentId": task.agent_id,
        "session": task.session,
        "sessionKey": task.session_key,
        "schedule": task.schedule.json(),
        "prompt": task.prompt,
        "model": task.model,
        "timeoutSeconds": task.timeout_seconds,
        "deliver": task.deliver,
        "enabled": task.enabled,
        "nextDue": _time(task.next_due),
        "lastRun": _time(task.last_run),
        "lastStatus": task.last_status,
        "lastError": task.last_error,
        "lastTurnId": task.turn_id,
        "lastDelivery": delivery,
        "runs": task.runs,
        "failures": task.failures,
        "createdBy": dict(task.created_by),
        "createdAt": iso(task.created_at),
        "updatedAt": iso(task.updated_at),
        "revision": task.revision,
    }


def _deliveries(tx: Tx, found: Sequence[Task]) -> dict[str, str]:
    keys = {f"reply:{task.turn_id}": task.id for task in found if task.turn_id is not None}
    query = sa.select(outbox.c.key, outbox.c.status).where(outbox.c.key.in_(sorted(keys)))
    return {keys[row.key]: row.status for row in tx.conn.execute(query)} if keys else {}


def _time(at: int | None) -> str | None:
    return None if at is None else iso(at)
