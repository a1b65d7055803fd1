"""`/subagents`: what this session delegated, and stopping it."""

from __future__ import annotations

from holdfast.agents.commands import Command, CommandContext, Reply
from holdfast.agents.subagents import registry, words
from holdfast.agents.subagents.registry import Run
from holdfast.agents.subagents.spawning import Parts
from holdfast.agents.subagents.tools import joined, matching, row, stop
from holdfast.errors import Conflict, InvalidInput
from holdfast.log import SYSTEM, Tx
from holdfast.text import clip

USAGE = "[list | stop <name or all> | info <name> | send <name> <message>]"


class SubagentCommands:
    def __init__(self, parts: Parts) -> None:
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
    return f"{run.name}: {state}{late} · {words.stats(run, now)}\n   {clip(' '.join(run.task.split()), 100)}"


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
