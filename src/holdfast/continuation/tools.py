"""`continue_work`, `continue_delegate`, `request_compaction`: fire and forget, acted on after the turn."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from holdfast.agents.tools.types import Caller, Tool, ToolOutput, always
from holdfast.continuation import compaction, delegates, elections, records
from holdfast.continuation.attachments import MOST_FILES, Attachment, checked_mount
from holdfast.continuation.delegates import ReturnOptions
from holdfast.continuation.dependencies import Dependencies
from holdfast.continuation.elections import Elected, Wish
from holdfast.continuation.limits import Capped, seconds
from holdfast.continuation.state import Kind, Mode
from holdfast.continuation.tokens import MAX_TARGETS, MAX_TASK
from holdfast.effects import Effect
from holdfast.errors import Forbidden
from holdfast.keys import parse_key
from holdfast.log import SYSTEM, Tx, agenda, sessions, turns
from holdfast.traces import here, is_traceparent

MAX_REASON: Final = 1_024
_MOST_SECONDS: Final = 10**9


def _seconds(given: object) -> object:
    """A number that is meant: not a yes or no, and one beyond all bounds is clamped like any other."""
    if isinstance(given, bool):
        raise ValueError("expected a number of seconds")
    return min(given, _MOST_SECONDS) if isinstance(given, int | float) else given


Delay = Annotated[Annotated[float, Field(ge=0)] | None, BeforeValidator(_seconds)]
Trace = Annotated[str | None, Field(max_length=64, description="W3C traceparent to go on with.")]
Key = Annotated[str, Field(min_length=1, max_length=1024)]


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Traced(_Input):
    traceparent: Trace = None

    @field_validator("traceparent")
    @classmethod
    def _is_one(cls, given: str | None) -> str | None:
        if given is not None and not is_traceparent(given):
            raise ValueError("not a W3C traceparent")
        return given


class WorkInput(_Traced):
    """Elect another turn of this session after this one, to go on with work or to look again later. A budget
    bounds the chain; elect nothing when nothing is left to do."""

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON, description="What the turn is for.")]
    delaySeconds: Delay = Field(None, description="How long after this turn ends; unset: the default.")  # noqa: N815


class FileInput(_Input):
    name: Annotated[str, Field(min_length=1, max_length=255, description="A bare file name.")]
    content: str
    encoding: Literal["utf8", "base64"] = "utf8"
    mimeType: Annotated[str | None, Field(max_length=128)] = None  # noqa: N815


class MountInput(_Input):
    mountPath: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9._\-/:]+$")]  # noqa: N815


class DelegateInput(_Traced):
    """Send off a subagent whose result comes back to this session: `normal` tells you and lets your answer
    be seen, `silent` only adds to what you know, `silent-wake` also gives you a turn, `post-compaction` waits
    for the next compaction and returns as `silent-wake`: it hands forward what your successor needs."""

    task: Annotated[str, Field(min_length=1, max_length=MAX_TASK)]
    delaySeconds: Delay = Field(None, description="0 or unset: at once.")  # noqa: N815
    mode: Mode = "normal"
    targetSessionKey: Key | None = Field(None, description="Another session that gets the result.")  # noqa: N815
    targetSessionKeys: Annotated[list[Key], Field(min_length=1, max_length=MAX_TARGETS)] | None = None  # noqa: N815
    fanoutMode: Literal["tree", "all"] | None = Field(  # noqa: N815
        None, description="`tree`: your ancestors too; `all`: every session."
    )
    model: Annotated[str | None, Field(max_length=200)] = None
    attachments: Annotated[list[FileInput], Field(min_length=1, max_length=MOST_FILES)] | None = None
    attachAs: MountInput | None = None  # noqa: N815
    returnOptions: ReturnOptions | None = None  # noqa: N815
    recipientContext: Annotated[  # noqa: N815
        str | None, Field(max_length=MAX_TASK, description="What whoever gets the result is told with it.")
    ] = None

    @model_validator(mode="after")
    def _one_way_of_naming(self) -> Self:
        named = self.targetSessionKey is not None or self.targetSessionKeys is not None
        if self.fanoutMode is not None and named:
            raise ValueError("fanoutMode cannot be used together with targets")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        one = [] if self.targetSessionKey is None else [self.targetSessionKey]
        return tuple(dict.fromkeys([*one, *(self.targetSessionKeys or ())]))


class CompactionInput(_Traced):
    """Ask that this session's history is compacted after this turn, at a seam of your choosing. Hand forward
    first what your successor needs."""

    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


class ContinuationTools:
    def __init__(self, deps: Dependencies) -> None:
        self._deps = deps

    def tools(self) -> tuple[Tool[Any], ...]:
        """All may be called again after a crash: an election is known by its turn and call."""
        return (
            Tool(
                name="continue_work",
                input=WorkInput,
                run=self.work,
                effect=Effect.OWN,
                repeatable=True,
                for_others=always,
                offered=self._enabled,
            ),
            Tool(
                name="continue_delegate",
                input=DelegateInput,
                run=self.delegate,
                offered=self._may_send,
                effect=Effect.OWN,
                repeatable=True,
                for_others=always,
            ),
            Tool(
                name="request_compaction",
                input=CompactionInput,
                run=self.compact,
                offered=self._enabled,
                effect=Effect.OWN,
                repeatable=True,
                for_others=always,
            ),
        )

    async def work(self, caller: Caller, given: WorkInput, call: str) -> ToolOutput:
        asked = _ms(given.delaySeconds)
        wish = Wish(text=given.reason, call=call, delay_ms=asked, traceparent=given.traceparent or here())
        done = await self._elect(caller, wish)
        if done.record is None:
            return _refused(done)
        told: dict[str, Any] = {"status": "scheduled", "delaySeconds": seconds(done.record.election.delay_ms)}
        return _answer(told | _clamped(asked, done.record.election.delay_ms))

    async def delegate(self, caller: Caller, given: DelegateInput, call: str) -> ToolOutput:
        if not self._may_send(caller):
            raise Forbidden("a subagent at this depth may not send off delegates", code="spawn_depth")
        for key in given.targets:
            parse_key(key)
        asked = _ms(given.delaySeconds)
        staged = given.mode == "post-compaction"
        files = tuple(Attachment(f.name, f.content, f.encoding, f.mimeType) for f in given.attachments or ())
        wish = Wish(
            text=given.task,
            call=call,
            kind=Kind.POST_COMPACTION if staged else Kind.DELEGATE,
            delay_ms=asked,
            mode=given.mode,
            targets=given.targets,
            fanout=given.fanoutMode,
            model=given.model,
            mount_path=checked_mount(None if given.attachAs is None else given.attachAs.mountPath),
            attachments=files,
            options=delegates.kept_options(given.returnOptions, given.recipientContext),
            traceparent=given.traceparent or here(),
        )
        done = await self._elect(caller, wish)
        if done.record is None:
            return _refused(done)
        if staged:
            return _answer({"status": "queued-for-compaction"})
        delay = done.record.election.delay_ms
        return _answer({"status": "scheduled", "delaySeconds": seconds(delay), **_clamped(asked, delay)})

    async def compact(self, caller: Caller, given: CompactionInput, _: str) -> ToolOutput:
        self._require(caller)

        def write(tx: Tx) -> Mapping[str, Any]:
            session = sessions.get(tx, caller.session.id)
            if agenda.is_live(tx, compaction.key_of(session)):
                return {"status": "already_pending"}
            state = records.load_session_state(tx, session)
            settings = self._deps.settings(caller.agent_id)
            full = state.pressure(self._deps.compaction(caller.agent_id))
            no = compaction.guard(full, state, int(tx.now), settings)
            usage = None if full is None else round(full.share * 100)
            if no is not None or full is None:
                told = {"status": "rejected", "guard": no and no.guard, "reason": no and no.reason}
                return {**told, "contextUsage": usage, "threshold": round(settings.compaction_floor * 100)}
            turn = turns.get(tx, caller.turn_id)
            item = compaction.request(tx, session, turn, full, given.reason)
            return {"status": "compaction_requested", "compactionRequestId": item.id, "contextUsage": usage}

        return _answer(await self._deps.threads(self._deps.store.run, SYSTEM, write))

    async def _elect(self, caller: Caller, wish: Wish) -> Elected:
        self._require(caller)

        def write() -> Elected:
            if wish.attachments:
                self._deps.payloads.write(wish.id, wish.attachments)
            return self._deps.store.run(SYSTEM, lambda tx: self._elected(tx, caller, wish))

        done = await self._deps.threads(write)
        if wish.attachments and (done.record is None or done.record.id != wish.id):
            self._deps.payloads.scrub([wish.id])
        return done

    def _elected(self, tx: Tx, caller: Caller, wish: Wish) -> Elected:
        turn = turns.get(tx, caller.turn_id)
        session = sessions.get(tx, caller.session.id)
        return elections.elect(tx, self._deps, session, turn, caller.agent_id, wish)

    def _enabled(self, caller: Caller) -> bool:
        return not caller.one_off and self._deps.settings(caller.agent_id).enabled

    def _may_send(self, caller: Caller) -> bool:
        """Leaf subagents are offered no delegates; the token is left to them."""
        return self._enabled(caller) and caller.depth < caller.settings.subagents.max_spawn_depth

    def _require(self, caller: Caller) -> None:
        if not self._enabled(caller):
            raise Forbidden(
                "continuation is switched off for this agent",
                code="continuation_disabled",
                hint="The operator can set agents.defaults.continuation.enabled.",
            )


def _ms(seconds_: float | None) -> int | None:
    """In milliseconds; the smallest wait that is one stays one."""
    return None if seconds_ is None else math.ceil(seconds_ * 1000)


def _clamped(asked: int | None, given: int) -> dict[str, Any]:
    """Said only where it is not what was asked for."""
    return {} if asked is None or asked == given else {"requestedDelaySeconds": seconds(asked)}


def _refused(done: Elected) -> ToolOutput:
    """Told as a result like any other: nothing failed, and what is in the way is said once, as data."""
    why = done.refused
    if isinstance(why, Capped):
        return _answer({"status": "rejected", "cap": why.cap, "reason": why.text})
    return _answer({"status": "rejected", "cap": "cross_session", "reason": why})


def _answer(told: Mapping[str, Any]) -> ToolOutput:
    return ToolOutput(text=json.dumps(dict(told), ensure_ascii=False), details=dict(told))
