"""How a terminal reaches an agent: in this process where no gateway runs, else through the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol
from urllib.parse import quote

from holdfast.errors import HoldfastError, NotFound, Unauthorized, Unavailable, problem_error
from holdfast.log import OWNER

if TYPE_CHECKING:
    import httpx

    from holdfast.agents.approvals import Approval
    from holdfast.agents.models import Models
    from holdfast.config import Config
    from holdfast.home import Home
    from holdfast.runtime import Holdfast


Decision = Literal["approve", "deny", "allow"]
Told = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Whom one speaks to, as given: nothing is the default agent, its main session and its own model."""

    agent_id: str | None = None
    session_key: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class About:
    """Whom one speaks to, as it is. `builtin` says that no language model is connected."""

    agent_id: str
    session_key: str
    model: str
    builtin: bool
    where: str
    name: str | None = None


class Line(Protocol):
    """All answers are in the form that the gateway gives them."""

    async def about(self, target: Target) -> About: ...

    async def say(self, text: str, target: Target, *, steer: bool = False) -> Told:
        """Hand over a message; the word that it was accepted, with the `reply` of a command."""
        ...

    def events(self, run_id: str) -> AsyncGenerator[Told]:
        """What a run has said and says, to its end, however long that is and whatever breaks meanwhile."""
        ...

    async def status(self, run_id: str) -> Told: ...

    async def live(self, session_key: str) -> list[str]:
        """The runs of a session that have not ended, oldest first."""
        ...

    async def cancel(self, run_id: str) -> None: ...

    async def approval(self, id_: str) -> Told: ...

    async def decide(self, id_: str, decision: Decision) -> Told: ...


def named(target: Target, config: Config) -> tuple[str, str]:
    """The agent and the session that a target names; `NotFound` for an agent that is not configured."""
    from holdfast.ids import AgentId
    from holdfast.keys import MainKey, canonical_agent_id, canonical_key, parse_key

    key = None if target.session_key is None else canonical_key(target.session_key)
    given = None if target.agent_id is None else str(canonical_agent_id(target.agent_id))
    agent = (None if key is None else parse_key(key).agent_id) or given or config.default_agent_id
    config.agent(agent)
    return agent, str(key or MainKey(AgentId(agent)))


async def described(
    target: Target, home: Home, config: Config, models: Models, chosen: str | None, where: str
) -> About:
    """Who would answer; servers on this machine are asked first, since one of them may be it."""
    from holdfast.agents.models import RECALL
    from holdfast.cli.workspaces import workspace_of
    from holdfast.context import FileReader, Workspace

    agent, key = named(target, config)
    await models.discover()
    ref = models.choice(config.agent(agent), target.model or chosen)[0]
    files = Workspace(workspace_of(home, config, agent), FileReader())
    return About(agent, key, str(ref), ref == RECALL, where, files.identity(config.agent(agent)).name)


def who() -> str:
    """The person at this terminal, as approvals name them."""
    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):
        return "cli"


GRACE_SECONDS: Final = 2.0


class Here:
    """The rooms of an open home, asked directly."""

    def __init__(self, hold: Holdfast) -> None:
        self._hold = hold

    async def about(self, target: Target) -> About:
        hold = self._hold
        _, key = named(target, hold.settings)
        chosen = await hold.threads(self._chosen, key)
        return await described(
            target, hold.home, hold.settings, hold.agency.models, chosen, "in this process"
        )

    async def say(self, text: str, target: Target, *, steer: bool = False) -> Told:
        from holdfast.agents.loop import Ask
        from holdfast.agents.models import ModelRef

        if target.model is None:
            await self._hold.agency.models.discover()
        else:
            ModelRef.parse(target.model)
        ask = Ask(
            text=text,
            agent_id=target.agent_id,
            session_key=target.session_key,
            model=target.model,
            sender=who(),
            mode="steer" if steer else None,
        )
        return (await self._hold.runs.accept(ask)).json()

    async def events(self, run_id: str) -> AsyncGenerator[Told]:
        async with contextlib.aclosing(self._hold.runs.subscribe(run_id)) as said:
            async for event in said:
                yield event.json()

    async def status(self, run_id: str) -> Told:
        return (await self._hold.runs.status(run_id)).json()

    async def live(self, session_key: str) -> list[str]:
        return await self._hold.threads(self._live, session_key)

    async def cancel(self, run_id: str) -> None:
        await self._hold.runs.cancel(run_id)

    async def approval(self, id_: str) -> Told:
        return _told(await self._hold.threads(self._approval, id_))

    async def decide(self, id_: str, decision: Decision) -> Told:
        return _told(await self._hold.threads(self._decide, id_, decision))

    def _chosen(self, key: str) -> str | None:
        """The model that was chosen for a session with `/model`."""
        from holdfast.log import sessions

        with self._hold.store.read(OWNER) as tx:
            session = sessions.active(tx, key)
        chosen: Any = None if session is None else (session.meta or {}).get("model")
        return chosen if isinstance(chosen, str) else None

    def _live(self, session_key: str) -> list[str]:
        from holdfast.log import agenda, turns

        with self._hold.store.read(OWNER) as tx:
            items = agenda.listing(tx, kinds=turns.KINDS, lane=session_key)
        return [str(item.payload["turnId"]) for item in items]

    def _approval(self, id_: str) -> Approval:
        from holdfast.agents.approvals import requests

        with self._hold.store.read(OWNER) as tx:
            return requests.get(tx, id_)

    def _decide(self, id_: str, decision: Decision) -> Approval:
        from holdfast.agents.approvals import allow_always, requests

        with self._hold.store.write(OWNER) as tx:
            if decision == "allow":
                return allow_always(tx, id_, by=who())
            return (requests.approve if decision == "approve" else requests.deny)(tx, id_, by=who())


@contextlib.asynccontextmanager
async def serving(hold: Holdfast) -> AsyncIterator[Here]:
    """Everything that a gateway would run, for a conversation: turns, sorting, the index."""
    from holdfast.services import Services

    async with Services(hold).running():
        yield Here(hold)


@contextlib.asynccontextmanager
async def turns_only(hold: Holdfast) -> AsyncIterator[Here]:
    """Turns and nothing else, for one of them; what follows from it waits on the agenda for who serves it."""
    import asyncio

    from holdfast.log import Bridge
    from holdfast.log.agenda import Runner

    options = hold.settings.agenda
    runner = Runner(hold.store, hold.threads, lease_ms=options.lease_seconds * 1000)
    hold.runs.register(runner)
    bridge = Bridge(hold.store)
    bridge.start()
    task = asyncio.create_task(runner.run(), name="runner")
    try:
        yield Here(hold)
    finally:
        await runner.stop(GRACE_SECONDS)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await hold.aclose()
        bridge.stop()


def _told(approval: Approval) -> Told:
    from holdfast.cli.commands.approvals import approval_json

    return approval_json(approval)


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

    from holdfast.cli.client import is_encrypted

    headers = {"Authorization": f"Bearer {home.admin_token()}"}
    async with httpx.AsyncClient(
        base_url=url, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False, verify=is_encrypted(url)
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
