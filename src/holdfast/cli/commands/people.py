"""`holdfast users`, `teams` and `audit`: who may log in, what they share, and what everyone did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from holdfast.cli.output import print_json, print_table, when
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.people import Team, User
    from holdfast.runtime import Holdfast

role_option = click.option(
    "--role", default="member", show_default=True, help="owner, admin, member or viewer."
)


@click.group(cls=Group)
def users() -> None:
    """People who may log in: list, add, invite, change."""


@users.command("list")
@json_option
@pass_app
def list_users(app: App, as_json: bool) -> None:
    """Everyone who may log in, with their role and teams."""
    from holdfast.people import teams as of_teams
    from holdfast.people import users as people

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found, all_teams = people.listing(tx), of_teams.listing(tx)
    if as_json:
        print_json([_user(each, all_teams) for each in found])
        return
    rows = [
        (
            each.login,
            each.name,
            each.role.value,
            _teams_of(each, all_teams),
            _state(each),
            when(each.last_login_at),
        )
        for each in found
    ]
    empty = "Nobody but you. Invite somebody: holdfast users invite --role member"
    print_table(["login", "name", "role", "teams", "state", "last login"], rows, empty=empty)


@users.command("add")
@click.argument("login")
@role_option
@click.option("--name", help="How they are called; unset: their login.")
@click.option(
    "--team", "teams", multiple=True, metavar="ID", help="A team to take them into (may be repeated)."
)
@json_option
@pass_app
def add_user(
    app: App, login: str, role: str, name: str | None, teams: tuple[str, ...], as_json: bool
) -> None:
    """Make somebody who may log in; asks for their password.

    \b
    Example:
      holdfast users add ada --role member --team research
    """
    from holdfast.people import Role
    from holdfast.people import teams as of_teams
    from holdfast.people import users as people

    password = people.hashed(_asked_password())
    with app.acting() as tx:
        made = people.add(tx, login, role=Role.parse(role), name=name, password=password)
        for team in teams:
            of_teams.join(tx, team, made)
        all_teams = of_teams.listing(tx)
    if as_json:
        print_json(_user(made, all_teams))
    else:
        click.echo(f"{made.login} may log in, as {made.role.value}.")


@users.command("invite")
@role_option
@click.option("--team", metavar="ID", help="The team that they come into.")
@click.option("--days", default=7, show_default=True, help="How long the invitation holds.")
@json_option
@pass_app
def invite(app: App, role: str, team: str | None, days: int, as_json: bool) -> None:
    """Print a link for one person, by which they choose their login and password. It is not shown again."""
    from holdfast.clock import iso
    from holdfast.people import Role
    from holdfast.people import teams as of_teams
    from holdfast.people import users as people

    with app.acting() as tx:
        if team is not None:
            of_teams.get(tx, team)
        made, code = people.invite(tx, Role.parse(role), by="cli", team_id=team, days=days)
    with app.open() as hold:
        link = f"{_address(app, hold)}/invitation#{code}"
    if as_json:
        print_json({"id": made.id, "role": made.role.value, "link": link, "expiresAt": iso(made.expires_at)})
        return
    click.echo(f"For one person, until {when(made.expires_at)}:", err=True)
    click.echo(link)


@users.command("change")
@click.argument("login")
@click.option("--role", help="owner, admin, member or viewer.")
@click.option("--name", help="How they are called.")
@click.option("--password", is_flag=True, help="Ask for a new password; they are logged out everywhere.")
@click.option("--disable/--enable", default=None, help="Keep them out at once, or let them in again.")
@pass_app
def change(
    app: App, login: str, role: str | None, name: str | None, password: bool, disable: bool | None
) -> None:
    """Change somebody's role, name or password, or keep them out.

    \b
    Example:
      holdfast users change ada --disable
    """
    from holdfast.gateway import page_sessions
    from holdfast.people import Role
    from holdfast.people import users as people

    new = people.hashed(_asked_password()) if password else None
    with app.acting() as tx:
        user = people.get(tx, login)
        given = None if role is None else Role.parse(role)
        done = people.change(tx, user, name=name, role=given, password=new, disabled=disable)
        if new is not None or disable:
            page_sessions.end_of_token(tx, user.id)
    click.echo(f"{done.login}: {done.role.value}, {_state(done)}.")


@click.group(cls=Group)
def teams() -> None:
    """People who share a space and agents: list, add, change, remove, join, leave, channel."""


@teams.command("list")
@json_option
@pass_app
def list_teams(app: App, as_json: bool) -> None:
    """The teams, with their space, agents and members."""
    from holdfast.people import teams as of_teams
    from holdfast.people import users as people

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = of_teams.listing(tx)
        logins = {user.id: user.login for user in people.listing(tx)}
    named = [(team, sorted(logins.get(id_, id_) for id_ in team.members)) for team in found]
    if as_json:
        print_json([_team(team, members) for team, members in named])
        return
    rows = [
        (team.id, team.name, team.space_id, ", ".join(team.agents), ", ".join(members), _groups(team))
        for team, members in named
    ]
    empty = "No teams. Make one: holdfast teams add research --agent main"
    print_table(["id", "name", "space", "agents", "members", "channels"], rows, empty=empty)


@teams.command("add")
@click.argument("id_", metavar="ID")
@click.option("--name", help="How it is called; unset: its id.")
@click.option(
    "--agent", "agents", multiple=True, metavar="ID", help="An agent it talks to (may be repeated)."
)
@pass_app
def add_team(app: App, id_: str, name: str | None, agents: tuple[str, ...]) -> None:
    """Make a team with a space of its own.

    \b
    Example:
      holdfast teams add research --agent main
    """
    from holdfast.people import teams as of_teams

    _require_agents(app, agents)
    with app.acting() as tx:
        made = of_teams.add(tx, id_, name=name, agents=agents)
    click.echo(f"Team {made.id} shares the space {made.space_id}.")


@teams.command("change")
@click.argument("id_", metavar="ID")
@click.option("--name", help="How it is called.")
@click.option(
    "--agent", "agents", multiple=True, metavar="ID", help="All of its agents, instead of those it has."
)
@pass_app
def change_team(app: App, id_: str, name: str | None, agents: tuple[str, ...]) -> None:
    """Give a team another name or other agents."""
    from holdfast.people import teams as of_teams

    _require_agents(app, agents)
    with app.acting() as tx:
        done = of_teams.change(tx, id_, name=name, agents=agents or None)
    click.echo(f"Team {done.id}: {done.name}, agents {', '.join(done.agents) or 'none'}.")


@teams.command("remove")
@click.argument("id_", metavar="ID")
@pass_app
def remove_team(app: App, id_: str) -> None:
    """End a team. Its space and all that was said in it stay yours."""
    from holdfast.people import teams as of_teams

    with app.acting() as tx:
        of_teams.remove(tx, id_)
    click.echo(f"There is no team {id_} any more.")


@teams.command("join")
@click.argument("id_", metavar="ID")
@click.argument("login")
@pass_app
def join(app: App, id_: str, login: str) -> None:
    """Take somebody into a team: they may read what is shared with it."""
    _move(app, id_, login, "join")


@teams.command("leave")
@click.argument("id_", metavar="ID")
@click.argument("login")
@pass_app
def leave(app: App, id_: str, login: str) -> None:
    """Take somebody out of a team."""
    _move(app, id_, login, "leave")


@teams.command("channel")
@click.argument("id_", metavar="ID")
@click.argument("address")
@click.option("--remove", is_flag=True, help="It is a group like others again.")
@pass_app
def channel(app: App, id_: str, address: str, remove: bool) -> None:
    """Make a group of a chat service a team's own: its members read it, its agent answers, its budget pays.

    It ends by itself when somebody writes there who is not known as one of the team; say it again then.

    \b
    Example:
      holdfast teams channel research slack:channel:C42
    """
    from holdfast.channels import team_groups

    with app.open() as hold:
        private = hold.settings.is_private
    with app.acting() as tx:
        if remove:
            team_groups.detach(tx, id_, address)
        else:
            team_groups.attach(tx, id_, address, private)
    click.echo(f"{address} is {'a group like others' if remove else 'now of team ' + id_}.")


def _move(app: App, id_: str, login: str, how: Literal["join", "leave"]) -> None:
    from holdfast.people import teams as of_teams
    from holdfast.people import users as people

    with app.acting() as tx:
        (of_teams.join if how == "join" else of_teams.leave)(tx, id_, people.get(tx, login))
    click.echo(f"{login} is {'in' if how == 'join' else 'not in'} team {id_}.")


@click.group(cls=Group)
def audit() -> None:
    """Who did what: list, verify, export."""


@audit.command("list")
@click.option("--act", help="One kind, such as login, token, team or approval.")
@click.option("--actor", help="Such as user:ada or token:laptop.")
@click.option("--target", help="Whom or what it was done to.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 500))
@json_option
@pass_app
def list_acts(
    app: App, act: str | None, actor: str | None, target: str | None, limit: int, as_json: bool
) -> None:
    """The newest acts first."""
    from holdfast.log import audit as trail

    which = trail.ActFilter(act=act, actor=actor, target=target)
    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = trail.listing(tx, which, limit=limit)
    if as_json:
        print_json([each.json() for each in found])
        return
    rows = [
        (each.seq, when(each.at), each.actor, each.act, each.target, _whence(each.surface, each.address))
        for each in found
    ]
    print_table(["no", "when", "who", "act", "what", "from"], rows, empty="Nothing was done yet.")


@audit.command("verify")
@click.option("--digest", help="A digest that was kept elsewhere: it must stand in the trail.")
@pass_app
def verify(app: App, digest: str | None) -> None:
    """See whether any act was changed, taken out or slipped in. Keep the digest it prints elsewhere."""
    from holdfast.log import audit as trail

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = trail.verify(tx)
        kept = digest is None or any(act.digest == digest for act in trail.in_order(tx))
    faults = found.faults + ([] if kept else [f"no act has the digest {(digest or '')[:80]}"])
    for fault in faults:
        click.echo(fault, err=True)
    if faults:
        raise HoldfastError(
            f"the audit trail is not whole: {len(faults)} faults in {found.acts} acts",
            code="audit_broken",
            hint="Compare it with a backup: `holdfast audit export` there and here.",
        )
    click.echo(f"{found.acts} acts, none changed or missing. The last is {found.last_seq}: {found.digest}")


@audit.command("export")
@click.argument("file", type=click.File("w", encoding="utf-8", lazy=False), default="-")
@pass_app
def export(app: App, file: Any) -> None:
    """All acts, one JSON object a line, oldest first."""
    import json

    from holdfast.log import audit as trail

    with app.open() as hold, hold.store.read(OWNER) as tx:
        for act in trail.in_order(tx):
            file.write(f"{json.dumps(act.json(), sort_keys=True, separators=(',', ':'))}\n")


def _require_agents(app: App, agents: tuple[str, ...]) -> None:
    from holdfast.config import load_config

    unknown = sorted(set(agents) - {agent.id for agent in load_config(app.home.config).agent_list})
    if unknown:
        raise InvalidInput(
            f"no agent {unknown[0]!r}", code="unknown_agent", hint="See agents.list in the config."
        )


def _asked_password() -> str:
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return asked


def _address(app: App, hold: Holdfast) -> str:
    """Where people reach the gateway: as the config says, else where it runs."""
    from holdfast.cli.client import find_gateway

    public = hold.settings.gateway.public_url
    return (public or find_gateway(app.home, None).url).rstrip("/")


def _state(user: User) -> str:
    return "may log in" if user.active else "kept out"


def _teams_of(user: User, all_teams: list[Team]) -> str:
    return ", ".join(team.id for team in all_teams if user.id in team.members)


def _whence(surface: str, address: str | None) -> str:
    return surface if address is None else f"{surface} {address}"


def _user(user: User, all_teams: list[Team]) -> dict[str, Any]:
    return {
        "id": user.id,
        "login": user.login,
        "name": user.name,
        "role": user.role.value,
        "teams": [team.id for team in all_teams if user.id in team.members],
        "disabled": not user.active,
    }


def _team(team: Team, members: list[str]) -> dict[str, Any]:
    return {
        "id": team.id,
        "name": team.name,
        "spaceId": team.space_id,
        "agents": list(team.agents),
        "members": members,
        "channels": [{"address": one.address, "exposed": one.exposed} for one in team.channels],
    }


def _groups(team: Team) -> str:
    told = [(one.address, " (others write there)" if one.exposed else "") for one in team.channels]
    return ", ".join(address + more for address, more in told)
