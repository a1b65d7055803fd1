"""What every route needs, in one place: the open home, its services, and who is calling.

The dependencies are asynchronous although they wait for nothing: FastAPI runs plain functions in a thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, cast

from fastapi import Depends, Request

from holdfast.gateway.codes import LoginCodes
from holdfast.gateway.metrics import Metrics
from holdfast.gateway.stream import Stream
from holdfast.gateway.tokens import Principal, Scope, TokenBook
from holdfast.gateway.views import Views
from holdfast.runtime import Holdfast
from holdfast.services import Services


@dataclass
class Gateway:
    """The state of one gateway; `services` is there while it serves."""

    hold: Holdfast
    book: TokenBook
    codes: LoginCodes
    views: Views = field(default_factory=Views)
    metrics: Metrics = field(default_factory=Metrics)
    services: Services | None = None
    stream: Stream | None = None


async def _gateway(request: Request) -> Gateway:
    return cast("Gateway", request.app.state.gateway)


async def _principal(request: Request) -> Principal:
    return cast("Principal", request.state.principal)


async def _admin(request: Request) -> Principal:
    principal = await _principal(request)
    principal.require(Scope.ADMIN)
    principal.require_unlimited()
    return principal


async def _unlimited(request: Request) -> Principal:
    principal = await _principal(request)
    principal.require_unlimited()
    return principal


Here = Annotated[Gateway, Depends(_gateway)]
Caller = Annotated[Principal, Depends(_principal)]
Admin = Annotated[Principal, Depends(_admin)]
Unlimited = Annotated[Principal, Depends(_unlimited)]
