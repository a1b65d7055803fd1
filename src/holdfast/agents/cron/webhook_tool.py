"""`webhook_create`: how an agent lets another program call it, if its operator serves webhooks at all."""

from __future__ import annotations

import json
import secrets
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from holdfast.agents.cron.firing import Parts
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.config.parts import Webhook
from holdfast.effects import Effect
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound

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
    def __init__(self, parts: Parts) -> None:
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
