"""Asking an agent from outside: the body of a request as an ask, and who may ask and look.

A token limited to spaces starts no runs, and sees those of sessions that are shared with it; one limited to
agents has those of its agents, and names sessions only by keys that say whose they are.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from holdfast.agents.loop import Accepted, Ask, Deliver, Mode
from holdfast.agents.loop.asks import MAX_IMAGES, MAX_TEXT, Address, address
from holdfast.agents.models import ModelRef
from holdfast.board.attachments import Upload
from holdfast.channels.surface import Surface
from holdfast.channels.web import OWNER_HERE, chosen
from holdfast.config.agents import Thinking
from holdfast.config.channels import WEB
from holdfast.context import Image
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound, Unavailable
from holdfast.gateway.access import require_key
from holdfast.gateway.context import Gateway
from holdfast.gateway.tokens import Principal, Scope
from holdfast.gateway.wire import Label, Text, Wire
from holdfast.ids import AgentId
from holdfast.keys import MAX_KEY_LENGTH, DirectKey, canonical_agent_id, canonical_key, parse_key
from holdfast.log import Audience, for_member, for_space, turns
from holdfast.people import Right, budgets
from holdfast.services import Services

MAX_RUN_SECONDS: Final = 48 * 3600
MAX_IDEMPOTENCY: Final = 512
MAX_FILES: Final = 100
FILES_ALONE: Final = "[files]"
MAX_FILE_CHARS: Final = 1024**3


class ImageIn(Wire):
    """A picture as base64. Addresses are not taken: nobody here fetches what a caller names."""

    mime_type: Annotated[str, Field(pattern=r"^image/[a-z0-9.+-]{1,64}$")]
    data: Annotated[str, Field(min_length=4, max_length=16_000_000, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]

    def image(self) -> Image:
        return picture(self.mime_type, self.data)


class FileIn(Wire):
    """A file as base64. What kind it is, its bytes say."""

    name: Annotated[Text, Field(min_length=1, max_length=512)]
    data: Annotated[str, Field(min_length=4, max_length=MAX_FILE_CHARS, pattern=r"^[A-Za-z0-9+/]+={0,2}$")]

    def upload(self) -> Upload:
        return Upload(self.name, "", decoded(self.data, "a file"))


class DeliverIn(Wire):
    """A parcel for the outbox, posted with the reply."""

    kind: Annotated[Text, Field(min_length=1, max_length=64)]
    target: Annotated[Text, Field(min_length=1, max_length=512)]
    payload: dict[str, Any] = Field(default_factory=dict)


class AgentIn(Wire):
    """A message for an agent; `message` and `text` are the same. Without a session it goes to `main`."""

    message: Annotated[Text, Field(max_length=MAX_TEXT)] | None = None
    text: Annotated[Text, Field(max_length=MAX_TEXT)] | None = None
    session_key: Annotated[Text, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = None
    agent_id: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    model: Annotated[Text, Field(min_length=3, max_length=256)] | None = None
    thinking: Thinking | None = None
    mode: Mode | None = Field(None, description="What becomes of it while a turn runs; unset: as configured.")
    images: list[ImageIn] = Field(default_factory=list, max_length=MAX_IMAGES)
    files: list[FileIn] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description="Kept with the message; what the owner sends is in the agent's workspace too.",
    )
    deliver: DeliverIn | None = Field(None, description="Only for tokens without limits.")
    label: Label | None = Field(None, description="Who speaks, for people who read the log.")
    timeout_seconds: Annotated[int, Field(ge=1, le=MAX_RUN_SECONDS)] | None = None
    idempotency_key: Annotated[Text, Field(min_length=1, max_length=MAX_IDEMPOTENCY)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.said.strip() or self.images or self.files):
            raise ValueError("there is nothing to say: send `message`, a picture or a file")
        return self

    @property
    def said(self) -> str:
        return self.message if self.message is not None else (self.text or "")

    def ask(self, caller: Principal, header_key: str | None = None) -> Ask:
        if self.deliver is not None:
            caller.require_unlimited()
        if self.model is not None:
            ModelRef.parse(self.model)
        to = self.deliver
        return Ask(
            text=self.said if self.said.strip() or self.images else FILES_ALONE,
            session_key=self.session_key,
            agent_id=self.agent_id,
            model=self.model,
            thinking=self.thinking,
            mode=self.mode,
            images=tuple(image.image() for image in self.images),
            deliver=None if to is None else Deliver(kind=to.kind, target=to.target, payload=to.payload),
            sender_label=self.label,
            timeout_seconds=self.timeout_seconds,
            key=own_key(header_key or self.idempotency_key),
            **named_by(caller),
        )


def named_by(caller: Principal) -> dict[str, Any]:
    """In whose name a token or a person asks: with no more rights, and reading no more, than they have."""
    if caller.user_id is not None and caller.limited:
        return {"sender": sender_of(caller), "owner": False}
    return {
        "sender": sender_of(caller),
        "owner": caller.is_owner,
        "by_token": True,
        "owner_sent": not caller.limited,
        "limited_to": None if caller.agents is None else tuple(sorted(caller.agents)),
    }


def own_key(sent: str | None) -> str | None:
    """A caller's idempotency key, apart from the keys that Holdfast gives to turns of its own."""
    return None if sent is None else f"api:{sent}"


def sender_of(caller: Principal) -> str:
    return caller.actor


def picture(mime: str, data: str) -> Image:
    decoded(data, "a picture")
    return Image(mime, data)


def decoded(data: str, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{what} is not base64", hint="Send the bytes of the file as base64.") from error


async def require_address(here: Gateway, caller: Principal, ask: Ask) -> None:
    """Whether the caller may ask for this: of that agent, in that session."""
    caller.require(Scope.WRITE)
    require_agents(caller)
    to = address(ask, here.hold.settings)
    if caller.agents is not None and caller.user_id is None:
        await here.hold.threads(_require_within, here, caller, ask, to)
    if caller.teams:
        await here.hold.threads(_require_budget, here, caller, to)
    if ask.agent_id is not None and to.agent_id != canonical_agent_id(ask.agent_id):
        raise InvalidInput(
            f"the session is agent {to.agent_id!r}'s",
            hint="Leave out agentId, or name a session of that one.",
        )


def _require_budget(here: Gateway, caller: Principal, to: Address) -> None:
    """A turn is for the team in whose session it is; in a person's own, for any of theirs with this agent."""
    able = [team for team in caller.teams if to.agent_id in team.agents]
    own = [team for team in able if to.session_key == team_key(to.agent_id, team.id)]
    with here.read_as(caller) as tx:
        budgets.require(tx, own or able)


def _require_within(here: Gateway, caller: Principal, ask: Ask, to: Address) -> None:
    if ask.session_key is not None:
        with here.read_as(caller) as tx:
            require_key(tx, caller, to.session_key)
    if caller.agents is None or not {to.agent_id, parse_key(to.session_key).agent_id} <= caller.agents:
        raise Forbidden(
            "this token may ask only its own agents",
            code="agent_forbidden",
            hint="Send an agentId that it may use, and a sessionKey of the form agent:<agentId>:….",
        )


async def accept_sent(here: Gateway, caller: Principal, sent: AgentIn, key: str | None = None) -> Accepted:
    """What a caller sent as the body of a request, with its files."""
    return await accept(here, caller, sent.ask(caller, key), sent)


async def accept(here: Gateway, caller: Principal, ask: Ask, sent: AgentIn | None = None) -> Accepted:
    """Store the ask and promise its turn; a key must not open a run that the caller could not see."""
    ask = placed(here, caller, ask)
    await require_address(here, caller, ask)
    if sent is not None and sent.files:
        ask = await here.hold.threads(_with_files, here, ask, sent)
    accepted = await here.hold.runs.accept(ask)
    if not accepted.created:
        await require_own(here, caller, accepted.run_id)
    return accepted


def _with_files(here: Gateway, ask: Ask, sent: AgentIn) -> Ask:
    agent_id = address(ask, here.hold.settings).agent_id
    room, files = here.hold.agency.channels.files, [file.upload() for file in sent.files]
    return room.attach(ask, sent.said, files, agent_id)


async def require_own(here: Gateway, caller: Principal, run_id: str) -> None:
    """What a repeated key found is the caller's to see."""
    try:
        await require_run(here, caller, run_id)
    except NotFound as error:
        raise Conflict(
            "this idempotency key is in use", code="key_in_use", hint="Send another key."
        ) from error


async def require_run(here: Gateway, caller: Principal, run_id: str) -> None:
    """`NotFound` for a run that is not there and for one that the caller may not read."""

    def look() -> None:
        with here.read_as(caller) as tx:
            turns.get(tx, run_id)

    try:
        await here.hold.threads(look)
    except NotFound as error:
        raise NotFound(f"no run {run_id[:80]!r}", code="unknown_run") from error


async def require_own_run(here: Gateway, caller: Principal, run_id: str) -> None:
    """The same for who stops it or lets it go on: that is for who may ask its agent."""
    await require_run(here, caller, run_id)
    require_agents(caller)


def placed(here: Gateway, caller: Principal, ask: Ask) -> Ask:
    """Where a person is heard: in a session of their own with an agent of their teams, or in a team's."""
    if caller.user_id is None or not caller.limited:
        return _on_pages(here, caller, ask)
    caller.require_right(Right.TALK)
    agent = _own_agent(here, caller, ask)
    if ask.one_off:  # a session that was made for this one request, apart from everybody else's
        key = f"{ask.session_key}:{caller.user_id}"
        return replace(ask, session_key=key, agent_id=agent, heard=for_member(caller.user_id), deliver=None)
    key = ask.session_key or str(DirectKey(agent, None, caller.user_id))
    heard = _heard_in(caller, agent, canonical_key(key))
    return replace(ask, session_key=key, agent_id=agent, heard=heard, deliver=None)


def _on_pages(here: Gateway, caller: Principal, ask: Ask) -> Ask:
    """The pages are a channel like others: who names no agent there gets the one that `bindings` choose."""
    if caller.session_id is None or ask.agent_id is not None or ask.session_key is not None:
        return ask
    return replace(ask, agent_id=on_pages(here, caller))


def on_pages(here: Gateway, caller: Principal) -> AgentId:
    """The agent that answers the caller on the pages, where they name none."""
    known = here.hold.settings
    if caller.user_id is None or not caller.limited:
        return chosen(known, Surface(WEB, "dm", OWNER_HERE))
    return chosen(known, Surface(WEB, "dm", caller.name), [one.id for one in caller.teams])


def _own_agent(here: Gateway, caller: Principal, ask: Ask) -> AgentId:
    """The agent that a person speaks to: the one they name, that of the session, or their team's only one."""
    named = ask.agent_id or (None if ask.session_key is None else parse_key(ask.session_key).agent_id)
    known = sorted(agent.id for agent in here.hold.settings.agent_list if caller.may_see_agent(agent.id))
    if named is None and known:
        by_rule = on_pages(here, caller)
        named = by_rule if by_rule in known else known[0]
    if named is None or canonical_agent_id(named) not in known:
        raise Forbidden(
            "none of this person's teams has this agent",
            code="agent_forbidden",
            hint=f"Ask one of theirs: {', '.join(known)}." if known else "Ask an administrator for one.",
        )
    return canonical_agent_id(named)


def _heard_in(caller: Principal, agent: str, key: str) -> Audience:
    """Who hears what a person says under a key; `Forbidden` for keys that are neither theirs nor a team's."""
    if key == str(DirectKey(AgentId(agent), None, str(caller.user_id))):
        return for_member(str(caller.user_id))
    for team in caller.teams:
        if agent in team.agents and key == team_key(agent, team.id):
            return for_space(team.space_id)
    raise Forbidden(
        "this person may not speak under this session key",
        code="session_forbidden",
        hint="Leave the key out, or use agent:<agentId>:team:<teamId> of a team of theirs.",
    )


def team_key(agent: str, team_id: str) -> str:
    """The session that a team shares with an agent of its own."""
    return f"agent:{agent}:team:{team_id}"


def require_agents(caller: Principal) -> None:
    if caller.user_id is not None:
        caller.require_right(Right.TALK)
    elif not caller.may_ask_agents:
        raise Forbidden(
            "a token limited to spaces runs no agents",
            code="space_forbidden",
            hint="Use one that is limited to agents instead, or not at all.",
        )


def serving(here: Gateway) -> Services:
    if here.services is None:
        raise Unavailable("the gateway is not serving yet", code="starting")
    return here.services
