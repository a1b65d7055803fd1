"""`exec`: a command, once policy or a person let it, in the place that the session's settings give it."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.agents.approvals import Admission, ApprovalStatus, ExecCall, admit, decision, redeem
from holdfast.agents.policy import decide, exec_settings, policy_of
from holdfast.agents.sandbox import Host, Job, Limits, Outcome, Place, limits_of, place_of, run
from holdfast.agents.sandbox.backend import Access
from holdfast.agents.tools.commands import Command, Commands
from holdfast.agents.tools.reach import Spot, reach_of, sandboxes
from holdfast.agents.tools.settings import sandboxed, situation_of
from holdfast.agents.tools.types import Caller, Effect, Tool, ToolOutput
from holdfast.config.tools import Exec
from holdfast.errors import Conflict, Forbidden
from holdfast.home import Home
from holdfast.log import Store, Threads, ringing
from holdfast.logs import MASK

T = TypeVar("T")
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LOOK_SECONDS: Final = 0.1
_LONGEST_POLL: Final = 600
_MIN_SECRET: Final = 8
_ENDS: Final = {
    "timeout": "it ran out of time and was ended",
    "processes": "it made too many processes and was ended",
    "memory": "it took too much memory and was ended",
    "output": "it wrote without end and was ended",
}


class ExecInput(BaseModel):
    """Run a shell command in the workspace. One that takes long goes on in the background under an id:
    follow it with poll, end it with kill. A person may have to approve the command first."""

    model_config = ConfigDict(extra="forbid")
    command: Annotated[str | None, Field(min_length=1, max_length=32_000, description="The command.")] = None
    cwd: Annotated[str | None, Field(max_length=4096, description="Folder to run it in.")] = None
    timeoutSeconds: Annotated[int | None, Field(ge=1, description="End it after so long.")] = None  # noqa: N815
    background: Annotated[bool, Field(description="Do not wait for it.")] = False
    elevated: Annotated[bool, Field(description="Outside the sandbox, for senders who may.")] = False
    poll: Annotated[str | None, Field(max_length=64, description="Id of a command to follow.")] = None
    kill: Annotated[str | None, Field(max_length=64, description="Id of a command to end.")] = None
    waitSeconds: Annotated[int, Field(ge=0, le=_LONGEST_POLL, description="With poll: wait so long.")] = 0  # noqa: N815

    @model_validator(mode="after")
    def _one_of_three(self) -> ExecInput:
        if sum(value is not None for value in (self.command, self.poll, self.kill)) != 1:
            raise ValueError("give exactly one of command, poll and kill")
        return self


@dataclass(frozen=True, slots=True)
class _Plan:
    """A command before it is let through: what the gate judges, and how it would run."""

    call: ExecCall
    place: Place
    settings: Exec
    cwd: str
    workspace: Path
    env: dict[str, str]
    limits: Limits
    network: bool

    def job(self, shell: str, access: Access) -> Job:
        return Job(
            argv=("sh", "-c", shell),
            scratch=self.place.scratch,
            workspace=self.workspace,
            access=access,
            network=self.network,
            cwd=self.cwd,
            env=self.env,
            limits=self.limits,
        )


class ExecTool:
    """`skill_env` gives what the config adds to commands on behalf of an agent's skills."""

    def __init__(
        self,
        store: Store,
        threads: Threads,
        home: Home,
        commands: Commands,
        skill_env: Callable[[str], dict[str, str]] = lambda _: {},
    ) -> None:
        self._store = store
        self._threads = threads
        self._home = home
        self._commands = commands
        self._skill_env = skill_env

    def tool(self) -> Tool[ExecInput]:
        return Tool(name="exec", input=ExecInput, run=self.run, effect=Effect.WORLD)

    async def run(self, caller: Caller, given: ExecInput, _: str) -> ToolOutput:
        if given.kill is not None:
            command = self._commands.get(caller.session.id, given.kill)
            command.killed = True
            return await self._followed(caller, command, 5.0)
        if given.poll is not None:
            command = self._commands.get(caller.session.id, given.poll)
            return await self._followed(caller, command, given.waitSeconds)
        plan = await self._threads(self._plan, caller, given)
        shell = await self._admitted(caller, plan)
        command = self._begin(caller, plan, shell)
        wait = 0.0 if given.background else plan.settings.background_ms / 1000
        return await self._first(caller, command, wait)

    def _plan(self, caller: Caller, given: ExecInput) -> _Plan:
        settings = exec_settings(caller.config, caller.agent_id)
        elevated = self._elevated(caller, given)
        place = place_of(
            caller.settings.sandbox,
            sandboxes(self._home),
            agent_id=caller.agent_id,
            session_key=caller.session.key,
        )
        if elevated:
            place = Place(Host(), place.scratch, False)
        caller.workspace.mkdir(parents=True, exist_ok=True)
        base, folder, cwd = self._where(caller, given.cwd, place)
        call = ExecCall(
            agent_id=caller.agent_id,
            command=given.command or "",
            workspace=base,
            cwd=folder,
            session_key=caller.session.key,
            turn_id=caller.turn_id,
            elevated=elevated,
        )
        network = caller.settings.sandbox.network or place.backend.name == "docker"
        env = {name: secret.reveal(os.environ) for name, secret in settings.env.items()}
        env = self._skill_env(caller.agent_id) | env
        limits = _within(limits_of(settings), given.timeoutSeconds)
        return _Plan(call, place, settings, cwd, caller.workspace.absolute(), env, limits, network)

    def _where(self, caller: Caller, cwd: str | None, place: Place) -> tuple[Path, Path, str]:
        """The folder that bounds what is judged, the one to run in, and its name where it runs."""
        if place.sandboxed:
            spot: Spot = reach_of(caller, self._home).spot(cwd or ".")
            return spot.root.path, spot.real, spot.inside
        base = caller.workspace.absolute()
        folder = Path(os.path.normpath(base / Path(cwd or ".").expanduser()))
        if not folder.is_dir():
            raise Conflict(f"{cwd!r} is not a folder", code="not_a_folder", hint="Make it first.")
        return base, folder, str(folder)

    def _elevated(self, caller: Caller, given: ExecInput) -> bool:
        """Asked for where there is no sandbox, there is nothing to leave."""
        if not given.elevated or not sandboxed(caller):
            return False
        found = decide("exec", policy_of(caller.config, caller.agent_id), situation_of(caller, elevated=True))
        if not found.allowed:
            raise Forbidden(f"this command may not leave the sandbox: {found.reason}", code="not_elevated")
        return True

    async def _admitted(self, caller: Caller, plan: _Plan) -> str:
        """The text for the shell, once the command may run; the words as judged, unless all may run.

        A command that a person approved runs as that person read it.
        """

        def judged() -> Admission:
            return self._store.run(lambda tx: admit(tx, plan.call, plan.settings))

        admission = await self._threads(judged)
        found = admission.decision
        if admission.approval is not None:
            await self._approved(caller, plan, admission.approval.id, found.reason)
            return plan.call.command
        if found.verdict != "run":
            raise Forbidden(
                f"the command was refused: {found.reason}",
                code="exec_refused",
                hint="Use another command or tool; only the operator can allow this one.",
            )
        return plan.call.command if found.pipeline is None else found.pipeline.text()

    async def _approved(self, caller: Caller, plan: _Plan, id_: str, reason: str) -> None:
        caller.progress(f"waiting for approval {id_}: {reason}")
        approval = await _unless_cancelled(caller, decision(self._store, self._threads, id_))
        assert approval is not None
        if approval.status is not ApprovalStatus.APPROVED:
            how = "nobody answered in time" if approval.status is ApprovalStatus.EXPIRED else "it was denied"
            raise Forbidden(
                f"the command was not approved: {how} ({id_})",
                code="not_approved",
                hint="Do not try the same again; say what you wanted it for.",
            )
        await self._threads(self._store.run, lambda tx: redeem(tx, plan.call, id_))
        caller.progress(f"approved by {approval.decided_by}")

    def _begin(self, caller: Caller, plan: _Plan, shell: str) -> Command:
        access = caller.settings.sandbox.workspace_access if plan.place.sandboxed else "rw"
        job = plan.job(shell, access)

        def work(ended: Callable[[], bool]) -> Outcome:
            return run(plan.place.backend, job, cancelled=ended)

        secrets = tuple(value for value in plan.env.values() if len(value) >= _MIN_SECRET)
        return self._commands.start(
            caller.session.id, plan.call.command, work, secrets=secrets, watched=caller.cancelled
        )

    async def _first(self, caller: Caller, command: Command, wait: float) -> ToolOutput:
        """Wait for a new command for a while; a turn that is cancelled takes it along until then."""
        try:
            return await self._followed(caller, command, wait)
        except asyncio.CancelledError:
            command.killed = True
            raise
        finally:
            command.watched = None

    async def _followed(self, caller: Caller, command: Command, wait: float) -> ToolOutput:
        if command.running and wait > 0:
            await _unless_cancelled(caller, _end_of(command), seconds=wait)
        if command.running:
            details = {"commandId": command.id, "running": True}
            return ToolOutput(text=_still(command), details=details)
        outcome = command.done.result()
        return ToolOutput(
            text=_told(command, outcome),
            is_error=not outcome.ok,
            details={
                "commandId": command.id,
                "running": False,
                "exitCode": outcome.code,
                "end": "killed" if command.killed else outcome.end,
                "seconds": round(outcome.seconds, 3),
            },
        )


def _within(limits: Limits, seconds: int | None) -> Limits:
    return limits if seconds is None else replace(limits, seconds=min(limits.seconds, float(seconds)))


def _still(command: Command) -> str:
    return (
        f"The command still runs after {command.seconds:.1f} s, in the background, as {command.id}. Its "
        f'output comes at its end: exec {{"poll": "{command.id}", "waitSeconds": 60}} waits for it, '
        f'exec {{"kill": "{command.id}"}} ends it.'
    )


def _told(command: Command, outcome: Outcome) -> str:
    text = _ESCAPES.sub("", outcome.output.decode("utf-8", "replace"))
    for secret in sorted(command.secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    if outcome.dropped:
        text += f"\n[{outcome.dropped} more bytes of output were not kept]"
    if outcome.ok:
        return text or "[it succeeded and wrote nothing]"
    if command.killed:
        how = "it was ended as asked"
    else:
        how = _ENDS.get(outcome.end, f"it ended with exit code {outcome.code}")
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}[{how}, after {outcome.seconds:.1f} s]"


async def _end_of(command: Command) -> None:
    bell = asyncio.Event()
    command.done.add_done_callback(ringing(bell.set))
    await bell.wait()


async def _unless_cancelled(
    caller: Caller, awaitable: Coroutine[Any, Any, T], *, seconds: float | None = None
) -> T | None:
    """What is awaited, given up once the turn is cancelled by its flag; None if `seconds` pass before."""
    loop = asyncio.get_running_loop()
    until = None if seconds is None else loop.time() + seconds
    task = loop.create_task(awaitable)
    try:
        while until is None or loop.time() < until:
            pause = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - loop.time())
            done, _ = await asyncio.wait({task}, timeout=pause)
            if done:
                return task.result()
            if caller.cancelled():
                raise Conflict("the turn was cancelled", code="cancelled")
        return None
    finally:
        task.cancel()
