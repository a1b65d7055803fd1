"""What plugins registered, as the rooms hold it: the plugin's code behind a guard, its results checked."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from holdfast.agents.commands import Command, CommandContext, Reply
from holdfast.agents.tools.checks import checked
from holdfast.agents.tools.types import AskedApproval, Caller, Tool, ToolOutput
from holdfast.context import (
    AssembleResult,
    AssistantMessage,
    EngineContext,
    EngineFactory,
    Image,
    ToolSpec,
    Trust,
)
from holdfast.context.host import CALLS
from holdfast.context.messages import encode, text_digest
from holdfast.plugins.api import CommandCall, PluginRequest, PluginResponse, Route, SlashHandler
from holdfast.plugins.running import Part
from holdfast.text import clean_json, clean_text

MOST_OUTPUT: Final = 4_000_000
MOST_DETAILS: Final = 256 * 1024
MOST_ANSWER: Final = 16 * 1024 * 1024
MOST_REPLY: Final = 100_000


class _Arguments(BaseModel):
    """What a model sent, as it came: the plugin's own model reads it on the plugin's own threads."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedTool(Tool[Any]):
    """A plugin's tool. What the model is told of it was asked for once, when it was registered."""

    shown: ToolSpec = field(repr=False)

    @property
    def spec(self) -> ToolSpec:
        return self.shown


def guarded_tool(
    tool: Tool[Any], part: Part, usable: Callable[[], bool], seconds: Callable[[], float]
) -> GuardedTool:
    """The tool as the toolbox holds it; raises what is wrong with its schema."""
    shown = part.call_here(lambda: tool.spec, seconds=seconds(), check=_spec)

    async def run(caller: Caller, given: _Arguments, call_id: str) -> ToolOutput:
        theirs = replace(caller, progress=_from_their_thread(caller))
        arguments = given.model_extra or {}

        async def wait() -> Any:
            return await tool.run(theirs, checked(tool, arguments), call_id)

        def at_once() -> Any:
            return tool.run(theirs, checked(tool, arguments), call_id)

        work = wait if inspect.iscoroutinefunction(tool.run) else at_once
        return await part.call(work, seconds=seconds(), check=_output)

    return GuardedTool(
        name=tool.name,
        input=_Arguments,
        run=run,
        effect=tool.effect,
        repeatable=tool.repeatable,
        offered=lambda _: usable() and not part.is_out,
        for_others=tool.for_others,
        shown=shown,
    )


def guarded_command(
    command: SlashHandler, part: Part, usable: Callable[[], bool], seconds: Callable[[], float]
) -> Command:
    """A slash command; one of a plugin that is out says so."""

    async def handle(context: CommandContext, args: str) -> Reply:
        if not usable():
            return Reply(f"/{command.name} is switched off: plugin {part.plugin_id} is out.")
        call = CommandCall(
            args=args,
            session_key=context.session.key,
            agent_id=context.to.agent_id,
            owner=context.ask.owner,
        )
        return Reply(await part.call(command.handler, call, seconds=seconds(), check=_reply))

    return Command(
        name=command.name,
        help=command.help or f"By plugin {part.plugin_id}.",
        handler=handle,
        owner_only=command.owner_only,
    )


async def answer(route: Route, part: Part, request: PluginRequest, seconds: float) -> PluginResponse:
    """What a plugin's route says: JSON alone, of bounded size."""
    return await part.call(route.handler, request, seconds=seconds, check=_response)


class GuardedEngine:
    """A plugin's engine, each call of which runs on the plugin's own loop: one that blocks holds up nobody
    else. How long a call may take, and what it may give, is the context room's to say."""

    def __init__(
        self,
        factory: EngineFactory,
        part: Part,
        context: EngineContext,
        config: Mapping[str, Any],
        seconds: float,
    ) -> None:
        self._loop = part.loop
        self._ours = _OurLoop()
        summariser = context.summariser
        given = replace(
            context,
            config=config,
            runtime=self._ours.of(context.runtime),
            summariser=lambda: self._ours.of(summariser()),
        )
        self._theirs: Any = part.call_here(factory, given, seconds=seconds)
        self.info: Any = part.call_here(getattr, self._theirs, "info", None, seconds=seconds)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._theirs, name)
        return self._called_there(found) if name in CALLS and callable(found) else found

    def _called_there(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        async def call(*params: Any) -> Any:
            self._ours.loop = asyncio.get_running_loop()
            found = await asyncio.wrap_future(self._loop.begin(method, *params))
            if isinstance(found, AssembleResult):
                _require_untouched(found)
            return self._called_there(found) if callable(found) else found

        return call


def _require_untouched(result: AssembleResult) -> None:
    """Arguments of a call are the one part of a message that can be changed in place; what is sent would not
    be what the log has, and the account of the context would not know."""
    given: Any = result.messages
    for message in given if isinstance(given, Sequence) else ():
        called = isinstance(message, AssistantMessage) and message.calls and message.mark
        if called and text_digest(encode(message)) != called.digest:
            raise ValueError("it changed the arguments of a call in the history: make a message of your own")


class _OurLoop:
    """The gateway's loop, to which a plugin's engine comes back for what lives there: models, compaction."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None

    def of(self, part: Any) -> Any:
        """The same part, its coroutines run on our loop whichever loop waits for them."""
        return None if part is None else _Ours(part, self)


class _Ours:
    def __init__(self, part: Any, home: _OurLoop) -> None:
        self._part = part
        self._home = home

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._part, name)

        async def call(*params: Any, **named: Any) -> Any:
            loop = self._home.loop
            if loop is None or loop is asyncio.get_running_loop():
                return await method(*params, **named)
            running = asyncio.run_coroutine_threadsafe(method(*params, **named), loop)
            return await asyncio.wrap_future(running)

        return call if inspect.iscoroutinefunction(method) else method


def _from_their_thread(caller: Caller) -> Callable[..., None]:
    """Progress, told in our loop whichever thread tells of it; asking a person is for our own tools."""
    loop = asyncio.get_running_loop()

    def progress(text: str, approval: AskedApproval | None = None, /) -> None:
        if isinstance(text, str):
            loop.call_soon_threadsafe(caller.progress, text[:MOST_REPLY])

    return progress


def _spec(found: Any) -> ToolSpec:
    if not isinstance(found, ToolSpec) or not isinstance(found.description, str):
        raise TypeError("it has no schema")
    json.dumps(found.parameters)
    return found


def _output(found: Any) -> ToolOutput:
    made = ToolOutput(text=found) if isinstance(found, str) else found
    if not isinstance(made, ToolOutput) or not isinstance(made.text, str):
        raise TypeError(f"expected a ToolOutput or text, found {type(found).__name__}")
    if len(made.text) > MOST_OUTPUT:
        raise ValueError(f"{len(made.text)} characters are more than {MOST_OUTPUT}")
    if not isinstance(made.is_error, bool) or not isinstance(made.ends_turn, bool):
        raise TypeError("expected is_error and ends_turn to be bools")
    if not isinstance(made.trust, Trust) or not isinstance(made.details, Mapping):
        raise TypeError("expected trust to be a Trust and details an object")
    if not isinstance(made.images, tuple) or not all(isinstance(one, Image) for one in made.images):
        raise TypeError("expected images to be a tuple of Image")
    return replace(made, details=_plain(dict(made.details), MOST_DETAILS))


def _reply(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"expected text, found {type(found).__name__}")
    if len(found) > MOST_REPLY:
        raise ValueError(f"{len(found)} characters are more than {MOST_REPLY}")
    return clean_text(found)


def _response(found: Any) -> PluginResponse:
    made = found if isinstance(found, PluginResponse) else PluginResponse(body=found)
    if isinstance(made.status, bool) or not isinstance(made.status, int) or not 200 <= made.status <= 599:
        raise ValueError(f"no status of HTTP: {made.status!r:.20}")
    return replace(made, body=_plain(made.body, MOST_ANSWER))


def _plain(value: Any, most: int) -> Any:
    """A JSON value that nobody else holds a part of."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {error}"[:200]) from None
    if len(text) > most:
        raise ValueError(f"{len(text)} characters of JSON are more than {most}")
    return clean_json(json.loads(text))
