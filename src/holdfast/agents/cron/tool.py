"""`cron_create`: how an agent makes, lists and removes its own standing tasks."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.cron import asking, tasks
from holdfast.agents.cron.asking import Wish
from holdfast.agents.cron.firing import Parts
from holdfast.agents.cron.tasks import Task, Where
from holdfast.agents.cron.views import task_json
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.effects import Effect
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import SYSTEM, Tx

_MOST_LISTED = 50


class CronInput(BaseModel):
    """Make a standing task that runs by itself later: every so often, by a cron expression, or once. Use it
    when the user asks to be reminded, or wants something done again and again. `list` shows your tasks,
    `remove` ends one. Write the prompt so that it can be understood without this conversation."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["create", "list", "remove"] = "create"
    prompt: Annotated[
        str | None, Field(max_length=asking.MOST_PROMPT, description="What is to be done when it runs.")
    ] = None
    name: Annotated[str | None, Field(max_length=asking.MOST_NAME, description="A short name.")] = None
    cron: Annotated[str | None, Field(max_length=200, description='As in "0 9 * * 1-5".')] = None
    every: Annotated[str | None, Field(max_length=40, description='A duration, such as "2h".')] = None
    at: Annotated[
        str | None, Field(max_length=40, description='Once: a time ("2026-01-31T09:30") or from now ("20m").')
    ] = None
    tz: Annotated[str | None, Field(max_length=64, description="IANA zone; unset: the user's.")] = None
    session: Annotated[
        Where, Field(description="isolated: a fresh session each time. main: your main session.")
    ] = "isolated"
    deliver: Annotated[
        str, Field(min_length=1, max_length=300, description="last: where you are asked now. none: nowhere.")
    ] = "last"
    id: Annotated[str | None, Field(max_length=100, description="Which task to remove.")] = None


class CronTool:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def tool(self) -> Tool[CronInput]:
        return Tool(
            name="cron_create",
            input=CronInput,
            run=self.run,
            effect=Effect.OWN,
            repeatable=False,
            offered=_offered,
        )

    async def run(self, caller: Caller, given: CronInput, _: str) -> ToolOutput:
        act = {"create": self._create, "list": self._list, "remove": self._remove}[given.action]
        body = await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: act(tx, caller, given))
        return ToolOutput(text=json.dumps(body, ensure_ascii=False))

    def _create(self, tx: Tx, caller: Caller, given: CronInput) -> dict[str, Any]:
        if given.prompt is None:
            raise InvalidInput("a standing task needs a prompt", hint="Say what is to be done when it runs.")
        sent = given.model_dump(exclude={"action", "id", "name"})
        wish = Wish(**sent, name=given.name or "", agent_id=caller.agent_id)
        return task_json(tx, asking.make(tx, self._parts.config(), wish, _made_by(caller)))

    def _list(self, tx: Tx, caller: Caller, given: CronInput) -> dict[str, Any]:
        found = tasks.listing(tx, agent_ids=frozenset((caller.agent_id,)), limit=_MOST_LISTED)
        return {"tasks": [task_json(tx, task) for task in found if _sees(caller, task)]}

    def _remove(self, tx: Tx, caller: Caller, given: CronInput) -> dict[str, Any]:
        task = None if given.id is None else tasks.find(tx, given.id, lock=True)
        if task is None or task.agent_id != caller.agent_id or not _sees(caller, task):
            raise NotFound("no such standing task of yours", code="unknown_task", hint="See action list.")
        tasks.remove(tx, task)
        return {"ok": True, "removed": task.id}


def _offered(caller: Caller) -> bool:
    return caller.config.cron.enabled and not caller.subagent


def _made_by(caller: Caller) -> dict[str, Any]:
    """With these rights it runs: a task is never more than who asked for it."""
    return {
        "kind": "agent",
        "sessionKey": caller.session.key,
        "turnId": caller.turn_id,
        "sender": caller.sender,
        "owner": caller.owner,
    }


def _sees(caller: Caller, task: Task) -> bool:
    """The owner sees all of the agent's tasks, others their own."""
    made_by = task.created_by
    return caller.owner or (made_by.get("owner") is False and made_by.get("sender") == caller.sender)
