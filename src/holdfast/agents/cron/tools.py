"""The tools with which an agent looks after its standing tasks and its webhooks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.cron import tasks
from holdfast.agents.cron.firing import CronParts
from holdfast.agents.cron.tasks import Task, Where, Wish, task_json
from holdfast.agents.heartbeat.state import LAST, NONE
from holdfast.agents.loop.asks import ASK, Terms
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.config.extensions import Webhook
from holdfast.effects import Effect
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.log import SYSTEM, Tx, heard_by, turns

_MOST_LISTED = 50


class CronInput(BaseModel):
    """Make a task that runs by itself later, once or again and again: reminders, regular work. `list` shows
    your tasks, `remove` ends one. The prompt must be understood without this conversation."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["create", "list", "remove"] = "create"
    prompt: Annotated[
        str | None, Field(max_length=tasks.MOST_PROMPT, description="What is to be done when it runs.")
    ] = None
    name: Annotated[str | None, Field(max_length=tasks.MOST_NAME, description="A short name.")] = None
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
    def __init__(self, parts: CronParts) -> None:
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

    def _create(self, tx: Tx, caller: Caller, given: CronInput) -> Mapping[str, Any]:
        if given.prompt is None:
            raise InvalidInput("a standing task needs a prompt", hint="Say what is to be done when it runs.")
        self._require_own(tx, caller, given)
        sent = given.model_dump(exclude={"action", "id", "name"})
        wish = Wish(**sent, name=given.name or "", agent_id=caller.agent_id)
        return task_json(tx, tasks.make_task(tx, self._parts.config(), wish, _made_by(tx, caller)))

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


MOST: Final = 50
_SECRET_BYTES: Final = 32

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


class WebhookInput(BaseModel):
    """Make an address that another program can call: each signed call gives you a turn on what it brings,
    which is data from outside. `list` shows your webhooks, `remove` ends one. Only the owner may ask for
    it, and finds the key of its signatures in the config."""

    model_config = ConfigDict(extra="forbid")

    action: Literal["create", "list", "remove"] = "create"
    name: Name | None = None
    prompt: Annotated[str | None, Field(max_length=16_000, description="What you are to do with a call.")] = (
        None
    )
    template: Annotated[
        str | None, Field(max_length=16_000, description="How a call is shown, as in {{issue.title}}.")
    ] = None
    session: Annotated[
        Literal["isolated", "main"], Field(description="isolated: a session of its own. main: your main one.")
    ] = "isolated"
    deliver: Annotated[
        str,
        Field(min_length=1, max_length=300, description="none: nowhere. last: where the owner last spoke."),
    ] = "none"


class WebhookTool:
    def __init__(self, parts: CronParts) -> None:
        self._parts = parts

    def tool(self) -> Tool[WebhookInput]:
        return Tool(
            name="webhook_create",
            input=WebhookInput,
            run=self.run,
            effect=Effect.OWN,
            repeatable=False,
            offered=self._offered,
        )

    async def run(self, caller: Caller, given: WebhookInput, _: str) -> ToolOutput:
        if not self._offered(caller):
            raise Forbidden("only the owner may have webhooks made, where they are served")
        act = {"create": self._create, "list": self._list, "remove": self._remove}[given.action]
        return ToolOutput(text=json.dumps(await self._parts.threads(act, caller, given), ensure_ascii=False))

    def _offered(self, caller: Caller) -> bool:
        served = self._parts.patch is not None and caller.config.hooks.enabled
        return served and caller.owner and not caller.subagent

    def _create(self, caller: Caller, given: WebhookInput) -> dict[str, Any]:
        if given.name is None or not given.prompt:
            raise InvalidInput(
                "a webhook needs a name and a prompt", hint="Say what is to be done with a call."
            )
        known = self._parts.config().hooks.webhooks
        if given.name in known:
            raise Conflict(
                f"there is a webhook {given.name!r}", code="webhook_exists", hint="Name it otherwise."
            )
        if len(known) >= MOST:
            raise Conflict(f"there are {MOST} webhooks, which is the most", code="too_many_webhooks")
        sent = given.model_dump(include={"prompt", "template", "session", "deliver"}, exclude_none=True)
        self._patch(
            given.name, {**sent, "agent": caller.agent_id, "secret": secrets.token_urlsafe(_SECRET_BYTES)}
        )
        return {
            **_told(given.name, self._parts.config().hooks.webhooks[given.name]),
            "secret": f"in the config, hooks.webhooks.{given.name}.secret, where the owner reads it",
            "signature": "X-Holdfast-Signature: sha256=<HMAC-SHA256 of the body>",
        }

    def _list(self, caller: Caller, given: WebhookInput) -> dict[str, Any]:
        return {"webhooks": [_told(name, hook) for name, hook in self._own(caller).items()]}

    def _remove(self, caller: Caller, given: WebhookInput) -> dict[str, Any]:
        if given.name is None or given.name not in self._own(caller):
            raise NotFound("no such webhook of yours", code="unknown_webhook", hint="See action list.")
        self._patch(given.name, None)
        return {"ok": True, "removed": given.name}

    def _own(self, caller: Caller) -> dict[str, Webhook]:
        """Those that name the agent; what the operator left to the default agent is the operator's."""
        found = self._parts.config().hooks.webhooks
        return {name: hook for name, hook in found.items() if hook.agent == caller.agent_id}

    def _patch(self, name: str, hook: dict[str, Any] | None) -> None:
        assert self._parts.patch is not None
        self._parts.patch({"hooks": {"webhooks": {name: hook}}})


def _told(name: str, hook: Webhook) -> dict[str, Any]:
    return {
        "name": name,
        "path": f"/api/hooks/{name}",
        "enabled": hook.enabled,
        "prompt": hook.prompt,
        "session": hook.session,
        "deliver": hook.deliver,
    }
