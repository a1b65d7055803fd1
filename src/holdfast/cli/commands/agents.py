"""`holdfast agents`: who acts, and which of them a message goes to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.cli.workspaces import workspace_of
from holdfast.errors import Conflict, InvalidInput, NotFound

if TYPE_CHECKING:
    from holdfast.agents import Origin
    from holdfast.config import Config

FACTS = ("channel", "account", "peer", "guild", "team")


@click.group(cls=Group)
def agents() -> None:
    """List, add, remove; which one a message goes to."""


@agents.command("list")
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """The agents of this home."""
    config = _config(app)
    found = [
        {
            "id": agent.id,
            "default": agent.id == config.default_agent_id,
            **_identity(app, config, agent.id),
            "model": config.agent(agent.id).model.primary or "recall",
            "workspace": str(workspace_of(app.home, config, agent.id)),
            "bindings": sum(binding.agent_id == agent.id for binding in config.bindings),
        }
        for agent in config.agent_list
    ]
    if as_json:
        print_json(found)
    else:
        columns = ["id", "default", "name", "emoji", "model", "bindings", "workspace"]
        rows = [[(row | row["identity"])[name] for name in columns] for row in found]
        print_table(columns, rows, empty="No agents.")


def _identity(app: App, config: Config, agent_id: str) -> dict[str, Any]:
    """What the config and the agent's IDENTITY.md say, together."""
    from dataclasses import asdict

    from holdfast.context import FileReader, Workspace

    entry = config.agent(agent_id)
    found = Workspace(workspace_of(app.home, config, agent_id), FileReader()).identity(entry)
    return {"name": found.name, "identity": asdict(found)}


@agents.command()
@click.argument("agent_id", metavar="ID")
@click.option("--name", help="Display name.")
@click.option("--model", help="provider/model; else that of agents.defaults.")
@click.option("--workspace", metavar="DIR", help="Its workspace; else workspace-ID in the home.")
@click.option("--default", "is_default", is_flag=True, help="Let it answer what no binding claims.")
@json_option
@pass_app
def add(
    app: App,
    agent_id: str,
    name: str | None,
    model: str | None,
    workspace: str | None,
    is_default: bool,
    as_json: bool,
) -> None:
    """Add an agent to the config and make its workspace.

    \b
    Example:
      holdfast agents add work --model openai/gpt-5
    """
    from holdfast.keys import canonical_agent_id
    from holdfast.templates import write_workspace

    id_ = canonical_agent_id(agent_id)
    config = _config(app)
    if id_ in {agent.id for agent in config.agent_list}:
        raise Conflict(f"there is an agent {id_!r} already", hint="See `holdfast agents list`.")
    listed = _listed(app, config)
    if is_default:
        listed = [{key: value for key, value in agent.items() if key != "default"} for agent in listed]
    given = {"name": name, "model": model, "workspace": workspace, "default": is_default or None}
    listed.append({"id": id_} | {key: value for key, value in given.items() if value is not None})
    after = _patch(app, listed)
    folder = workspace_of(app.home, after, id_)
    write_workspace(folder)
    if as_json:
        print_json({"id": id_, "workspace": str(folder)})
    else:
        click.echo(f"Agent {id_} is there, with its workspace in {folder}.")


@agents.command()
@click.argument("agent_id", metavar="ID")
@json_option
@pass_app
def remove(app: App, agent_id: str, as_json: bool) -> None:
    """Take an agent out of the config. Its workspace and sessions stay where they are."""
    config = _config(app)
    if agent_id not in {agent.id for agent in config.agent_list}:
        raise NotFound(f"no agent {agent_id[:80]!r}", hint="See `holdfast agents list`.")
    if agent_id == config.default_agent_id:
        raise Conflict(
            f"{agent_id} is the default agent", hint="Make another the default in holdfast.json first."
        )
    bound = sum(binding.agent_id == agent_id for binding in config.bindings)
    if bound:
        raise Conflict(f"{bound} bindings lead to {agent_id}", hint="Take them out of holdfast.json first.")
    _patch(app, [agent for agent in _listed(app, config) if agent.get("id") != agent_id])
    folder = workspace_of(app.home, config, agent_id)
    if as_json:
        print_json({"id": agent_id, "removed": True, "workspace": str(folder)})
    else:
        click.echo(f"Agent {agent_id} is gone from the config. Its files stay in {folder}.")


@agents.command()
@click.option("--explain", "asked", is_flag=True, help="Say where a message with these facts goes, and why.")
@click.argument("facts", nargs=-1, metavar="[channel=… account=… peer=KIND:ID guild=… team=…]")
@json_option
@pass_app
def bindings(app: App, asked: bool, facts: tuple[str, ...], as_json: bool) -> None:
    """The bindings, or the way of one message through them.

    \b
    Example:
      holdfast agents bindings --explain channel=discord peer=dm:123
    """
    config = _config(app)
    if asked or facts:
        _explain(config, _origin(facts), as_json)
        return
    found = [binding.model_dump(by_alias=True, mode="json", exclude_none=True) for binding in config.bindings]
    if as_json:
        print_json(found)
        return
    rows = [
        (n, each["agentId"], _match_text(each["match"]), each.get("enabled", True), each.get("comment"))
        for n, each in enumerate(found)
    ]
    empty = f"No bindings: everything goes to {config.default_agent_id}."
    print_table(["#", "agent", "match", "on", "comment"], rows, empty=empty)


def _explain(config: Config, origin: Origin, as_json: bool) -> None:
    from holdfast.agents import explain, route

    decision = route(origin, config.bindings, config.agent_list)
    lines = explain(decision)
    if as_json:
        print_json(
            {"agentId": decision.agent_id, "rule": decision.rule, "binding": decision.binding, "why": lines}
        )
    else:
        click.echo("\n".join(lines))


def _origin(facts: tuple[str, ...]) -> Origin:
    from holdfast.agents import Origin

    hint = "Use channel=discord peer=dm:123 guild=… team=… account=…"
    given: dict[str, str] = {}
    for fact in facts:
        name, mark, value = fact.partition("=")
        if name not in FACTS or not mark or not value or name in given:
            raise InvalidInput(f"not a fact of a message: {fact[:80]!r}", hint=hint)
        given[name] = value
    if "channel" not in given:
        raise InvalidInput("the message needs a channel", hint=hint)
    kind, mark, peer = given.get("peer", "").partition(":")
    if "peer" in given and (kind not in ("dm", "group", "channel") or (mark and not peer)):
        raise InvalidInput(
            f"not a peer: {given['peer'][:80]!r}", hint="Use peer=dm:ID, group:ID or channel:ID."
        )
    return Origin(
        channel=given["channel"],
        account_id=given.get("account"),
        peer_kind=kind or None,  # type: ignore[arg-type]
        peer_id=peer or None,
        guild_id=given.get("guild"),
        team_id=given.get("team"),
    )


def _match_text(match: dict[str, Any]) -> str:
    parts = {name: value for name, value in match.items() if name != "peer"}
    peer = match.get("peer") or {}
    parts |= {f"peer.{name}": value for name, value in peer.items()}
    return " ".join(f"{name}={value}" for name, value in parts.items())


def _config(app: App) -> Config:
    from holdfast.config import load_config

    if not app.home.path.is_dir():
        raise NotFound(f"there is no home at {app.home.path}", hint="Make one with `holdfast init`.")
    return load_config(app.home.config)


def _listed(app: App, config: Config) -> list[dict[str, Any]]:
    """`agents.list` as it is written; the agent that stands there unwritten is written first."""
    data = app.config_store().data()
    listed = data.get("agents", {}).get("list") or [{"id": config.default_agent_id, "default": True}]
    return [dict(agent) for agent in listed]


def _patch(app: App, listed: list[dict[str, Any]]) -> Config:
    return app.config_store().patch({"agents": {"list": listed}})
