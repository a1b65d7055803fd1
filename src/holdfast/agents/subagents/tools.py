"""The tools and slash commands with which a run's requester lists, steers and stops it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from holdfast.agents.commands import Command, CommandContext, Reply
from holdfast.agents.subagents import ending, registry
from holdfast.agents.subagents.checks import SpawnInput, SubagentsInput
from holdfast.agents.subagents.registry import Run
from holdfast.agents.subagents.spawning import Spawner, SubagentParts
from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.clock import iso
from holdfast.context import Trust, UserMessage, draft_of
from holdfast.effects import Effect
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import SYSTEM, TurnStatus, Tx, turns
from holdfast.text import clip
from holdfast.traces import here

EVERY: Final = "all"
KILLED: Final = "stopped by the session that asked for it"


class SubagentTools:
    def __init__(self, parts: SubagentParts, spawner: Spawner) -> None:
        self._parts = parts
        self._spawner = spawner

    def tools(self) -> tuple[Tool[Any], ...]:
        """Neither is repeated unasked after a crash: a child would be sent off twice."""
        return (
            Tool(
                name="sessions_spawn",
                input=SpawnInput,
                run=self.spawn,
                effect=Effect.OWN,
                repeatable=False,
                for_others=always,
                offered=_may_spawn,
            ),
            Tool(
                name="subagents",
                input=SubagentsInput,
                run=self.look_after,
                effect=Effect.OWN,
                repeatable=False,
                for_others=always,
            ),
        )

    async def spawn(self, caller: Caller, given: SpawnInput, _: str) -> ToolOutput:
        run = await self._spawner.spawn(caller, given, traceparent=here())
        told: dict[str, Any] = {
            "status": "accepted",
            "runId": run.run_id,
            "childSessionKey": run.child_key,
            "agentId": run.agent_id,
            "label": run.label,
            "mode": run.mode,
            "context": run.context,
            "depth": run.depth,
            "runTimeoutSeconds": run.timeout_seconds,
            "expectsCompletionMessage": run.expects,
            "note": ending.ACCEPTED,
        }
        return _answer({name: value for name, value in told.items() if value is not None})

    async def look_after(self, caller: Caller, given: SubagentsInput, _: str) -> ToolOutput:
        threads, store = self._parts.threads, self._parts.store
        if given.action == "list":
            return _answer(await threads(self.listed, caller.session.key), Trust.OTHER_SESSION)
        if given.target is None:
            raise InvalidInput("which subagent?", hint="Name it in target; see action list.")
        target = given.target
        if given.action == "stop":
            stopped = await threads(
                store.run, SYSTEM, lambda tx: stop(tx, caller.session.key, target, KILLED)
            )
            return _answer({"stopping": [run.child_key for run in stopped]})
        if not (given.message or "").strip():
            raise InvalidInput("nothing to send", hint="Put it into message.")
        return _answer(await self._send(caller, target, given.message or ""))

    def listed(self, requester_key: str) -> dict[str, Any]:
        with self._parts.store.read(SYSTEM) as tx:
            return {"subagents": [row(run, tx.now) for run in registry.children(tx, requester_key, limit=50)]}

    async def _send(self, caller: Caller, target: str, text: str) -> dict[str, Any]:
        def steer(tx: Tx) -> tuple[Run, bool]:
            found = matching(tx, caller.session.key, target)
            return found[0], joined(tx, found[0], text)

        run, reached = await self._parts.threads(self._parts.store.run, SYSTEM, steer)
        if reached:
            return {"status": "joined", "runId": run.run_id, "childSessionKey": run.child_key}
        fresh = await self._spawner.further(run, text, caller)
        return {"status": "accepted", "runId": fresh.run_id, "childSessionKey": fresh.child_key}


def joined(tx: Tx, run: Run, text: str) -> bool:
    """Say something into a run that waits or runs; False if it has ended."""
    turn = ending.turn_of(tx, run)
    if not run.live or turn is None or turn.status not in (TurnStatus.ACCEPTED, TurnStatus.RUNNING):
        return False
    spoken = draft_of(UserMessage(text=text, trust=Trust.MODEL))
    source = {"channel": "subagent", "fromSessionKey": run.requester_key, **(spoken.source or {})}
    turns.join(tx, turn, replace(spoken, source=source, idempotency_key=f"subagent-said:{uuid7()}"))
    return True


def stop(tx: Tx, requester_key: str, target: str, reason: str) -> list[Run]:
    """Have runs of a session end; those that have ended are left out."""
    named = target.strip().lower() == EVERY
    found = registry.children(tx, requester_key, live=True) if named else matching(tx, requester_key, target)
    live = [run for run in found if run.live]
    for run in live:
        registry.stop_soon(tx, run, reason)
    return live


def matching(tx: Tx, requester_key: str, target: str) -> list[Run]:
    """The newest run that a name means: a run's id, a session's key, the end of either, or a label."""
    wanted = target.strip()
    found = registry.children(tx, requester_key)
    exact = [run for run in found if wanted in (run.id, run.run_id, run.child_key, run.label)]
    ends = [run for run in found if len(wanted) >= 4 and run.id.endswith(wanted)]
    chosen = exact or ends
    if not chosen:
        raise NotFound(
            f"no subagent {clip(wanted, 80)!r} of this session", code="unknown_subagent", hint="See the list."
        )
    return chosen[:1]


def row(run: Run, now: int) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": run.id,
        "runId": run.run_id,
        "childSessionKey": run.child_key,
        "label": run.label,
        "task": clip(" ".join(run.task.split()), 160),
        "status": run.status.value,
        "outcome": None if run.live or run.outcome is None else run.outcome.value,
        "error": None if run.live else run.error,
        "parts": run.parts or None,
        "chainId": run.chain_id,
        "stats": ending.stats(run, now),
        "announce": run.announce.value,
        "createdAt": iso(run.created_at),
        "endedAt": None if run.ended_at is None else iso(run.ended_at),
        "stale": True if run.stale(now) else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _may_spawn(caller: Caller) -> bool:
    return not caller.one_off and caller.depth < caller.settings.subagents.max_spawn_depth


def _answer(body: Mapping[str, Any], trust: Trust = Trust.TOOL) -> ToolOutput:
    return ToolOutput(text=json.dumps(body, ensure_ascii=False), trust=trust, details=body)


USAGE = "[list | stop <name or all> | info <name> | send <name> <message>]"


class SubagentCommands:
    def __init__(self, parts: SubagentParts) -> None:
        self._parts = parts

    def commands(self) -> tuple[Command, ...]:
        return (Command("subagents", "What this session delegated.", self.run, USAGE, owner_only=True),)

    async def run(self, context: CommandContext, args: str) -> Reply:
        word, _, rest = args.partition(" ")
        name, key = rest.strip(), context.session.key
        run = self._parts.store.run
        match word.lower() or "list":
            case "list":
                return await self._parts.threads(self._list, key)
            case "stop" | "kill" if name:
                return await self._parts.threads(run, SYSTEM, lambda tx: _stop(tx, key, name))
            case "info" | "log" if name:
                return await self._parts.threads(run, SYSTEM, lambda tx: _info(tx, key, name))
            case "send" | "steer" if name:
                return await self._parts.threads(run, SYSTEM, lambda tx: _send(tx, key, name))
        raise InvalidInput(f"/subagents {clip(args, 60)} is not understood", hint=f"/subagents {USAGE}")

    def _list(self, key: str) -> Reply:
        with self._parts.store.read(SYSTEM) as tx:
            runs, now = registry.children(tx, key, limit=20), tx.now
        lines = [f"{n}. {_line(run, now)}" for n, run in enumerate(runs, 1)]
        data = {"subagents": [row(run, now) for run in runs]}
        return Reply("\n".join(lines) or "This session has delegated nothing.", data)


def _line(run: Run, now: int) -> str:
    state = run.status.value if run.live or run.outcome is None else run.outcome.value
    late = " (stale)" if run.stale(now) else ""
    return f"{run.name}: {state}{late} · {ending.stats(run, now)}\n   {clip(' '.join(run.task.split()), 100)}"


def _stop(tx: Tx, key: str, name: str) -> Reply:
    stopped = stop(tx, key, name, "stopped")
    if not stopped:
        return Reply("Nothing of that is under way.", {"stopped": []})
    return Reply(
        "Stopping " + ", ".join(run.name for run in stopped) + ".", {"stopped": [r.id for r in stopped]}
    )


def _info(tx: Tx, key: str, name: str) -> Reply:
    run = matching(tx, key, name)[0]
    return Reply(run.announcement or _line(run, tx.now), row(run, tx.now))


def _send(tx: Tx, key: str, args: str) -> Reply:
    name, _, text = args.partition(" ")
    run = matching(tx, key, name)[0]
    if not text.strip():
        raise InvalidInput("nothing to send", hint="/subagents send <name> <message>")
    if not joined(tx, run, text.strip()):
        raise Conflict(f"{run.name} has ended", code="subagent_ended", hint="Ask the agent to spawn another.")
    return Reply(f"{run.name} is told.", {"id": run.id})
