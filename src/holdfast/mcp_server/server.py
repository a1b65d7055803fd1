"""The MCP server itself, on the official SDK: tools, resources, prompts, and word of what changed.

One server serves both eras of the protocol: with `initialize` (2025-06-18, 2025-11-25) and without
(2026-07-28). It keeps nothing of a client between two requests but what changed for whom is listening.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import quote, unquote

import anyio
import mcp_types as types
from anyio.abc import TaskStatus
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourcesListChanged
from mcp.shared.exceptions import MCPError

from holdfast import __version__
from holdfast.errors import HoldfastError, Unauthorized, Unavailable
from holdfast.mcp_server import tools
from holdfast.mcp_server.api import Api, open_ids

log = logging.getLogger(__name__)

Context = ServerRequestContext[Any, Any]
Apis = Callable[[Context], Api]
"""Whose interface a request is answered over."""

SCHEME: Final = "holdfast://"
RESOURCE_BYTES: Final = 16_000
_LISTED: Final = {"topic": 100, "memory": 200, "session": 50}
_TTL_MS: Final = 60_000
_QUIET_SECONDS: Final = 1.0
_KINDS: Final = {"topic": "What was logged under a topic", "session": "What was said in a session"}
_KINDS_MORE: Final = {"memory": "A memory file", "entry": "One log entry"}
_PROMPTS: Final = {
    "continue": ("Pick up where we left off.", "about", "What the session is about."),
    "recap": ("What is known about something, with its sources.", "topic", "A topic or a question."),
}


class HoldfastServer(Server[Any]):
    """Says of itself that its list of resources changes: in either era there is a way to be told."""

    def get_capabilities(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> types.ServerCapabilities:
        return super().get_capabilities(NotificationOptions(resources_changed=True), *args, **more)


class Handlers:
    """What is answered to each request; `api` says for whom."""

    def __init__(self, api: Apis) -> None:
        self._api = api
        self._listening: set[ListenHandler] = set()

    def server(self) -> HoldfastServer:
        return HoldfastServer(
            "holdfast",
            version=__version__,
            title="Holdfast",
            instructions=tools.INSTRUCTIONS,
            cache_hints={
                "tools/list": CacheHint(_TTL_MS, "public"),
                "prompts/list": CacheHint(_TTL_MS, "public"),
                "resources/templates/list": CacheHint(_TTL_MS, "public"),
            },
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_list_resources=self.list_resources,
            on_list_resource_templates=self.list_templates,
            on_read_resource=self.read_resource,
            on_list_prompts=self.list_prompts,
            on_get_prompt=self.get_prompt,
            on_subscriptions_listen=self.listen,
        )

    async def list_tools(self, ctx: Context, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(name, tool) for name, tool in tools.TOOLS.items()])

    async def call_tool(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            answer = await tools.call(self._api(ctx), params.name, params.arguments or {}, _host(ctx))
        except HoldfastError as error:
            text = types.TextContent(text=tools.words_of(error))
            return types.CallToolResult(content=[text], is_error=True)
        text = types.TextContent(text=tools.as_text(answer))
        return types.CallToolResult(content=[text], structured_content=answer)

    async def list_resources(self, ctx: Context, params: Any) -> types.ListResourcesResult:
        api = self._api(ctx)
        topics = (await api.call("GET", "/api/topics", {"limit": _LISTED["topic"]})).body
        sessions = (await api.call("GET", "/api/sessions", {"limit": _LISTED["session"]})).body
        found = [_resource("topic", one["id"], one["name"]) for one in topics]
        found += [_resource("memory", path, path) for path in await _memory_files(api)]
        found += [_resource("session", one["sessionKey"], one["sessionKey"]) for one in sessions]
        return types.ListResourcesResult(resources=found)

    async def list_templates(self, ctx: Context, params: Any) -> types.ListResourceTemplatesResult:
        made = [
            types.ResourceTemplate(
                name=kind,
                uri_template=f"{SCHEME}{kind}/{{id}}",
                description=told,
                mime_type="text/markdown",
            )
            for kind, told in (_KINDS | _KINDS_MORE).items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=made)

    async def read_resource(
        self, ctx: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        kind, _, name = str(params.uri).removeprefix(SCHEME).partition("/")
        if kind not in _KINDS | _KINDS_MORE or not name:
            raise MCPError(types.INVALID_PARAMS, f"no such resource: {str(params.uri)[:200]}")
        id_ = f"session:{unquote(name)}" if kind == "session" else unquote(name)
        try:
            text, after = await open_ids(self._api(ctx), [id_], "", RESOURCE_BYTES)
        except HoldfastError as error:
            raise _as_protocol(error) from error
        more = "" if after is None else f"\n\nThere is more: the tool `open` reads {id_} in pages."
        body = types.TextResourceContents(
            uri=str(params.uri), mime_type="text/markdown", text=tools.fenced(text) + more
        )
        return types.ReadResourceResult(contents=[body])

    async def list_prompts(self, ctx: Context, params: Any) -> types.ListPromptsResult:
        made = [
            types.Prompt(
                name=name,
                description=told,
                arguments=[types.PromptArgument(name=argument, description=meaning, required=False)],
            )
            for name, (told, argument, meaning) in _PROMPTS.items()
        ]
        return types.ListPromptsResult(prompts=made)

    async def get_prompt(self, ctx: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        if params.name not in _PROMPTS:
            raise MCPError(types.INVALID_PARAMS, f"no such prompt: {params.name[:80]}")
        about = (params.arguments or {}).get(_PROMPTS[params.name][1], "")[:2000]
        try:
            text = await _prompt(self._api(ctx), params.name, about, _host(ctx))
        except HoldfastError as error:
            raise _as_protocol(error) from error
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=_PROMPTS[params.name][0], messages=[message])

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """A stream of what changed, of what the caller may read; each has one of their own."""
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus, max_subscriptions=1)
        self._listening.add(handler)
        try:
            async with anyio.create_task_group() as group:
                await group.start(
                    told_of_changes, self._api(ctx), lambda: bus.publish(ResourcesListChanged())
                )
                result = await handler(ctx, params)
                group.cancel_scope.cancel()
            return result
        finally:
            self._listening.discard(handler)

    def close(self) -> None:
        """End what clients listen to, so that nobody waits for a gateway that stops."""
        for handler in list(self._listening):
            handler.close()


async def told_of_changes(
    api: Api,
    tell: Callable[[], Awaitable[None]],
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Tell whenever the list of resources has changed; started once nothing can be missed any more."""
    began = False
    async with aclosing(list_changes(api)) as changes:  # type: ignore[type-var]
        async for changed in changes:
            if not began:
                began = True
                task_status.started()
            if changed:
                await tell()
    if not began:
        task_status.started()


async def list_changes(api: Api) -> AsyncIterator[bool]:
    """True when the list of resources has changed: at most once a second, and not for each word said.

    False at the beginning, behind which nothing is missed, and now and then as a sign of life.
    """
    names: dict[str, tuple[Any, ...]] = {}
    try:
        async with aclosing(api.changes()) as changes:  # type: ignore[type-var]
            async for change in changes:
                if _is_another_list(change, names):
                    yield True
                    await anyio.sleep(_QUIET_SECONDS)
                elif str(change.get("type", "")).startswith("stream."):
                    yield False
    except (HoldfastError, OSError) as error:
        log.info("changes are not told any more: %s", error)


def _is_another_list(change: Mapping[str, Any], names: dict[str, tuple[Any, ...]]) -> bool:
    """Whether a change is one of the list itself; `names` has what is known of it."""
    kind, id_ = str(change.get("type", "")).partition(".")[0], change.get("entityId")
    if kind not in _LISTED or not isinstance(id_, str):
        return False
    data: Mapping[str, Any] = change.get("data") or {}
    if kind == "memory":
        changed = data.get("indexed") or data.get("removed")
        return change.get("type") == "memory.updated" and bool(changed)
    now = (data.get("name"), data.get("sessionKey"), data.get("status") == "archived", bool(data))
    before, names[id_] = names.get(id_), now
    return before != now


async def _memory_files(api: Api) -> list[str]:
    try:
        return [one["path"] for one in (await api.call("GET", "/api/memory/files", {"limit": 200})).body]
    except (Unauthorized, HoldfastError) as error:
        if isinstance(error, Unavailable):
            raise
        return []  # a token that is limited to spaces reads no memory files


async def _prompt(api: Api, name: str, about: str, host: str) -> str:
    if name == "recap":
        found = await tools.call(api, "recall", {"query": about or "what is in work", "limit": 20}, host)
        asked = f"Say what is known about {about or 'what is in work'}, briefly, and cite the ids you used."
        return f"{asked}\nOpen what you need.\n\n{tools.fenced(tools.as_text(found))}"
    made = await tools.call(api, "continue", {"about": about}, host)
    return f"Pick up where we left off. This is what Holdfast has of it:\n\n{made['block']}"


def _tool(name: str, tool: tools.Tool) -> types.Tool:
    hints = types.ToolAnnotations(
        read_only_hint=tool.reads_only,
        destructive_hint=None if tool.reads_only else False,
        open_world_hint=False,
    )
    return types.Tool(
        name=name,
        description=tool.description,
        input_schema=tool.schema,
        output_schema=dict(tool.output),
        annotations=hints,
    )


def _resource(kind: str, id_: str, name: str) -> types.Resource:
    return types.Resource(
        uri=f"{SCHEME}{kind}/{quote(id_, safe=':/')}",
        name=tools.quoted(name, 120),
        mime_type="text/markdown",
        description=(_KINDS | _KINDS_MORE)[kind],
    )


def _host(ctx: Context) -> str:
    """What the client calls itself."""
    params = ctx.session.client_params
    return "" if params is None else tools.quoted(params.client_info.name, 60)


def _as_protocol(error: HoldfastError) -> MCPError:
    code = types.INVALID_PARAMS if error.status < 500 else types.INTERNAL_ERROR
    return MCPError(code, tools.words_of(error))
