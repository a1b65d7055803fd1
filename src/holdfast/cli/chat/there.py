"""Turns through a running gateway."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from holdfast.cli.chat.line import About, Decision, Target, Told, described, named
from holdfast.errors import HoldfastError, NotFound, Unauthorized, Unavailable, problem_error

if TYPE_CHECKING:
    import httpx

    from holdfast.config import Config
    from holdfast.home import Home

TIMEOUT_SECONDS: Final = 30.0
SILENCE_SECONDS: Final = 90.0
_TRIES: Final = 30
_OPEN: Final = ("accepted", "running", "interrupted")
_PAUSE_SECONDS: Final = 0.5


class There:
    """A gateway of this home, asked over HTTP with the home's own token."""

    def __init__(self, http: httpx.AsyncClient, url: str, home: Home, config: Config) -> None:
        self._http = http
        self._url = url
        self._home = home
        self._config = config

    async def about(self, target: Target) -> About:
        """The model as configured; where none is, the last that answered; else as this terminal would choose,
        which does not know a key that only the gateway has in its environment."""
        from holdfast.agents.models import Models
        from holdfast.clock import SystemClock

        agent, key = named(target, self._config)
        configured = self._config.agent(agent).model.primary
        last = None if configured or target.model else await self._last_model(key)
        models = Models(self._home, lambda: self._config, SystemClock())
        try:
            return await described(target, self._home, self._config, models, last, f"through {self._url}")
        finally:
            await models.aclose()

    async def say(self, text: str, target: Target, *, steer: bool = False) -> Told:
        body = {
            "message": text,
            "agentId": target.agent_id,
            "sessionKey": target.session_key,
            "model": target.model,
            "mode": "steer" if steer else None,
        }
        return await self._call("POST", "/api/agent", {k: v for k, v in body.items() if v is not None})

    async def events(self, run_id: str) -> AsyncGenerator[Told]:
        """A stream that breaks is taken up again from its beginning, and says so."""
        tries = 0
        while True:
            tries += 1
            try:
                async for event in self._stream(run_id):
                    tries = 0
                    yield event
                    if _is_final(event):
                        return
            except Unavailable:
                if tries > _TRIES:
                    raise
            if tries > _TRIES:
                raise self._gone()
            await asyncio.sleep(_PAUSE_SECONDS)
            yield {"stream": "lifecycle", "data": {"phase": "restarted", "reason": "the connection broke"}}

    async def status(self, run_id: str) -> Told:
        return await self._call("GET", f"/api/agent/{quote(run_id)}")

    async def live(self, session_key: str) -> list[str]:
        """Among the last turns: an interrupted one counts if it is about to go on."""
        found = [turn for turn in await self._turns(session_key) if turn["status"] in _OPEN]
        statuses = [await self.status(str(turn["turnId"])) for turn in found]
        return [str(status["runId"]) for status in reversed(statuses) if not status["ended"]]

    async def cancel(self, run_id: str) -> None:
        await self._call("POST", f"/api/agent/{quote(run_id)}/cancel", {})

    async def approval(self, id_: str) -> Told:
        waiting: Any = await self._call("GET", "/api/approvals?status=all&limit=499")
        for one in waiting:
            if one["id"] == id_:
                return dict(one)
        raise NotFound(f"no approval {id_}", code="unknown_approval")

    async def decide(self, id_: str, decision: Decision) -> Told:
        return await self._call("POST", f"/api/approvals/{quote(id_)}", {"decision": decision})

    async def _last_model(self, key: str) -> str | None:
        return next((str(turn["model"]) for turn in await self._turns(key) if turn.get("model")), None)

    async def _turns(self, key: str) -> list[Told]:
        """The last turns of a session, newest first; none of one that is not there yet."""
        try:
            found: Any = await self._call("GET", f"/api/sessions/{quote(key, safe='')}/turns?limit=20")
        except NotFound:
            return []
        return list(found)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Told:
        import httpx

        try:
            answer = await self._http.request(method, path, json=body)
            told: Told = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise self._gone() from error
        self._refused(answer.status_code, told)
        return told

    async def _stream(self, run_id: str) -> AsyncIterator[Told]:
        import httpx

        quiet = httpx.Timeout(TIMEOUT_SECONDS, read=SILENCE_SECONDS)
        path = f"/api/agent/{quote(run_id)}/events"
        try:
            async with self._http.stream("GET", path, timeout=quiet) as answer:
                if answer.status_code >= 400:
                    await answer.aread()
                    self._refused(answer.status_code, answer.json())
                async for line in answer.aiter_lines():
                    event = _event(line)
                    if event is not None:
                        yield event
        except (httpx.HTTPError, ValueError) as error:
            raise self._gone() from error

    def _refused(self, status: int, told: object) -> None:
        if status in (401, 403):
            raise Unauthorized(f"the gateway at {self._url} does not know this home's token")
        if status >= 400:
            raise problem_error(status, told)

    def _gone(self) -> HoldfastError:
        return Unavailable(
            f"the gateway at {self._url} does not answer", code="no_gateway", hint="See `holdfast status`."
        )


@contextlib.asynccontextmanager
async def reached(url: str, home: Home, config: Config) -> AsyncIterator[There]:
    import httpx

    headers = {"Authorization": f"Bearer {home.admin_token()}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
    ) as http:
        yield There(http, url, home, config)


def _event(line: str) -> Told | None:
    """The event on a line of the stream; None for its other lines, and for what is no event of a run."""
    if not line.startswith("data:"):
        return None
    event = json.loads(line[5:])
    return event if isinstance(event, dict) and "stream" in event else None


def _is_final(event: Told) -> bool:
    return event.get("stream") == "lifecycle" and event["data"].get("phase") in ("end", "error")
