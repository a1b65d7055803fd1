"""Teams: people who share a space of the board and agents.

A team's space is made with it and shared from then on: what is put into it by name, and what is said in the
team's session, all of its members may read. What a member says to an agent alone stays theirs. Groups of chat
services can be a team's too: what is said there from then on is its space's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import sqlalchemy as sa

from holdfast.board import sharing, spaces
from holdfast.board.tags import Label
from holdfast.clock import Millis
from holdfast.errors import Conflict, InvalidInput, NotFound
from holdfast.log import Audience, Tx, audit, surfaces
from holdfast.log.audience import space_of
from holdfast.log.tables import Json, metadata
from holdfast.people.budgets import Budget
from holdfast.people.users import SIGNAL, User, checked_name

MAX_TEAMS: Final = 1_000
MOST_CHANNELS: Final = 100
NO_BUDGET: Final = Budget()
_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")

table = sa.Table(
    "teams",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("space_id", sa.Text, nullable=False),
    sa.Column("agents", Json, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("budget", Json),
)
members = sa.Table(
    "team_members",
    metadata,
    sa.Column("team_id", sa.Text, primary_key=True),
    sa.Column("user_id", sa.Text, primary_key=True),
    sa.Column("joined_at", sa.BigInteger, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Channel:
    """A group of a chat service that is a team's; `exposed`: somebody else was seen to write there."""

    address: str
    exposed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    id: str
    name: str
    space_id: str
    agents: tuple[str, ...]
    created_at: Millis
    members: tuple[str, ...] = ()
    budget: Budget = NO_BUDGET
    channels: tuple[Channel, ...] = ()


def add(tx: Tx, id_: str, *, name: str | None = None, agents: Sequence[str] = ()) -> Team:
    """Make a team with a space of its own; one of that name that is there already becomes the team's."""
    if not _ID.fullmatch(id_):
        raise InvalidInput(
            f"not a team's id: {id_[:80]!r}", code="bad_team", hint="Use a-z, 0-9 and -, such as research."
        )
    if tx.conn.execute(sa.select(table.c.id).where(table.c.id == id_)).first() is not None:
        raise Conflict(f"there is a team {id_!r} already", code="team_taken")
    if (tx.conn.execute(sa.select(sa.func.count()).select_from(table)).scalar() or 0) >= MAX_TEAMS:
        raise Conflict(f"there are {MAX_TEAMS} teams already")
    shown = checked_name(name or id_)
    space_id = f"team-{id_}"
    spaces.ensure(tx, [Label(space_id, shown)])
    sharing.mark_shared(tx, frozenset((space_id,)))
    row = {"id": id_, "name": shown, "space_id": space_id, "agents": sorted(agents), "created_at": tx.now}
    tx.conn.execute(sa.insert(table), row)
    audit.note(tx, "team.added", id_, agents=", ".join(sorted(agents)))
    tx.wake(SIGNAL)
    return get(tx, id_)


def get(tx: Tx, id_: str) -> Team:
    found = _read(tx, table.c.id == id_)
    if not found:
        raise NotFound(f"no team {id_[:80]!r}", code="unknown_team", hint="See `holdfast teams list`.")
    return found[0]


def listing(tx: Tx) -> list[Team]:
    """All teams, with the ids of their members."""
    return _read(tx)


def of_space(tx: Tx, space_id: str | None) -> Team | None:
    """The team whose space this is."""
    if space_id is None:
        return None
    return next(iter(_read(tx, table.c.space_id == space_id)), None)


def heard_as(tx: Tx, audience: str) -> Team | None:
    """The team that hears what this audience does."""
    return of_space(tx, space_of(audience))


def attach(tx: Tx, id_: str, group: Audience, address: str) -> Team:
    """Make a group a team's own: what is said there from now on all of its members read.

    Said again, it holds again although somebody else was seen there.
    """
    team = get(tx, id_)
    held = surfaces.space_given(tx, group)
    if held not in (None, team.space_id):
        raise Conflict(
            f"{address[:80]} belongs to another team",
            code="channel_taken",
            hint="Take it from that one first.",
        )
    if held is None and len(team.channels) >= MOST_CHANNELS:
        raise Conflict(f"{MOST_CHANNELS} channels are the most", code="too_many_channels")
    surfaces.give(tx, group, team.space_id, address)
    audit.note(tx, "team.channel_added", id_, address=address)
    return get(tx, id_)


def detach(tx: Tx, id_: str, group: Audience, address: str) -> Team:
    team = get(tx, id_)
    if surfaces.space_given(tx, group) != team.space_id:
        raise NotFound(f"{address[:80]} is no channel of team {id_}", code="unknown_channel")
    surfaces.take_back(tx, group)
    audit.note(tx, "team.channel_removed", id_, address=address)
    return get(tx, id_)


def change(
    tx: Tx,
    id_: str,
    *,
    name: str | None = None,
    agents: Sequence[str] | None = None,
    budget: Budget | None = None,
) -> Team:
    before = get(tx, id_)
    values: dict[str, Any] = {}
    if name is not None:
        values["name"] = checked_name(name)
    if agents is not None:
        values["agents"] = sorted(agents)
    if budget is not None:
        values["budget"] = budget.kept() or sa.null()
    if values:
        tx.conn.execute(sa.update(table).where(table.c.id == id_).values(values))
        told = {"before": ", ".join(before.agents), "after": ", ".join(values.get("agents", before.agents))}
        if budget is not None:
            told["budget"] = ", ".join(f"{key}={value}" for key, value in (budget.kept() or {}).items())
        audit.note(tx, "team.changed", id_, name=values.get("name", before.name), **told)
        tx.wake(SIGNAL)
    return get(tx, id_)


def remove(tx: Tx, id_: str) -> None:
    """End a team. Its space and all that was said stay, for the owner to read or to share again."""
    surfaces.take_all_back(tx, get(tx, id_).space_id)
    tx.conn.execute(sa.delete(members).where(members.c.team_id == id_))
    tx.conn.execute(sa.delete(table).where(table.c.id == id_))
    audit.note(tx, "team.removed", id_)
    tx.wake(SIGNAL)


def join(tx: Tx, id_: str, user: User) -> Team:
    team = get(tx, id_)
    if user.id not in team.members:
        row = {"team_id": id_, "user_id": user.id, "joined_at": tx.now}
        tx.conn.execute(sa.insert(members), row)
        audit.note(tx, "team.joined", id_, user=user.login)
        tx.wake(SIGNAL)
    return get(tx, id_)


def leave(tx: Tx, id_: str, user: User) -> Team:
    get(tx, id_)
    own = sa.and_(members.c.team_id == id_, members.c.user_id == user.id)
    if tx.conn.execute(sa.delete(members).where(own)).rowcount:
        audit.note(tx, "team.left", id_, user=user.login)
        tx.wake(SIGNAL)
    return get(tx, id_)


def _read(tx: Tx, *which: sa.ColumnElement[bool]) -> list[Team]:
    rows = (
        tx.conn.execute(sa.select(table).where(*which).order_by(table.c.id).limit(MAX_TEAMS)).mappings().all()
    )
    if not rows:
        return []
    joined: dict[str, list[str]] = defaultdict(list)
    for team_id, user_id in tx.conn.execute(
        sa.select(members.c.team_id, members.c.user_id)
        .where(members.c.team_id.in_([row["id"] for row in rows]))
        .order_by(members.c.joined_at, members.c.user_id)
    ):
        joined[team_id].append(user_id)
    given: dict[str, list[Channel]] = defaultdict(list)
    for space_id, address, exposed in surfaces.given(tx, [row["space_id"] for row in rows]):
        given[space_id].append(Channel(address, exposed))
    return [_team(row, joined[row["id"]], given[row["space_id"]]) for row in rows]


def _team(row: Mapping[Any, Any], joined: Sequence[str], given: Sequence[Channel]) -> Team:
    return Team(
        id=row["id"],
        name=row["name"],
        space_id=row["space_id"],
        agents=tuple(row["agents"]),
        created_at=row["created_at"],
        members=tuple(joined),
        budget=Budget.read(row["budget"]),
        channels=tuple(given),
    )
