"""The tools that are there, which of them a caller may use, and running what a model asked for."""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.agents.approvals import audit
from holdfast.agents.plugin_hooks import NO_HOOKS, AfterToolCall, BeforeToolCall, HookBus
from holdfast.agents.policy import Policy, Situation, allowed, decide, policy_of
from holdfast.agents.tools import catalogue, checks
from holdfast.agents.tools.catalogue import Listed, Loaded
from holdfast.agents.tools.checks import checked
from holdfast.agents.tools.outputs import Outputs
from holdfast.agents.tools.settings import Cut, cap_of, shortened, situation_of, tools_of
from holdfast.agents.tools.types import (
    SHOWN,
    AskedApproval,
    Caller,
    OnEvent,
    Teller,
    Tool,
    ToolOutput,
    always,
    call_text,
    masked_text,
    nobody_listens,
)
from holdfast.context import Budgets, ToolCall, ToolResult, ToolSpec, Trust, neutralise
from holdfast.effects import Effect
from holdfast.errors import Conflict, Forbidden, HoldfastError, InvalidInput, NotFound
from holdfast.log import SYSTEM, Store, Threads, Tx, agenda, sessions
from holdfast.logs import Redact, redactor
from holdfast.text import clean_text, clip

logger = logging.getLogger(__name__)

MOST_AT_ONCE: Final = 8
MOST_TURNS: Final = 1_000
SLOW_SECONDS: Final = 2.0
MOST_SITUATIONS: Final = 1_000


class Toolbox:
    """Holds tools and runs their calls. A call never raises: whatever goes wrong is a result that says so."""

    def __init__(
        self, threads: Threads, store: Store, outputs: Outputs, *, redact: Redact | None = None
    ) -> None:
        self._threads = threads
        self._store = store
        self._outputs = outputs
        self._redact = redact or redactor()
        self.plugin_hooks: HookBus = NO_HOOKS
        self._tools: dict[str, Tool[Any]] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._weighed: dict[Situation, _Allowed] = {}
        self._histories: OrderedDict[str, checks.CallHistory] = OrderedDict()
        self._loads: OrderedDict[str, tuple[Loaded, ...]] = OrderedDict()
        self.register(
            Tool(
                name=catalogue.SEARCH,
                input=catalogue.SearchInput,
                run=self._search,
                effect=Effect.NONE,
                repeatable=True,
                offered=lambda caller: self.listed(caller).partial,
                for_others=always,
            )
        )

    def register(self, tool: Tool[Any]) -> None:
        """Add a tool; one whose name is taken or that does not say what it does is refused."""
        _require_declared(tool)
        if tool.name in self._tools:
            raise Conflict(f"there is a tool {tool.name} already", code="tool_taken")
        self._specs[tool.name] = tool.spec
        self._tools[tool.name] = tool

    def register_all(self, tools: Iterable[Tool[Any]]) -> None:
        for tool in tools:
            self.register(tool)

    def replace_all(self, prefix: str, tools: Iterable[Tool[Any]]) -> None:
        """Have exactly these of all tools whose names begin so: what a server of others offers now."""
        for name in [name for name in self._tools if name.startswith(prefix)]:
            del self._tools[name], self._specs[name]
        self._weighed.clear()
        self.register_all(tools)

    def get(self, name: str) -> Tool[Any]:
        """`NotFound` for a name that no tool has."""
        if name not in self._tools:
            raise NotFound(f"no tool {name[:80]!r}", code="unknown_tool")
        return self._tools[name]

    def __contains__(self, name: str) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tools))

    def offered(self, caller: Caller, policy: Policy | None = None) -> tuple[ToolSpec, ...]:
        """What the model is told of: what policy allows and what makes sense now, by name."""
        return tuple(self._specs[name] for name in self._offered_names(caller, policy))

    def listed(self, caller: Caller, policy: Policy | None = None) -> Listed:
        """What the model is told of here: all that is offered, or a core and what the session loaded."""
        budgets = Budgets.for_window(caller.window, caller.settings.compaction)
        return catalogue.listed(
            self._findable(caller, policy),
            self._specs[catalogue.SEARCH] if self._may_search(caller, policy) else None,
            mode=tools_of(caller).catalogue,
            budgets=budgets,
            loaded=self._loaded(caller),
        )

    async def run_all(
        self, caller: Caller, calls: Sequence[ToolCall], on_event: OnEvent = nobody_listens
    ) -> list[ToolResult]:
        """Run the calls of one reply; a result for each, in their order.

        Side by side if none of them changes anything, else one after another. Once the turn is cancelled or
        a tool asked for its end, the rest is not run, and says so.
        """
        if all(self._effect(call) is Effect.NONE for call in calls):
            gate = asyncio.Semaphore(MOST_AT_ONCE)
            runs = [self._gated(gate, caller, call, on_event) for call in calls]
            return [run.result for run in await asyncio.gather(*runs)]
        results: list[ToolResult] = []
        ended = ""
        for call in calls:
            run = _not_run(call, ended) if ended else await self._one(caller, call, on_event)
            ended = f"{call.name} ended the turn" if run.ends_turn else ended
            results.append(run.result)
        return results

    def compacted(self, turn_id: str) -> None:
        """The turn's earlier calls are no longer seen by the model: going round in them is stopped sooner."""
        self._history(turn_id).compact()

    def forget(self, turn_id: str) -> None:
        """The turn is over."""
        self._histories.pop(turn_id, None)
        self._loads.pop(turn_id, None)

    async def _search(self, caller: Caller, given: catalogue.SearchInput, _: str) -> ToolOutput:
        """Names what policy allows and nothing else; the best of it is loaded."""
        specs = self._findable(caller, None)
        found = catalogue.search(specs, given.query)
        await self._load(caller, catalogue.to_load(specs, given.query, found))
        lines = [catalogue.line(specs[name]) for name in found]
        return ToolOutput(text="\n".join(lines) or "No tool for that. An empty query lists all.")

    async def _load(self, caller: Caller, names: Sequence[str]) -> None:
        """The model is told of these from the next call on; kept with the session, so that restarts agree."""
        listed = self.listed(caller)
        wanted = [name for name in names if name not in {spec.name for spec in listed.tools}]
        if not wanted:
            return
        budgets = Budgets.for_window(caller.window, caller.settings.compaction)
        room = budgets.tools - sum(map(catalogue.cost, listed.tools))
        before = self._loaded(caller)
        after = catalogue.load(
            before,
            wanted,
            turn=caller.session.turn_count,
            cost_of=lambda name: catalogue.cost(self._specs[name]) if name in self._specs else 0,
            room=room,
        )
        if after == before:
            return
        self._loads[caller.turn_id] = after
        while len(self._loads) > MOST_TURNS:
            self._loads.popitem(last=False)

        def keep(tx: Tx) -> None:  # of calls side by side the last to write has what all of them loaded
            _keep_loads(tx, caller.session.id, self._loads.get(caller.turn_id, after))

        with suppress(Conflict):  # the session was changed meanwhile: this turn knows, and the next may ask
            await self._threads(self._store.run, SYSTEM, keep)

    def _loaded(self, caller: Caller) -> tuple[Loaded, ...]:
        known = self._loads.get(caller.turn_id)
        return catalogue.read_loaded(caller.session.meta) if known is None else known

    def _findable(self, caller: Caller, policy: Policy | None) -> dict[str, ToolSpec]:
        names = self._permitted_names(caller, policy)
        return {name: self._specs[name] for name in names if name != catalogue.SEARCH}

    def _may_search(self, caller: Caller, policy: Policy | None) -> bool:
        policy = policy or policy_of(caller.config, caller.agent_id)
        return catalogue.SEARCH in self._allowed(policy, situation_of(caller))

    async def _gated(
        self, gate: asyncio.Semaphore, caller: Caller, call: ToolCall, on_event: OnEvent
    ) -> _Run:
        async with gate:
            return await self._one(caller, call, on_event)

    async def _one(self, caller: Caller, call: ToolCall, on_event: OnEvent) -> _Run:
        if caller.cancelled():
            return _not_run(call, "the turn was cancelled")
        asked = await self._asked_plugins(caller, call)
        call = replace(call, arguments=asked.params) if asked.changed_by else call
        tell = Teller(call, on_event, self._redact)
        tell("start", call_text(call))

        def progress(text: str, approval: AskedApproval | None = None, /) -> None:
            if approval is None:
                caller.progress(text)
            else:
                caller.progress(text, approval)
            tell("progress", text, approval)

        if asked.blocked is not None:
            output = _failure(Forbidden(f"{call.name} was not run: {asked.blocked}", code="plugin_blocked"))
        else:
            output = _with_change(await self._watched(replace(caller, progress=progress), call), asked)
        text = await self._bounded(caller, call, output)
        trust = min(output.trust, Trust.TOOL)
        result = ToolResult(
            text=text,
            trust=trust,
            source=f"tool/{call.name}",
            call_id=call.id,
            name=call.name,
            is_error=output.is_error,
            images=output.images if caller.images else (),
        )
        tell.end(output, text)
        self._tell_plugins(asked, result)
        return _Run(result, output.ends_turn)

    async def _asked_plugins(self, caller: Caller, call: ToolCall) -> BeforeToolCall:
        """What plugins make of a call, before anything is decided on it."""
        event = BeforeToolCall(
            audience=caller.session.audience,
            session_key=caller.session.key,
            session_id=caller.session.id,
            agent_id=caller.agent_id,
            turn_id=caller.turn_id,
            tool=call.name,
            call_id=call.id,
            params=call.arguments,
        )
        return await self.plugin_hooks.ask(event) if self.plugin_hooks.wants(BeforeToolCall) else event

    def _tell_plugins(self, asked: BeforeToolCall, result: ToolResult) -> None:
        if self.plugin_hooks.wants(AfterToolCall):
            self.plugin_hooks.tell(
                AfterToolCall(
                    audience=asked.audience,
                    session_key=asked.session_key,
                    session_id=asked.session_id,
                    agent_id=asked.agent_id,
                    turn_id=asked.turn_id,
                    tool=asked.tool,
                    call_id=asked.call_id,
                    params=asked.params,
                    result=result.text,
                    is_error=result.is_error,
                )
            )

    async def _watched(self, caller: Caller, call: ToolCall) -> ToolOutput:
        """The call, unless it goes round in circles; a repeat is noted in its result."""
        settings = tools_of(caller).loop_detection
        history = self._history(caller.turn_id)
        verdict = checks.judge_loop(history, call.name, call.arguments, settings)
        if verdict.kind == "stop":
            error = Forbidden(
                f"{call.name} was not run: {verdict.reason}",
                code="tool_loop",
                hint="Try another way, or say what stands in the way.",
            )
            return _failure(error)
        output = await self._outcome(caller, call)
        made = checks.MadeCall(call.name, checks.call_digest(call.arguments), checks.call_digest(output.text))
        history.add(made)
        count = checks.count_repeats(history.made, made.name, made.arguments)
        if settings.enabled and count >= settings.warn_after:
            return replace(output, text=f"{output.text}\n\n{checks.loop_warning(count, settings)}")
        return output

    async def _outcome(self, caller: Caller, call: ToolCall) -> ToolOutput:
        """What came of it. A turn that waits long for a tool lets another run in its place meanwhile."""
        try:
            tool = await self._permitted(caller, call)
            await self._load(caller, [call.name] if call.name != catalogue.SEARCH else [])
            async with agenda.waiting(after=SLOW_SECONDS):
                return await tool.run(caller, checked(tool, call.arguments), call.id)
        except HoldfastError as error:
            return _failure(error)
        except Exception:
            # A boundary: a fault in one tool is logged and told to the model, and never ends the turn.
            logger.exception("the tool %s failed", call.name, extra={"data": {"turnId": caller.turn_id}})
            return ToolOutput(text=f"{call.name} failed through a fault of its own (logged).", is_error=True)

    async def _permitted(self, caller: Caller, call: ToolCall) -> Tool[Any]:
        if call.name not in self._tools:
            raise self._unknown(caller, call.name)
        tool = self._tools[call.name]
        policy = policy_of(caller.config, caller.agent_id)
        decision = decide(call.name, policy, situation_of(caller), self._tools)
        if not decision.allowed:
            await self._threads(self._account, caller, call, decision.layer, decision.reason)
            raise Forbidden(
                f"{call.name} is not allowed here: {decision.reason}",
                code="tool_refused",
                hint="Do without it; only the operator can change this.",
            )
        if not tool.is_there(caller):
            raise Forbidden(f"{call.name} is not available in this session", code="tool_unavailable")
        return tool

    def _account(self, caller: Caller, call: ToolCall, layer: str, reason: str) -> None:
        text = masked_text(call_text(call), self._redact)
        what = audit.Call(agent_id=caller.agent_id, tool=call.name, text=text, session_key=caller.session.key)
        self._store.run(SYSTEM, lambda tx: audit.record(tx, "block", what, rule=layer, reason=reason))

    def _unknown(self, caller: Caller, name: str) -> NotFound:
        """Near matches among what the caller may use: what it may not is not told of."""
        known = self._offered_names(caller, None)
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."
        return NotFound(f"there is no tool {clip(name, 80)!r}", code="unknown_tool", hint=hint)

    def _offered_names(self, caller: Caller, policy: Policy | None) -> tuple[str, ...]:
        return tuple(
            name
            for name in self._permitted_names(caller, policy)
            if name != catalogue.SEARCH or self.listed(caller, policy).partial
        )

    def _permitted_names(self, caller: Caller, policy: Policy | None) -> tuple[str, ...]:
        policy = policy or policy_of(caller.config, caller.agent_id)
        may = self._allowed(policy, situation_of(caller))
        return tuple(name for name in may if name == catalogue.SEARCH or self._tools[name].is_there(caller))

    def _allowed(self, policy: Policy, situation: Situation) -> tuple[str, ...]:
        """What policy allows in a situation; weighed again only when the policy or the tools changed."""
        kept = self._weighed.get(situation)
        if kept is None or kept.policy != policy or kept.count != len(self._tools):
            if len(self._weighed) >= MOST_SITUATIONS:
                self._weighed.clear()
            may = allowed(policy, situation, self.names)
            kept = self._weighed[situation] = _Allowed(policy, len(self._tools), may)
        return kept.names

    async def _bounded(self, caller: Caller, call: ToolCall, output: ToolOutput) -> str:
        """The text as the model may have it: markers defused, of bounded length, the rest kept aside.

        Fencing by trust is left to the context room, which does it for every message it builds.
        """
        text = neutralise(clean_text(output.text))
        limit = cap_of(caller)
        if len(text) <= limit:
            return text
        paged = caller.stored and "file_read" in self._offered_names(caller, None)
        kept = await self._threads(self._keep, caller, text, output.trust) if paged else None

        def note(cut: Cut) -> str:
            if kept is None:
                return f"[… {cut.chars} characters were cut here; ask for less at a time …]"
            way = f'file_read {{"path": "{kept}", "from": {cut.line}}}'
            return f"[… {cut.chars} characters were cut here; the whole is kept, read on with {way} …]"

        return shortened(text, limit, note)

    def _keep(self, caller: Caller, text: str, trust: Trust) -> str | None:
        try:
            return self._outputs.keep(caller.agent_id, caller.session.id, text, min(trust, Trust.TOOL))
        except OSError as error:
            logger.warning("a long tool result could not be kept: %s", error)
            return None

    def _effect(self, call: ToolCall) -> Effect:
        """Of what is not known, the worst is assumed."""
        tool = self._tools.get(call.name)
        return Effect.WORLD if tool is None else tool.effect

    def _history(self, turn_id: str) -> checks.CallHistory:
        history = self._histories.setdefault(turn_id, checks.CallHistory())
        self._histories.move_to_end(turn_id)
        while len(self._histories) > MOST_TURNS:
            self._histories.popitem(last=False)
        return history


def _keep_loads(tx: Tx, session_id: str, loaded: Sequence[Loaded]) -> None:
    session = sessions.get(tx, session_id)
    sessions.update(tx, session, meta=catalogue.write_loaded(session.meta, loaded))


def _require_declared(tool: Tool[Any]) -> None:
    """A plugin may be untyped, so that what the types say is looked at once more."""
    effect, repeatable = getattr(tool, "effect", None), getattr(tool, "repeatable", None)
    if not isinstance(effect, Effect) or not isinstance(repeatable, bool):
        raise InvalidInput(
            f"the tool {getattr(tool, 'name', tool)!s:.80} does not say what it does",
            code="tool_undeclared",
            hint="Give effect=Effect.NONE, OWN or WORLD, and repeatable=True or False.",
        )


@dataclass(frozen=True, slots=True)
class _Allowed:
    """What a policy allowed in one situation, of so many tools."""

    policy: Policy
    count: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    result: ToolResult
    ends_turn: bool = False


def _with_change(output: ToolOutput, asked: BeforeToolCall) -> ToolOutput:
    """The model reads that it did not get what it asked for, and what was done instead."""
    if not asked.changed_by:
        return output
    given = clip(json.dumps(dict(asked.params), ensure_ascii=False, default=str), SHOWN)
    said = f"[Plugin {', '.join(asked.changed_by)} changed the arguments of this call to {given}]"
    return replace(output, text=f"{said}\n\n{output.text}")


def _failure(error: HoldfastError) -> ToolOutput:
    text = f"{error.message}\n{error.hint}" if error.hint else error.message
    return ToolOutput(text=text, is_error=True, details={"code": error.code})


def _not_run(call: ToolCall, why: str) -> _Run:
    text = f"This call was not run: {why}."
    return _Run(ToolResult(text=text, call_id=call.id, name=call.name, is_error=True, source="holdfast"))
