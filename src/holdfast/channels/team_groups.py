"""Groups of chat services that belong to a team: who is known there, and which agent answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from holdfast.agents import route
from holdfast.channels.inbound import Inbound
from holdfast.channels.surface import Surface
from holdfast.config import Config
from holdfast.config.channels import WEB
from holdfast.errors import Busy, Conflict, InvalidInput
from holdfast.log import Audience, Tx, for_group, surfaces
from holdfast.people import Right, Team, User, budgets, contacts, roles, teams


@dataclass(frozen=True, slots=True)
class Place:
    """Who hears what is said somewhere, and which agent answers there if bindings alone do not say it."""

    heard: Audience
    team: Team | None = None
    agent_id: str | None = None


def group_of(surface: Surface) -> Audience:
    """Everyone in a group; its id is the same for all accounts of a channel."""
    return for_group(surface.channel, None, surface.peer)


def place_of(tx: Tx, message: Inbound, heard: Audience, config: Config) -> Place:
    """Where a message was said. A team's group is answered by an agent of the team: the one that a binding
    names, else its first."""
    team = None if message.surface.direct else teams.heard_as(tx, heard)
    if team is None:
        return Place(heard)
    known = [agent.id for agent in config.agent_list]
    own = [agent for agent in team.agents if agent in known]
    origin = message.surface.origin(guild_id=message.guild_id, team_id=message.team_id)
    bound = route(origin, config.bindings, config.agent_list)
    named = bound.agent_id if bound.binding is not None and bound.agent_id in own else None
    return Place(heard, team, named or next(iter(own), None))


def member_at(tx: Tx, message: Inbound) -> User | None:
    """Who writes in a group that is a team's, if they are in it: by the chat that they linked, as the service
    vouches for it."""
    surface = message.surface
    if surface.direct or message.bot or not message.proven:
        return None
    team = teams.of_space(tx, surfaces.space_given(tx, group_of(surface)))
    if team is None:
        return None
    user = contacts.at(tx, f"{surface.channel}:{message.sender}")
    return user if user is not None and user.id in team.members else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a team's group gets no answer, and whether the group is told."""

    why: str
    told: bool = False


def refusal(tx: Tx, place: Place, user: User | None) -> Refusal | None:
    """What keeps an agent from answering in a team's group, if anything does."""
    if place.team is None:
        return None
    if place.agent_id is None:
        return Refusal(f"team {place.team.id} has no agent")
    if user is not None and not roles.may(user.role, Right.TALK):
        return Refusal(f"{user.login} reads, and may not talk to agents")
    try:
        budgets.require(tx, [place.team])
    except Busy as spent:
        return Refusal(f"{spent.message}. {spent.hint}", told=True)
    return None


def attach(tx: Tx, team_id: str, address: str, is_private: Callable[[str, str], bool]) -> Team:
    """Make the group at an address a team's own."""
    surface = _group_at(address)
    if is_private(surface.channel, surface.peer):
        raise Conflict(
            f"{surface.address} is declared private",
            code="private_surface",
            hint=f"Say first: holdfast channels private {surface.channel} {surface.peer} --remove",
        )
    return teams.attach(tx, team_id, group_of(surface), surface.address)


def detach(tx: Tx, team_id: str, address: str) -> Team:
    surface = _group_at(address)
    return teams.detach(tx, team_id, group_of(surface), surface.address)


def _group_at(address: str) -> Surface:
    """A group as a whole: its threads are its own, and its id is the same for all accounts."""
    surface = Surface.parse(address)
    if surface.direct or surface.thread is not None or surface.account is not None or surface.channel == WEB:
        raise InvalidInput(
            f"not a group of a chat service: {address[:80]!r}",
            code="bad_surface",
            hint="Use an address such as slack:channel:C42 or telegram:group:-100, without a thread.",
        )
    return surface
