"""One call of a model: the context built for it, an answer from the first model that gives one, room made
where the window overflowed, and a look whether the answer has the form that was asked for.

Where the provider enforces the form this only looks on; where it does not, words and a look have to do.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace

from holdfast.agents.loop.asks import Form, Terms
from holdfast.agents.loop.events import Reporter
from holdfast.agents.loop.journal import Journal
from holdfast.agents.loop.parts import LoopParts
from holdfast.agents.loop.planning import Plan
from holdfast.agents.models.types import ANY_OBJECT, ModelAbout, ModelFailure, ModelReply, ModelRequest, Usage
from holdfast.agents.plugin_hooks import AfterModelCall, BeforeCompaction, BeforeModelCall
from holdfast.agents.tools.catalogue import Listed
from holdfast.agents.tools.types import Caller
from holdfast.context import (
    BuildRequest,
    Built,
    CarrierMessage,
    Message,
    Occasion,
    Pressure,
    SystemMessage,
    ToolResult,
    Trust,
    UserMessage,
    fence,
    how_to_shrink,
    manifest,
)
from holdfast.context.account import summary_account
from holdfast.context.blobs import Blobs
from holdfast.errors import Forbidden, HoldfastError, InvalidInput, NotFound, TooLarge, Unavailable
from holdfast.log import SYSTEM, Store, Threads, Tx, sessions, turns

if TYPE_CHECKING:
    from holdfast.agents.models.failures import Attempt

log = logging.getLogger(__name__)
tracer = trace.get_tracer("holdfast")
MOST_OVERFLOWS: Final = 3
KEPT_RESULTS: Final = 2
_OVERFLOW: Final = "context_overflow"
_FRAMED: Final = re.compile(r"\s*```[a-zA-Z0-9]*\n(.*)\n```\s*", re.DOTALL)
_MOST_FAULTS: Final = 5
_MOST_SHOWN: Final = 16_000
CLEARED: Final = "[Left out here to make room; call the tool again if it is needed.]"


class Calling:
    """The model calls of one attempt, and what they came to together."""

    def __init__(
        self,
        parts: LoopParts,
        plan: Plan,
        journal: Journal,
        reporter: Reporter,
        cancelled: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self.plan = plan
        self._journal = journal
        self._reporter = reporter
        self._cancelled = cancelled
        self._thinned = 0
        self._enforced = True
        self.number = 0
        self.attempts: list[Attempt] = []
        self.built: Built | None = None
        self.about: ModelAbout | None = None
        self.last: ModelReply | None = None

    @property
    def pressure(self) -> Pressure | None:
        """How full the window is after the last call, by the provider's count where it gave one."""
        if self.built is None:
            return None
        usage = None if self.last is None else self.last.usage
        counted = usage.input + usage.output if usage is not None and usage.input else 0
        return replace(self.built.pressure, used=counted or self.built.pressure.used)

    @property
    def prompt_tokens(self) -> int | None:
        """What the last prompt held, by the provider's count where it gave one."""
        reported = None if self.last is None else self.last.usage.input
        return reported or (None if self.built is None else self.built.manifest.used)

    async def ask(self, nudge: Message | None = None) -> ModelReply:
        """A whole answer to all that was said so far; an overflow makes room and asks again, a few times."""
        for overflows in range(MOST_OVERFLOWS):
            self._reporter.begin_answer()
            try:
                return await self._ask(nudge)
            except HoldfastError as error:
                if self._leaves_form(error):
                    continue
                if not _overflowed(error):
                    raise
                log.info("turn %s: %s", self.plan.turn.id, error.message)
                if overflows == MOST_OVERFLOWS - 1 or not await self._make_room():
                    raise self._explained(error) from error
        raise AssertionError("unreachable")

    def _explained(self, error: HoldfastError) -> HoldfastError:
        """A provider's refusal with what ours has: what takes most of the context, and what helps."""
        if isinstance(error, ModelFailure) and self.built is not None:
            error.hint = how_to_shrink(self.built.manifest)
        return error

    def _leaves_form(self, error: HoldfastError) -> bool:
        """A provider that cannot enforce what is asked for is asked in words alone, once."""
        rejected = isinstance(error, ModelFailure) and error.reason == "bad_request"
        wanted = self.plan.terms.form is not None or bool(self.plan.terms.must_call)
        again, self._enforced = rejected and wanted and self._enforced, self._enforced and not rejected
        return again

    async def _ask(self, nudge: Message | None) -> ModelReply:
        pending = [*thinned(self._journal.messages, self._thinned), *([] if nudge is None else [nudge])]
        self._journal.asked()
        with tracer.start_as_current_span("holdfast.model_call") as span:
            span.set_attribute("holdfast.turn_id", self.plan.turn.id)
            span.set_attribute("holdfast.call", self.number)
            answered = await self._parts.models.answer(
                self.plan.refs,
                lambda about: self._build(about, pending),
                agent_id=self.plan.terms.agent_id,
                on_event=self._reporter.model,
                session_key=self.plan.session.key if self.plan.terms.limited_to is None else None,
            )
            reply = answered.reply
            span.set_attribute("gen_ai.response.model", str(reply.model))
            span.set_attribute("gen_ai.usage.input_tokens", reply.usage.input)
            span.set_attribute("gen_ai.usage.output_tokens", reply.usage.output)
        self._took(reply, answered.about, answered.attempts)
        return reply

    async def _build(self, about: ModelAbout, pending: list[Message]) -> ModelRequest:
        """The request for one of the models that may be asked; the last one built has answered."""
        self.about = about
        caller = self.plan.caller(about, self._cancelled)
        terms = self.plan.terms
        request = self.plan.request(about, self.number, self._tools(caller), pending)
        self.built = built = await self._parts.context().build(request)
        if self._parts.debug is not None and self._parts.debug.takes_requests:
            await self._parts.threads(self._parts.debug.request, built)
        await self._ask_plugins(about, built)
        form = terms.form if self._enforced else None
        return ModelRequest(
            messages=built.messages,
            tools=built.tools,
            stable=_stable(built, first=self.number == 0),
            thinking=self.plan.thinking,
            max_tokens=self._most_tokens(request, built, about),
            output_schema=None if form is None else (form.schema or ANY_OBJECT),
            output_name="answer" if form is None else form.name,
            output_strict=None if form is None else form.strict,
            must_call=terms.must_call if self._enforced else (),
        )

    async def _ask_plugins(self, about: ModelAbout, built: Built) -> None:
        if not self._parts.plugin_hooks.wants(BeforeModelCall):
            return
        event = BeforeModelCall(
            **self._whose,
            turn_id=self.plan.turn.id,
            model=str(about.ref),
            call=self.number,
            prompt_tokens=built.manifest.used,
            tools=tuple(tool.name for tool in built.tools),
        )
        blocked = (await self._parts.plugin_hooks.ask(event)).blocked
        if blocked is not None:
            raise Forbidden(f"the model was not called: {blocked}", code="plugin_blocked")

    @property
    def _whose(self) -> dict[str, Any]:
        session = self.plan.session
        named = {"session_key": session.key, "session_id": session.id}
        return named | {"agent_id": self.plan.terms.agent_id, "audience": session.audience}

    def _tell_plugins(self, reply: ModelReply) -> None:
        if self._parts.plugin_hooks.wants(AfterModelCall):
            self._parts.plugin_hooks.tell(
                AfterModelCall(
                    **self._whose,
                    turn_id=self.plan.turn.id,
                    model=str(reply.model),
                    text=reply.text,
                    tools=tuple(call.name for call in reply.calls),
                    input_tokens=reply.usage.input,
                    output_tokens=reply.usage.output,
                )
            )

    def _most_tokens(self, request: BuildRequest, built: Built, about: ModelAbout) -> int:
        """How long the answer may be: what the window leaves; less for who asks for less, and for a flush."""
        terms = self.plan.terms
        limits = [answer_tokens(about, self.plan.window(about), built.manifest.used)]
        limits += [terms.max_tokens] if terms.max_tokens is not None else []
        limits += [request.budgets.flush_output] if terms.occasion is Occasion.FLUSH else []
        return min(limits)

    def _tools(self, caller: Caller) -> Listed:
        """What the model is told of: a client's tools stand before ours of the same name."""
        own, terms = self._parts.tools.listed(caller, self.plan.policy), self.plan.terms
        names = terms.client_tools
        tools = (*(tool for tool in own.tools if tool.name not in names), *terms.tools)
        return replace(own, tools=tools, loaded=tuple(t for t in own.loaded if t.name not in names))

    def _took(self, reply: ModelReply, about: ModelAbout, attempts: Sequence[Attempt]) -> None:
        self.number += 1
        self._journal.spent += reply.usage
        self.attempts += attempts if len(attempts) > 1 else ()
        self.about, self.last = about, reply
        self._reporter.answered(reply)
        self._tell_plugins(reply)
        if self._parts.debug is not None and self.built is not None:
            body = {"model": str(reply.model), "text": reply.text, "usage": reply.usage.json()}
            calls = [{"id": c.id, "name": c.name, "arguments": dict(c.arguments)} for c in reply.calls]
            self._parts.debug.response(self.built, body | {"calls": calls, "finish": reply.finish})

    async def _make_room(self) -> bool:
        """Leave out this turn's own older results where they weigh more than history; else summarise that, or
        leave them out where it brings nothing."""
        if self.about is None:
            return False
        if self._own_weigh_most() and self._thin():
            return True
        room = self._parts.context()
        window = self.plan.window(self.about)
        used = None if self.built is None else self.built.manifest.used
        self._parts.plugin_hooks.tell(BeforeCompaction(**self._whose, reason="overflow"))
        result = await room.compact(self.plan.session, window=window, reason="overflow", current_tokens=used)
        self._reporter.lifecycle(
            "compaction",
            outcome=str(result.outcome),
            tokensBefore=result.tokens_before,
            tokensAfter=result.tokens_after,
        )
        self._parts.tools.compacted(self.plan.turn.id)
        if result.successor_session_id is not None:
            await self._parts.threads(self._follow, result.successor_session_id)
        return result.compacted or self._thin()

    def _follow(self, session_id: str) -> None:
        """Go on in the session that took the place of this turn's own."""
        with self._parts.store.read(SYSTEM) as tx:
            session, turn = sessions.get(tx, session_id), turns.get(tx, self.plan.turn.id)
        self.plan = replace(self.plan, session=session, turn=turn)
        self._journal.session, self._journal.turn = session, turn

    def _own_weigh_most(self) -> bool:
        """A summary takes nothing away from what this turn has just read."""
        if self.built is None:
            return False
        own = [m for m in self._journal.messages if isinstance(m, ToolResult)][self._thinned : -KEPT_RESULTS]
        past = sum(s.tokens for s in self.built.manifest.sections if s.place in ("summary", "history"))
        return sum(m.mark.tokens for m in own if m.mark is not None) > past

    def _thin(self) -> bool:
        results = sum(isinstance(m, ToolResult) for m in self._journal.messages)
        before, self._thinned = self._thinned, max(0, results - KEPT_RESULTS)
        if self._thinned > before:
            self._parts.tools.compacted(self.plan.turn.id)
        return self._thinned > before


def thinned(messages: Sequence[Message], count: int) -> list[Message]:
    """The messages with the oldest `count` results as placeholders; the log has them as they were."""
    left = count
    shown: list[Message] = []
    for message in messages:
        if isinstance(message, ToolResult) and left > 0:
            left -= 1
            message = replace(message, text=CLEARED, images=())
        shown.append(message)
    return shown


def answer_tokens(about: ModelAbout, window: int, used: int) -> int:
    """How long an answer may be: what the model can, and what a prompt of that size leaves of the window.

    The size is an estimate, so a sixteenth of it is spared; a sixteenth of the window is always asked for.
    """
    left = max(window - used - used // 16, window // 16, 1)
    return min(about.max_tokens, left)


def _stable(built: Built, *, first: bool) -> int:
    """What comes again: up to the carrier in the next turn, and all of it in the next call of this one."""
    if not first:
        return len(built.messages)
    return next((i for i, m in enumerate(built.messages) if isinstance(m, CarrierMessage)), 0)


def _overflowed(error: HoldfastError) -> bool:
    if isinstance(error, ModelFailure):
        return error.reason == _OVERFLOW
    return isinstance(error, TooLarge) and error.code == _OVERFLOW


@dataclass(frozen=True, slots=True)
class Fit:
    """An answer held against its form: the JSON text alone, or why it is none."""

    text: str = ""
    faults: tuple[str, ...] = ()


def require_schema(form: Form) -> None:
    """`InvalidInput` for what is no JSON Schema, or looks for parts of it elsewhere."""
    try:
        _validator(form)
    except ValueError as error:
        raise InvalidInput(
            f"response_format: not a JSON Schema that can be used: {str(error).splitlines()[0][:300]}",
            hint="Send a whole JSON Schema; references to other places are not followed.",
        ) from error


def fit(text: str, form: Form) -> Fit:
    """Pure. A frame of code around the JSON, or words before and after an object, are taken off."""
    found: Any = None
    said = ""
    for said in _candidates(text):
        try:
            found = json.loads(said, parse_constant=_no_number)
            break
        except (ValueError, RecursionError):
            continue
    else:
        return Fit(faults=("it is not JSON",))
    if form.schema is None:
        return Fit(said) if isinstance(found, dict) else Fit(faults=("it is not a JSON object",))
    faults = []
    for fault in _validator(form).iter_errors(found):
        faults.append(f"{'/'.join(map(str, fault.instance_path)) or 'the whole'}: {fault.message[:300]}")
        if len(faults) == _MOST_FAULTS:
            break
    return Fit(faults=tuple(faults)) if faults else Fit(said)


@dataclass(slots=True)
class Shape:
    """What one attempt's answer must be; a second answer that is not fails the turn."""

    terms: Terms
    _mended: bool = field(default=False)

    def mend(self, reply: ModelReply) -> Message | None:
        """What to tell the model when its last words are not what was asked for; None if they are."""
        why = self._unmet(reply)
        if why is None:
            return None
        if self._mended:
            raise Unavailable(
                f"the model did not answer in the form that was asked for: {why}",
                code="form_unmet",
                hint="Ask again, ask for less, or use a model whose provider enforces it.",
            )
        self._mended = True
        shown = fence(reply.text[:_MOST_SHOWN], Trust.MODEL, "answer")
        return UserMessage(text=f"{shown}\n\n[{why} Answer again.]", trust=Trust.OPERATOR, source="holdfast")

    def kept(self, reply: ModelReply) -> ModelReply:
        """The reply as it is given to who asked: the JSON alone."""
        if self.terms.form is None or reply.calls:
            return reply
        found = fit(reply.text, self.terms.form)
        return replace(reply, text=found.text) if found.text else reply

    def _unmet(self, reply: ModelReply) -> str | None:
        if self.terms.must_call:
            return f"You must call {' or '.join(self.terms.must_call)} now, and write nothing else."
        if self.terms.form is None:
            return None
        faults = fit(reply.text, self.terms.form).faults
        return f"That does not have the form that was asked for: {'; '.join(faults)}." if faults else None


def _candidates(text: str) -> list[str]:
    framed = _FRAMED.fullmatch(text)
    start, end = text.find("{"), text.rfind("}")
    inner = [text[start : end + 1]] if 0 <= start < end else []
    return [text.strip(), *([framed[1].strip()] if framed else []), *inner]


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _validator(form: Form) -> Any:
    """References are not followed: a schema is a stranger's, and must not make us call anywhere."""
    import jsonschema_rs

    return jsonschema_rs.validator_for(dict(form.schema or {}), retriever=_nowhere)


def _nowhere(uri: str) -> Any:
    raise ValueError(f"{uri[:200]} is not followed")


class SummaryCosts:
    """The `Ledger` of the model that summarises, over the log."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store = store
        self._threads = threads
        self._blobs = Blobs()

    async def agent_of(self, session_id: str) -> str | None:
        return await self._threads(self._agent_of, session_id)

    async def spent(self, session_id: str, usage: Usage) -> None:
        await self._threads(self._store.run, SYSTEM, lambda tx: turns.charge(tx, session_id, usage.json()))

    async def asked(self, session_id: str, about: ModelAbout, messages: Sequence[Message]) -> None:
        await self._threads(
            self._store.run, SYSTEM, lambda tx: self._account(tx, session_id, about, messages)
        )

    def _account(self, tx: Tx, session_id: str, about: ModelAbout, messages: Sequence[Message]) -> None:
        """What the model was shown stands among the accounts of its session, as any other call's does."""
        session = sessions.get(tx, session_id)
        account = summary_account(session, str(about.ref), about.window, messages, tx.now)
        system = [m.text for m in messages if isinstance(m, SystemMessage)]
        manifest.save(tx, self._blobs, account, messages, tools=None, system=system)

    def _agent_of(self, session_id: str) -> str | None:
        with self._store.read(SYSTEM) as tx:
            try:
                return sessions.get(tx, session_id).agent_id
            except NotFound:
                return None
