"""`/api/plugins`: how the plugins fare; `/plugins/<id>/…`: the routes that they registered."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from pydantic import Field
from starlette.responses import Response

from holdfast.errors import NotFound
from holdfast.gateway.bodies import StrictRoute, parse
from holdfast.gateway.context import Caller, Here, Unlimited
from holdfast.gateway.contract import Answer, answers, foreign
from holdfast.plugins import Part, PluginHost, PluginRequest
from holdfast.plugins.api import METHODS, Route
from holdfast.plugins.guarded import answer

router = APIRouter(tags=["plugins"], route_class=StrictRoute)
_MOST_QUERY: Final = 100


class PluginOut(Answer):
    id: str
    name: str
    version: str | None
    description: str
    from_: str = Field(alias="from", description="config, workspace, home, package or bundled.")
    phase: str
    state: str = Field(description="Its phase; failed, off, or failing where parts of it were left out.")
    reason: str | None
    capabilities: list[str]
    slots: list[str]
    registered: dict[str, list[str]]
    troubles: list[str]
    runnable: bool = Field(description="False for one of OpenClaw, of which only the data is used.")


@router.get("/api/plugins", response_model=list[PluginOut])
async def listing(here: Here, _: Unlimited) -> Response:
    """The plugins that were found, and how each fares."""
    engines = {one["engine"]: one for one in await here.hold.threads(here.hold.context.engine_health)}
    return answers([PluginOut.model_validate(plugin.json(engines)) for plugin in here.hold.plugins.plugins])


@router.api_route(
    "/plugins/{pluginId}/{path:path}",
    methods=list(METHODS),
    include_in_schema=False,
)
async def call(
    request: Request,
    here: Here,
    caller: Caller,
    plugin_id: Annotated[str, Path(alias="pluginId", max_length=64)],
    path: Annotated[str, Path(max_length=1000)],
) -> Response:
    """What a plugin answers. Who calls was let in by the gate, and reads what their token lets them."""
    route, part = _route(here.hold.plugins, plugin_id, request.method, path)
    if not route.for_limited:
        caller.require_unlimited()
    body: Any = None
    if request.method not in ("GET", "DELETE") and (sent := await request.body()):
        body = parse(sent)
    asked = PluginRequest(
        method=request.method,
        path="/" + path.strip("/"),
        query=dict(list(request.query_params.items())[:_MOST_QUERY]),
        body=body,
        reader=caller.reader,
        caller=caller.name,
    )
    made = await answer(route, part, asked, here.hold.settings.plugins.limits.call_seconds)
    return foreign(made.body, made.status)


def _route(host: PluginHost, id_: str, method: str, path: str) -> tuple[Route, Part]:
    wanted = (method, "/" + path.strip("/"))
    plugin = next((one for one in host.plugins if one.id == id_ and host.usable(one)), None)
    for route in plugin.registered.routes if plugin is not None else ():
        if (route.method, route.path) == wanted and plugin is not None:
            name = f"route {route.method} {route.path}"
            part = next((one for one in plugin.parts if one.name == name), None)
            return route, part or host.part(plugin, name)
    raise NotFound(f"no plugin answers {method} /plugins/{id_}{wanted[1]}"[:200], code="unknown_route")
