"""The tool that runs commands, and how it tells what became of them."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from holdfast.agents.approvals import Admission, Approval, ExecCall, account_of_refusal, admit, redeem
from holdfast.agents.policy import decide, exec_settings, policy_of
from holdfast.agents.sandbox import SCRATCH, Host, Job, Limits, Outcome, Place, limits_of, place_of, run
from holdfast.agents.sandbox.backends import Access, Backend
from holdfast.agents.tools.checks import approved, asked_approval, unless_cancelled
from holdfast.agents.tools.commands import STOPS, BackgroundCommands, Command, CommandFiles, Record
from holdfast.agents.tools.settings import (
    Root,
    Spot,
    has_folder,
    reach_of,
    sandbox_of,
    sandboxed,
    sandboxes,
    situation_of,
)
from holdfast.agents.tools.types import Caller, Tool, ToolOutput
from holdfast.config.tools import Exec
from holdfast.effects import Effect
from holdfast.errors import Conflict, Forbidden, HoldfastError, NotFound
from holdfast.home import Home
from holdfast.log import SYSTEM, Store, Threads, ringing, sessions

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_ENDS: Final = {
    "timeout": "it ran out of time and was ended",
    "processes": "it made too many processes and was ended",
    "memory": "it took too much memory and was ended",
    "output": "it wrote without end and was ended",
    "killed": "it was ended as asked",
}


def progress_text(command: Command) -> str:
    """How a running command stands, and what it wrote since it was last told of."""
    first = command.told == 0
    heard = command.said.since(command.told)
    command.told = heard.end
    text = plain(heard.text())
    id_ = command.id
    still = (
        f"The command still runs after {command.seconds:.1f} s, in the background, as {id_}. "
        f'exec {{"poll": "{id_}", "waitSeconds": 60}} waits for it, {{"log": "{id_}"}} gives all of its '
        f'output, {{"kill": "{id_}"}} ends it.'
    )
    if not text:
        return f"{still} It has written nothing{'' if first else ' more'}."
    return f"{text}{_gap(text)}[{still}]"


def end_text(command: Command, outcome: Outcome) -> str:
    """How a command ended, and all that is held of what it wrote."""
    text = plain(command.said.since().text())
    if outcome.ok:
        return text or "[it succeeded and wrote nothing]"
    how = _how("killed" if command.killed else outcome.end, outcome.code)
    return f"{text}{_gap(text)}[{how}, after {outcome.seconds:.1f} s]"


def record_of(command: Command) -> Record:
    """The command as it is written down."""
    outcome = command.outcome
    end = None if outcome is None else ("killed" if command.killed else outcome.end)
    return Record(
        id=command.id,
        command=command.text,
        output=plain(command.said.since().text()),
        seconds=round(command.seconds, 1),
        end=end,
        code=None if outcome is None else outcome.code,
    )


def record_text(kept: Record) -> str:
    """A command of before a restart."""
    if kept.end is None:
        how = (
            f"Holdfast was stopped while it ran, last seen after {kept.seconds} s; how it ended is not known"
        )
    else:
        how = f"{_how(kept.end, kept.code)}, after {kept.seconds} s"
    text = kept.output or "[nothing]"
    return f"{text}{_gap(text)}[{how}]"


def plain(text: str) -> str:
    """Without what colours it on a terminal."""
    return _ESCAPES.sub("", text)


def _how(end: str, code: int | None) -> str:
    return _ENDS.get(end, f"it ended with exit code {code}")


def _gap(text: str) -> str:
    return "" if not text or text.endswith("\n") else "\n"


log = logging.getLogger(__name__)

_LONGEST_POLL: Final = 600
_MIN_SECRET: Final = 8
_LOOK_AFTER_SECONDS: Final = 2.0
_BY_HAND: Final = ("new", "reset", "archive")


class ExecInput(BaseModel):
    """Run a shell command in the workspace. A long one goes on in the background under an id: poll for what
    is new, log for all of its output, kill to end it. A person may have to approve it first."""

    model_config = ConfigDict(extra="forbid")
    command: Annotated[str | None, Field(min_length=1, max_length=32_000, description="The command.")] = None
    cwd: Annotated[str | None, Field(max_length=4096, description="Folder to run it in.")] = None
    timeoutSeconds: Annotated[int | None, Field(ge=1, description="End it after so long.")] = None  # noqa: N815
    background: Annotated[bool, Field(description="Do not wait for it.")] = False
    elevated: Annotated[bool, Field(description="Outside the sandbox, for senders who may.")] = False
    poll: Annotated[str | None, Field(max_length=64, description="Id of a command to follow.")] = None
    log: Annotated[str | None, Field(max_length=64, description="Id of a command to read whole.")] = None
    kill: Annotated[str | None, Field(max_length=64, description="Id of a command to end.")] = None
    waitSeconds: Annotated[int, Field(ge=0, le=_LONGEST_POLL, description="With poll: wait so long.")] = 0  # noqa: N815

    @model_validator(mode="after")
    def _one_of_these(self) -> ExecInput:
        if sum(value is not None for value in (self.command, self.poll, self.log, self.kill)) != 1:
            raise ValueError("give exactly one of command, poll, log and kill")
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
            private=self.call.private,
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
        commands: BackgroundCommands,
        skill_env: Callable[[str], dict[str, str]] = lambda _: {},
        sandbox: Callable[[], Backend | None] = lambda: None,
    ) -> None:
        self._files = CommandFiles(home, store.clock)
        self._store = store
        self._threads = threads
        self._home = home
        self._commands = commands
        self._skill_env = skill_env
        self._sandbox = sandbox

    def tool(self) -> Tool[ExecInput]:
        return Tool(
            name="exec",
            input=ExecInput,
            run=self.run,
            effect=Effect.WORLD,
            repeatable=False,
            for_others=has_folder,
        )

    async def run(self, caller: Caller, given: ExecInput, _: str) -> ToolOutput:
        asked = given.kill or given.poll or given.log
        if asked is not None:
            return await self._asked_about(caller, given, asked)
        plan = await self._threads(self._plan, caller, given)
        shell = await self._admitted(caller, plan)
        command = self._begin(caller, plan, shell)
        wait = 0.0 if given.background else plan.settings.background_ms / 1000
        return await self._first(caller, command, wait)

    async def _asked_about(self, caller: Caller, given: ExecInput, id_: str) -> ToolOutput:
        """One that this process no longer knows is told of as it was last written down."""
        try:
            command = self._commands.get(caller.session.id, id_)
        except NotFound:
            kept = await self._threads(self._files.find, caller.agent_id, caller.session.id, id_)
            if kept is None:
                raise
            return ToolOutput(text=record_text(kept), details={"commandId": id_, "running": False})
        if given.log is not None:
            command.told = 0
        command.killed = command.killed or given.kill is not None
        return await self._followed(caller, command, 5.0 if given.kill is not None else given.waitSeconds)

    def _plan(self, caller: Caller, given: ExecInput) -> _Plan:
        settings = exec_settings(caller.config, caller.agent_id)
        elevated = self._elevated(caller, given)
        place = place_of(
            sandbox_of(caller),
            sandboxes(self._home),
            agent_id=caller.agent_id,
            session_key=caller.session.key,
            other=self._sandbox,
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
            private=self._home.path,
            mounts=self._mounts(caller, place),
        )
        network = sandbox_of(caller).network or place.backend.name == "docker"
        env = self._env(caller, settings)
        limits = _within(limits_of(settings), given.timeoutSeconds)
        return _Plan(call, place, settings, cwd, caller.workspace.absolute(), env, limits, network)

    def _env(self, caller: Caller, settings: Exec) -> dict[str, str]:
        """What the config adds to the environment: the owner's secrets, which are nobody else's to use."""
        if not caller.alone:
            return {}
        own = {name: secret.reveal(os.environ) for name, secret in settings.env.items()}
        return self._skill_env(caller.agent_id) | own

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

    def _mounts(self, caller: Caller, place: Place) -> tuple[tuple[str, Path], ...]:
        if not place.sandboxed:
            return ()
        roots = (*reach_of(caller, self._home).roots, Root(place.scratch, SCRATCH))
        return tuple(dict.fromkeys((root.inside, root.path) for root in roots))

    def _elevated(self, caller: Caller, given: ExecInput) -> bool:
        """Asked for where there is no sandbox, there is nothing to leave."""
        if not given.elevated or not sandboxed(caller):
            return False
        if not caller.alone:
            raise Forbidden("others hear this chat: nothing leaves its sandbox", code="not_elevated")
        found = decide("exec", policy_of(caller.config, caller.agent_id), situation_of(caller, elevated=True))
        if not found.allowed:
            raise Forbidden(f"this command may not leave the sandbox: {found.reason}", code="not_elevated")
        return True

    async def _admitted(self, caller: Caller, plan: _Plan) -> str:
        """The text for the shell, once the command may run; the words as judged, unless all may run.

        A command that a person approved runs as that person read it.
        """

        def judged() -> Admission:
            call = plan.call.looked_at()
            return self._store.run(SYSTEM, lambda tx: admit(tx, call, plan.settings))

        admission = await self._threads(judged)
        found = admission.decision
        if admission.approval is not None:
            await self._approved(caller, plan, admission.approval)
            return plan.call.command
        if found.verdict != "run":
            raise Forbidden(
                f"the command was refused: {found.reason}",
                code="exec_refused",
                hint="Use another command or tool; only the operator can allow this one.",
            )
        return plan.call.command if found.pipeline is None else found.pipeline.text()

    async def _approved(self, caller: Caller, plan: _Plan, asked: Approval) -> None:
        approval = await approved(self._store, self._threads, caller, asked, "the command")
        try:
            await self._threads(self._redeemed, plan, asked.id)
        except Conflict as error:
            caller.progress(error.message, asked_approval(approval))
            raise
        caller.progress(f"approved by {approval.decided_by}", asked_approval(approval))

    def _redeemed(self, plan: _Plan, id_: str) -> None:
        call = plan.call.looked_at()
        try:
            self._store.run(SYSTEM, lambda tx: redeem(tx, call, id_))
        except Conflict as error:
            why = error.message
            self._store.run(SYSTEM, lambda tx: account_of_refusal(tx, call, id_, why))
            raise

    def _begin(self, caller: Caller, plan: _Plan, shell: str) -> Command:
        access = sandbox_of(caller).workspace_access if plan.place.sandboxed else "rw"
        job = plan.job(shell, access)

        def work(command: Command) -> Outcome:
            """What it wrote is in `said`, masked, and need not be kept twice."""
            outcome = run(plan.place.backend, job, cancelled=command.ended, heard=command.said.take)
            return replace(outcome, output=b"")

        secrets = tuple(value for value in plan.env.values() if len(value) >= _MIN_SECRET)
        return self._commands.start(
            caller.session.id,
            plan.call.command,
            work,
            secrets=secrets,
            watched=caller.cancelled,
            most_output=plan.limits.output_bytes,
        )

    async def _first(self, caller: Caller, command: Command, wait: float) -> ToolOutput:
        """Wait for a new command for a while; a turn that is cancelled takes it along until then."""
        try:
            return await self._followed(caller, command, wait)
        except asyncio.CancelledError:
            command.killed = True
            raise
        finally:
            command.watched = self._left(caller, command)
            command.keep = self._keeper(caller.agent_id) if command.running else None

    def _left(self, caller: Caller, command: Command) -> Callable[[], bool]:
        """Whether somebody, in whatever process, stopped the command's session or left it by hand; asked now
        and then."""
        looked = time.monotonic()
        stops = (caller.session.meta or {}).get(STOPS)

        def left() -> bool:
            nonlocal looked
            if time.monotonic() - looked < _LOOK_AFTER_SECONDS:
                return False
            looked = time.monotonic()
            try:
                with self._store.read(SYSTEM) as tx:
                    now = sessions.get(tx, command.session_id)
            except HoldfastError:
                return False
            command.killed |= now.archive_cause in _BY_HAND or (now.meta or {}).get(STOPS) != stops
            return command.killed

        return left

    def _keeper(self, agent_id: str) -> Callable[[Command], None]:
        def keep(command: Command) -> None:
            try:
                self._files.write(agent_id, command.session_id, record_of(command))
            except OSError as error:  # the command goes on; what it writes is only not kept for later
                log.warning("the output of %s cannot be kept: %s", command.id, error.strerror)

        return keep

    async def _followed(self, caller: Caller, command: Command, wait: float) -> ToolOutput:
        if command.running and wait > 0:
            await unless_cancelled(caller, _end_of(command), seconds=wait)
        if command.running:
            details = {"commandId": command.id, "running": True}
            return ToolOutput(text=progress_text(command), details=details)
        outcome = command.done.result()
        return ToolOutput(
            text=end_text(command, outcome),
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


async def _end_of(command: Command) -> None:
    bell = asyncio.Event()
    command.done.add_done_callback(ringing(bell.set))
    await bell.wait()
