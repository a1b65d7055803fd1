"""`webhook_create`: for the owner, where webhooks are served; its secret is shown to no model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from builders import KEY, soon
from holdfast.agents.cron import sign
from holdfast.agents.loop import Ask
from holdfast.log import FOR_OWNER
from holdfast.runtime import Holdfast, open_home
from holdfast.services import Services
from holdfast.testing import Asked, Call, Say, ScriptedOpenAI, Turn

BODY = b'{"build": "broken"}'


class Model:
    """Makes the calls that it is given, one a turn, and keeps what it was offered and told."""

    def __init__(self, *calls: dict[str, Any]) -> None:
        self._calls = list(calls)
        self.offered: list[bool] = []
        self.told: list[str] = []
        self.prompts = ""

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """No calls meanwhile."""
        self._calls, kept = [], self._calls
        yield
        self._calls = kept

    def __call__(self, asked: Asked) -> Turn:
        self.prompts += json.dumps(asked.body)
        if asked.messages[-1]["role"] == "tool":
            self.told.append(asked.last_text)
            return Say("Done.")
        self.offered.append("webhook_create" in asked.tools)
        return Call("webhook_create", self._calls.pop(0)) if self._calls else Say("Seen.")


def configured(url: str, **hooks: Any) -> str:
    provider = {"baseUrl": url, "apiKey": "none", "models": [{"id": "scripted"}]}
    defaults = {"model": "scripted/scripted", "skipBootstrap": True, "heartbeat": {"every": "0m"}}
    return json.dumps(
        {
            "models": {"mode": "replace", "providers": {"scripted": provider}},
            "agents": {"defaults": defaults},
            "tools": {"profile": "full"},
            "board": {"enabled": False},
            "memory": {"search": {"embedding": {"providers": []}}},
            "hooks": hooks,
        }
    )


async def said(hold: Holdfast, text: str, **more: Any) -> None:
    accepted = await hold.runs.accept(Ask(text=text, session_key=KEY, **more))
    assert (await soon(hold.runs.wait(accepted.run_id))).ok


def test_an_agent_makes_a_webhook_for_its_owner_that_takes_signed_calls_until_removed(
    tmp_path: Path,
) -> None:
    ci = {"name": "ci", "prompt": "Say what broke."}
    model = Model(ci, ci, {"action": "list"}, {"action": "remove", "name": "ci"}, {**ci, "name": "x"})

    async def main() -> None:
        with ScriptedOpenAI(model, models=["scripted"]) as server:
            (tmp_path / "holdfast.json").write_text(configured(server.url, enabled=True))
            with open_home(tmp_path) as hold:
                async with Services(hold).running():
                    for text in ("make one", "again", "list them"):
                        await said(hold, text)
                    hook = hold.settings.hooks.webhooks["ci"]
                    secret = hook.secret.reveal({})
                    assert (hook.agent, hook.owner) == ("main", False)
                    headers = {"x-holdfast-signature": sign(secret.encode(), BODY, None)}
                    with model.quiet():
                        taken = await hold.agency.standing.receive("ci", headers, BODY)
                        assert (await soon(hold.runs.wait(taken.run_id))).ok
                    await said(hold, "remove it")
                    assert hold.settings.hooks.webhooks == {}
                    await said(hold, "a stranger's wish", owner=False, sender="someone", heard=FOR_OWNER)
                    assert hold.settings.hooks.webhooks == {}
        assert secret not in model.prompts

    asyncio.run(main())
    assert model.offered == [True, True, True, False, True, False]
    made, again, listed, removed, refused = model.told
    assert json.loads(made)["path"] == "/api/hooks/ci"
    assert "there is a webhook" in again
    assert [hook["name"] for hook in json.loads(listed)["webhooks"]] == ["ci"]
    assert json.loads(removed) == {"ok": True, "removed": "ci"}
    assert "webhook_create" in refused


def test_nobody_is_offered_it_while_webhooks_are_not_served(tmp_path: Path) -> None:
    model = Model()

    async def main() -> None:
        with ScriptedOpenAI(model, models=["scripted"]) as server:
            (tmp_path / "holdfast.json").write_text(configured(server.url))
            with open_home(tmp_path) as hold:
                async with Services(hold).running():
                    await said(hold, "hello")

    asyncio.run(main())
    assert model.offered == [False]
