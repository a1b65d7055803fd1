"""One server of others: connected, listed, called; and what it says of its tools, bounded and fenced.

What a server says is claims: a person agrees to them once, and whatever differs later asks again. A
transport is opened and closed in the one task that looks after it; calls come from the tasks of turns.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast.config.tools import McpServer
from holdfast.context import Trust
from holdfast.context.fence import disarmed, fence, unfence
from holdfast.errors import HoldfastError, InvalidInput, Unavailable
from holdfast.text import clean_json, clean_text, clip, make_visible

if TYPE_CHECKING:
    from mcp import Client


MOST_TOOLS: Final = 200
DESCRIPTION: Final = 2_048
FIELD: Final = 400
SCHEMA: Final = 16_384
NAME: Final = 64
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DEPTH: Final = 12


@dataclass(frozen=True, slots=True)
class Definition:
    """One tool of a server. `digest` names what was said of it, to the byte, as it was said."""

    server: str
    tool: str
    description: str
    parameters: Mapping[str, Any] = field(hash=False)
    reads_only: bool
    digest: str

    @property
    def name(self) -> str:
        """As the model calls it."""
        return prefixed(self.server, self.tool)

    @property
    def shown(self) -> str:
        """All that a model is told of it, for the person who is to agree to that."""
        reads = " (says that it only reads)" if self.reads_only else ""
        takes = json.dumps(self.parameters, ensure_ascii=False)
        return f"{self.name}{reads}: {unfence(self.description)}\n  {takes}"


def prefixed(server: str, tool: str) -> str:
    """A name of at most 64 letters that no tool of ours and of no other server has."""
    made = f"mcp_{_NOT_IN_NAMES.sub('_', server)}_{_NOT_IN_NAMES.sub('_', tool)}"
    plain = f"mcp_{server}_{tool}"
    if made == plain and len(made) <= NAME:
        return made
    return f"{made[: NAME - 9]}_{hashlib.sha256(plain.encode('utf-8', 'replace')).hexdigest()[:8]}"


def defined(
    server: str, tool: str, description: str, schema: Mapping[str, Any], hints: Mapping[str, Any]
) -> Definition | None:
    """A tool as it may be offered; None for one whose description of its input is too large or no object."""
    said = json.dumps([tool, description, schema, hints], sort_keys=True, default=str)
    digest = hashlib.sha256(said.encode("utf-8", "replace")).hexdigest()
    parameters = _shown(clean_json(dict(schema)), 0)
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        return None
    if len(json.dumps(parameters)) > SCHEMA or not tool or len(tool) > 256:
        return None
    text = clip(_plain(clean_text(description)).strip() or prefixed(server, tool), DESCRIPTION)
    return Definition(
        server=server,
        tool=tool,
        description=fence(text, Trust.OUTSIDE, f"mcp/{server}"),
        parameters={"type": "object", "properties": {}, **parameters},
        reads_only=hints.get("readOnlyHint") is True,
        digest=digest,
    )


def _plain(text: str) -> str:
    """Nothing that cannot be seen, and nothing that a terminal would obey."""
    return "".join(ch if ch.isprintable() or ch in "\n\t" else "\ufffd" for ch in make_visible(text))


def _shown(schema: Any, depth: int) -> Any:
    """A schema without what leads elsewhere, and with all its words bounded and defused."""
    if depth > _DEPTH:
        return {}
    if isinstance(schema, list):
        return [_shown(one, depth + 1) for one in schema]
    if isinstance(schema, str):
        return clip(disarmed(_plain(schema)), FIELD)
    if not isinstance(schema, dict):
        return schema
    if not str(schema.get("$ref", "#")).startswith("#"):
        return {}
    return {
        clip(disarmed(_plain(str(name))), FIELD): _shown(value, depth + 1) for name, value in schema.items()
    }


@dataclass(frozen=True, slots=True)
class Sorted:
    """What of a server's tools may be used, and what waits for a person: what is new, and what is other."""

    agreed: tuple[Definition, ...] = ()
    new: tuple[Definition, ...] = ()
    changed: tuple[Definition, ...] = ()

    @property
    def held(self) -> tuple[Definition, ...]:
        return (*self.new, *self.changed)


def sorted_by_pins(found: tuple[Definition, ...], pins: Mapping[str, str]) -> Sorted:
    """Hold each tool against what a person agreed to."""
    agreed = tuple(one for one in found if pins.get(one.tool) == one.digest)
    new = tuple(one for one in found if one.tool not in pins)
    changed = tuple(one for one in found if one.tool in pins and pins[one.tool] != one.digest)
    return Sorted(agreed, new, changed)


log = logging.getLogger(__name__)

FIRST_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 300.0
STEADY_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 1.0
"""However often a server says that its tools changed, they are read no more often."""
_MISSING: Final = "pip install 'holdfast[mcp]', then start the gateway again."


@asynccontextmanager
async def connected(
    name: str, settings: McpServer, folder: Path, changed: Callable[[], None]
) -> AsyncIterator[Client]:
    """A client of the server. It is told of no roots, asks no model for the server, and answers no forms."""
    try:
        from mcp import Client
        from mcp_types import Implementation
    except ImportError as error:
        raise Unavailable("MCP is not installed here", code="mcp_missing", hint=_MISSING) from error

    async def heard(message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            changed()

    client = Client(
        _transport(name, settings, folder),
        message_handler=heard,
        client_info=Implementation(name="holdfast", version=version("holdfast")),
        read_timeout_seconds=settings.timeout_seconds,
    )
    async with client as open_:
        yield open_


def _transport(name: str, settings: McpServer, folder: Path) -> Any:
    from holdfast.agents.mcp import transports

    if settings.command is not None:
        env = {key: secret.reveal(os.environ) for key, secret in settings.env.items()}
        command = str(Path(settings.command).expanduser())
        return transports.program(command, settings.args, env, folder / f"{name}.stderr.log")
    headers = {key: secret.reveal(os.environ) for key, secret in settings.headers.items()}
    auth = None
    if settings.auth == "oauth":
        from holdfast.agents.mcp.transports import provider

        auth = provider(name, settings, folder.parent / "credentials")
    return transports.address(str(settings.url), headers, auth)


async def listed(client: Client, name: str) -> tuple[Definition, ...]:
    """All tools that the server offers, as they may be offered on; what cannot be is left out."""
    found: list[Definition] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            hints = {} if tool.annotations is None else tool.annotations.model_dump(by_alias=True)
            made = defined(name, tool.name, tool.description or "", tool.input_schema, hints)
            if made is not None and made.name not in {one.name for one in found}:
                found.append(made)
        cursor = page.next_cursor
        if cursor is None or len(found) >= MOST_TOOLS:
            return tuple(found[:MOST_TOOLS])


class Connection:
    """Looks after one server until it is cancelled; `found` is told whenever its tools are known anew."""

    def __init__(
        self,
        name: str,
        settings: McpServer,
        folder: Path,
        found: Callable[[tuple[Definition, ...]], None],
        pause: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        self.name = name
        self.settings = settings
        self._folder = folder
        self._found = found
        self._pause = pause
        self._client: Client | None = None
        self._again = asyncio.Event()
        self._broken = False
        self._ended = False
        self.error: str | None = None
        self.restarts = 0

    @property
    def ready(self) -> bool:
        return self._client is not None

    def end(self, task: asyncio.Task[None]) -> None:
        """Have the task that looks after it end. That it was cancelled it cannot tell by itself: groups and
        time limits within it cancel it too, and take that back."""
        self._ended = True
        task.cancel()

    async def run(self) -> None:
        """Connect, and again after each break: at once at first, then ever later while it does not hold."""
        wait = FIRST_SECONDS
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._once()
            except HoldfastError as error:
                self.error = error.message
            except (Exception, asyncio.CancelledError) as error:
                if self._ended or asyncio.current_task().cancelling():  # type: ignore[union-attr]
                    raise
                # A boundary: whatever a stranger's server does wrong is told, and it is tried again.
                self.error = told(error)
            finally:
                self._client = None
                self._found(())
            if self._ended:
                return
            log.warning("the MCP server %s is gone: %s", self.name, self.error)
            steady = asyncio.get_running_loop().time() - began > STEADY_SECONDS
            wait = FIRST_SECONDS if steady else wait
            await self._pause(wait)
            wait = min(wait * 2, LONGEST_SECONDS)
            self.restarts += 1

    async def _once(self) -> None:
        self._broken = False
        async with (
            asyncio.timeout(self.settings.connect_seconds) as limit,
            connected(self.name, self.settings, self._folder, self._changed) as client,
        ):
            self._found(await listed(client, self.name))
            limit.reschedule(None)
            self._client, self.error = client, None
            async with asyncio.TaskGroup() as group:
                listening = group.create_task(self._listen(client))
                await self._until_broken(client)
                listening.cancel()
        raise Unavailable(f"the MCP server {self.name} broke off", code="mcp_gone")

    async def _until_broken(self, client: Client) -> None:
        while True:
            await self._again.wait()
            self._again.clear()
            if self._broken:
                return
            async with asyncio.timeout(self.settings.connect_seconds):
                self._found(await listed(client, self.name))
            await asyncio.sleep(QUIET_SECONDS)

    async def _listen(self, client: Client) -> None:
        """Servers of the newer era tell of changes on a stream of its own, if they do at all."""
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
        from mcp.shared.exceptions import MCPError

        with suppress(ListenNotSupportedError, SubscriptionLost, MCPError, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed()

    def _changed(self) -> None:
        self._again.set()

    def give_up(self) -> None:
        """The connection does not answer any more: begin it anew."""
        self._broken = True
        self._again.set()

    async def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """What a tool answers; every way in which it does not is an error that a model can read."""
        from mcp.shared.exceptions import MCPError

        client = self._client
        if client is None:
            raise Unavailable(
                f"the MCP server {self.name} is not there: {self.error or 'it is being started'}",
                code="mcp_gone",
                hint="Do without it, or try once more in a while.",
            )
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                return await client.call_tool(tool, arguments)
        except TimeoutError as error:
            raise Unavailable(
                f"the MCP server {self.name} did not answer within {self.settings.timeout_seconds} seconds",
                code="mcp_timeout",
            ) from error
        except MCPError as error:
            if "closed" in str(error.error.message).lower():
                self.give_up()
            raise InvalidInput(f"{self.name}: {error.error.message[:500]}", code="mcp_error") from error
        except (OSError, RuntimeError, ValueError) as error:
            self.give_up()
            raise Unavailable(f"{self.name}: {told(error)}", code="mcp_gone") from error


def told(error: BaseException) -> str:
    """The first cause that says something, of however many at once."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"[:300]
