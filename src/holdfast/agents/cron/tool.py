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
from holdfast.agents.heartbeat.surfaces import LAST, NONE
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.effects import Effect
from holdfast.errors import Forbidden, InvalidInput, NotFound
from holdfast.log import SYSTEM, Tx, heard_by, turns

_MOST_LISTED = 50


class CronInput(BaseModel):
    """Make a task that runs by itself later, once or again and again: reminders, regular work. `list` shows
    your tasks, `remove` ends one. The prompt must be understood without this conversation."""

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
            for_others=always,
            offered=_offered,
        )

    async def run(self, caller: Caller, given: CronInput, _: str) -> ToolOutput:
        act = {"create": self._create, "list": self._list, "remove": self._remove}[given.action]
        body = await self._parts.threads(self._parts.store.run, SYSTEM, lambda tx: act(tx, caller, given))
        return ToolOutput(text=json.dumps(body, ensure_ascii=False))

    def _create(self, tx: Tx, caller: Caller, given: CronInput) -> dict[str, Any]:
        if given.prompt is None:
            raise InvalidInput("a standing task needs a prompt", hint="Say what is to be done when it runs.")
        self._require_own(tx, caller, given)
        sent = given.model_dump(exclude={"action", "id", "name"})
        wish = Wish(**sent, name=given.name or "", agent_id=caller.agent_id)
        return task_json(tx, asking.make(tx, self._parts.config(), wish, _made_by(tx, caller)))

    def _require_own(self, tx: Tx, caller: Caller, given: CronInput) -> None:
        """A task speaks where it was asked for. Nobody but the owner has tasks in the main session, and only
        the owner sends one elsewhere than to themselves, by hand."""
        if not caller.alone and given.session == "main":
            raise Forbidden(
                "the main session is the owner's", code="owner_only", hint="Use session isolated."
            )
        if given.deliver in (LAST, NONE):
            return
        heard = self._parts.heard_at(tx, given.deliver) if caller.alone and caller.owner else None
        if heard is None or not heard_by(heard).may_read(caller.session.audience):
            raise Forbidden(
                f"not everyone at {given.deliver[:80]!r} may read what the task will be given",
                code="not_theirs",
                hint="Use deliver last. The owner can make such a task with `holdfast cron add`.",
            )

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


def _made_by(tx: Tx, caller: Caller) -> dict[str, Any]:
    """With these rights it runs: a task is never more than who asked for it, and is heard by no more."""
    found = turns.get_many(tx, [caller.turn_id]) if caller.turn_id else []
    asked = Terms.read((found[0].meta or {}).get(ASK) or {}, caller.agent_id) if found else None
    to = None if asked is None or asked.deliver is None else asked.deliver.json()
    return {
        "kind": "agent",
        "sessionKey": caller.session.key,
        "turnId": caller.turn_id,
        "sender": caller.sender,
        "owner": caller.owner and caller.alone,
        "audience": caller.session.audience,
        "deliver": None if caller.alone else to,
        "limitedTo": None if caller.limited_to is None else list(caller.limited_to),
    }


def _sees(caller: Caller, task: Task) -> bool:
    """The owner, alone with the agent, sees all of its tasks; a chat that others hear sees its own."""
    if caller.alone:
        return caller.owner
    return task.created_by.get("audience") == caller.session.audience
