"""`/api/channels` and `/api/deliveries`: what people say comes in here, and how what goes out stands."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field, ValidationError
from starlette.responses import Response

from holdfast.channels import ChannelOut, Channels, DeliveryOut, Inbound, PairingOut, Surface
from holdfast.config.session import PeerKind
from holdfast.errors import Busy, InvalidInput
from holdfast.gateway.bodies import StrictRoute
from holdfast.gateway.context import Admin, Here, Unlimited
from holdfast.gateway.contract import Answer, answer, answers
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import Text, Wire
from holdfast.log import audit
from holdfast.log.outbox import DeliveryStatus
from holdfast.plugins.manifest import Manifest
from holdfast.runtime import adding_channels

router = APIRouter(tags=["channels"], route_class=StrictRoute)
inbound_router = APIRouter(tags=["channels"])

MAX_PAGE = 500
CHANNEL_NAME = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
ShortId = Annotated[Text, Field(min_length=1, max_length=128, coerce_numbers_to_str=True)]


class SenderIn(Wire):
    id: ShortId
    name: Annotated[Text, Field(max_length=200)] | None = None
    bot: bool = False


class PlaceIn(Wire):
    kind: PeerKind
    id: ShortId


class MessageIn(Wire):
    """A message of a channel. `id` is the channel's own: the same again is the same message."""

    id: ShortId
    text: Annotated[Text, Field(max_length=200_000)]
    sender: SenderIn
    peer: PlaceIn
    thread_id: ShortId | None = None
    account_id: ShortId | None = None
    mentioned: bool = False
    reply_to: ShortId | None = None
    guild_id: ShortId | None = None
    team_id: ShortId | None = None

    def message(self, channel: str) -> Inbound:
        return Inbound(
            surface=Surface(channel, self.peer.kind, self.peer.id, self.thread_id, self.account_id),
            message_id=self.id,
            sender=self.sender.id,
            sender_name=self.sender.name,
            bot=self.sender.bot,
            text=self.text,
            mentioned=self.mentioned,
            reply_to=self.reply_to,
            guild_id=self.guild_id,
            team_id=self.team_id,
        )


class ReceivedOut(Answer):
    ok: Literal[True]
    state: Literal["answered", "kept", "pairing", "ignored"]
    reason: str
    run_id: str | None
    duplicate: bool


class PairingIn(Wire):
    approve: bool
    owner: bool = Field(default=False, description="They are the owner, whom nothing is kept from.")


class OptionOut(Answer):
    name: str
    ask: str
    secret: bool
    optional: bool


class ServiceOut(Answer):
    id: str
    title: str
    description: str
    options: list[OptionOut]


OptionName = Annotated[str, Field(max_length=64)]
OptionText = Annotated[Text, Field(max_length=4_000)]


class ChannelIn(Wire):
    service: Annotated[Text, Field(min_length=1, max_length=64)]
    name: Annotated[Text, Field(pattern=CHANNEL_NAME)] | None = None
    account: Annotated[Text, Field(pattern=CHANNEL_NAME)] | None = None
    owners: list[ShortId] = Field(default=[], max_length=20)
    options: dict[OptionName, OptionText] = Field(default={}, max_length=30)
    check: bool = Field(default=True, description="Whether it is tried before it is written.")


class ChannelAddedOut(Answer):
    name: str
    service: str
    connected_as: str | None = Field(description="Who the agent is there, if it was tried.")


@inbound_router.post(
    "/api/channels/{channel}/inbound",
    response_model=ReceivedOut,
    status_code=202,
    responses={200: {"model": ReceivedOut, "description": "A message that was here before."}},
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": {}}}}},
)
async def inbound(request: Request, channel: Annotated[str, Path(max_length=64)]) -> Response:
    """A message that came in on a channel: `{id, text, sender: {id, name}, peer: {kind, id}, threadId, …}`.

    Signed by the channel's secret in `X-Holdfast-Signature`, or with a token without limits; whose messages
    are the owner's, only the secret and an admin's token may say.
    """
    room = cast("Channels", request.app.state.gateway.hold.agency.channels)
    body = await request.body()
    caller = cast("Principal | None", getattr(request.state, "principal", None))
    if caller is None:
        room.verify(channel, {key.lower(): value for key, value in request.headers.items()}, body)
    else:
        caller.require(Scope.WRITE)
        caller.require_unlimited()
    message = _parsed(body).message(channel)
    done = await room.receive(message, may_own=caller is None or caller.is_owner)
    told = ReceivedOut(
        ok=True, state=done.state, reason=done.reason, run_id=done.run_id, duplicate=done.duplicate
    )
    return answer(told, 200 if done.duplicate else 202)


@router.get("/api/channels", response_model=list[ChannelOut])
async def listing(here: Here, caller: Unlimited) -> Response:
    """The channels in the config, and how they stand."""
    return answers(await here.hold.threads(here.hold.agency.channels.listing))


@router.get("/api/channels/services", response_model=list[ServiceOut])
async def services(here: Here, caller: Admin) -> Response:
    """The chat services that a channel can be added for, and what each asks for."""
    found = await here.hold.threads(adding_channels.services)
    return answers([_service(one.manifest) for one in found.values() if one.manifest is not None])


@router.post("/api/channels", response_model=ChannelAddedOut, status_code=201)
async def add(here: Here, caller: Admin, body: ChannelIn) -> Response:
    """Add a channel, as `holdfast channels add` does: it is tried with these options before it is written.

    One at a time: a service that does not answer holds no more than one thread.
    """
    wanted = adding_channels.Wanted(body.service, body.name, body.account, body.owners, body.options)

    def write() -> ChannelAddedOut:
        adding_channels.refuse_known(here.hold, wanted)
        who = adding_channels.added(here.hold, wanted, check=body.check)
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, "channel.added", wanted.called, service=wanted.service)
        return ChannelAddedOut(name=wanted.called, service=wanted.service, connected_as=who)

    if here.adding_channel.locked():
        raise Busy("a channel is being tried already", hint="Try again once it is done, within a minute.")
    async with here.adding_channel:
        return answer(await here.hold.threads(write), 201)


@router.get("/api/deliveries", response_model=list[DeliveryOut])
async def deliveries(
    here: Here,
    caller: Unlimited,
    status: DeliveryStatus | None = None,
    target: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, description=f"At most {MAX_PAGE} come at once.")] = 100,
) -> Response:
    """What is on its way to people and what arrived, the newest first; without the words themselves."""
    room = here.hold.agency.channels

    def read() -> list[DeliveryOut]:
        return room.deliveries(status=status, target=target, limit=min(limit, MAX_PAGE))

    return answers(await here.hold.threads(read))


@router.post("/api/deliveries/{id}/retry", response_model=DeliveryOut)
async def retry(here: Here, caller: Admin, id_: Annotated[str, Path(alias="id", max_length=256)]) -> Response:
    """Try a delivery again that was given up."""
    room = here.hold.agency.channels

    def write() -> DeliveryOut:
        with here.write_as(caller) as tx:
            audit.note(tx, "delivery.retried", id_)
            return room.retry(tx, id_)

    return answer(await here.hold.threads(write))


@router.get("/api/pairings", response_model=list[PairingOut])
async def pairings(
    here: Here, caller: Admin, channel: Annotated[str | None, Query(max_length=64)] = None
) -> Response:
    """Who waits to be let in on a channel, and who was."""
    return answers(await here.hold.threads(here.hold.agency.channels.pairings, channel))


@router.post("/api/pairings/{code}", response_model=PairingOut)
async def decide(
    here: Here, caller: Admin, code: Annotated[str, Path(max_length=64)], body: PairingIn
) -> Response:
    """Say yes or no to somebody who waits; a yes is told to them."""
    room = here.hold.agency.channels

    def write() -> PairingOut:
        done = room.approve(code, owner=body.owner) if body.approve else room.deny(code)
        with here.write_as(caller, ordered=False) as tx:
            audit.note(tx, f"pairing.{done['status']}", f"{done['channel']}:{done['sender']}")
        return done

    return answer(await here.hold.threads(write))


def _service(manifest: Manifest) -> ServiceOut:
    return ServiceOut(
        id=manifest.id,
        title=manifest.title,
        description=manifest.description,
        options=[
            OptionOut(name=one.name, ask=one.ask, secret=one.secret, optional=one.default is not None)
            for one in manifest.options
        ],
    )


def _parsed(body: bytes) -> MessageIn:
    try:
        return MessageIn.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InvalidInput(
            f"not a message: {place}: {first['msg']}" if place else f"not a message: {first['msg']}",
            code="bad_message",
            hint="Send id, text, sender {id} and peer {kind, id}.",
        ) from error
