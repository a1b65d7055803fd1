"""`holdfast channels`: where people write to agents, and who may."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table
from holdfast.cli.root import App, Group, json_option, pass_app

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.channels import ChannelAdmin
    from holdfast.plugins import Found
    from holdfast.runtime import Holdfast

channel_option = click.option("--channel", metavar="ID", help="Only this channel's.")


@click.group(cls=Group)
def channels() -> None:
    """Where people write to agents: add, list, pair, send, deliveries."""


@channels.command("list")
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Every channel: whether it is connected, when something came and went, what is still on its way."""
    with app.open() as hold:
        found: list[dict[str, Any]] = [
            {**told, **_surfaces(hold, told["name"])} for told in _office(hold).listing()
        ]
    if as_json:
        print_json(found)
        return
    rows = [
        (
            told["name"],
            told["state"],
            told["adapter"],
            _minute(told["lastInboundAt"]),
            _minute(told["lastOutboundAt"]),
            told["pendingDeliveries"],
            told["waitingPairings"],
            ", ".join(told["private"]) or None,
        )
        for told in found
    ]
    columns = ["channel", "state", "by", "last in", "last out", "pending", "to pair", "private"]
    print_table(columns, rows, empty="No channels. Add one under `channels` in the config.")
    for told in found:
        for one in told["exposed"]:
            who = f"{one['sender']} wrote there first at {_minute(one['exposedAt'])}"
            click.echo(f"{told['name']} {one['id']} is read by others: {who}.")


@channels.command()
@click.argument("service")
@click.option("--name", metavar="NAME", help="What the channel is called; unset: as the service.")
@click.option("--account", metavar="NAME", help="Add it as one of several accounts of the channel.")
@click.option("--owner", multiple=True, metavar="ID", help="Your own id there; may be given several times.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE", help="An option; else it is asked for."
)
@click.option("--check/--no-check", default=True, help="Whether it is tried before it is written.")
@json_option
@pass_app
def add(
    app: App,
    service: str,
    name: str | None,
    account: str | None,
    owner: tuple[str, ...],
    options: tuple[str, ...],
    check: bool,
    as_json: bool,
) -> None:
    """Connect a chat service: asks for what it needs, tries it, and writes it to the config.

    A secret may be written as ${NAME}: it is then taken from the environment of the gateway.

    \b
    Example:
      holdfast channels add telegram --owner 7001
    """
    from holdfast.runtime.adding_channels import Wanted, added, service_of

    with app.open() as hold:
        told = _asked_options(service_of(service), _read_options(options))
        wanted = Wanted(service, name, account, owner, told)
        called, who = wanted.called, added(hold, wanted, check=check)
    if as_json:
        print_json({"name": called, "service": service, "account": account, "connectedAs": who})
    else:
        known = f" It is {who} there." if who else ""
        click.echo(f"Channel {called} is added.{known} It is connected when the gateway starts next.")


def _asked_options(found: Found, given: Mapping[str, str]) -> dict[str, str]:
    """What the service needs: as given, else as somebody answers who is asked."""
    assert found.manifest is not None
    told = dict(given)
    for option in found.manifest.options:
        if option.name not in told:
            said = click.prompt(
                option.ask, default=option.default, hide_input=option.secret, show_default=False
            )
            told[option.name] = str(said)
    return told


def _read_options(pairs: tuple[str, ...]) -> dict[str, str]:
    """`name=value` as it was typed."""
    from holdfast.errors import InvalidInput

    wrong = next((pair for pair in pairs if "=" not in pair), None)
    if wrong is not None:
        raise InvalidInput(f"not an option: {wrong[:80]!r}", hint="Write it as name=value.")
    return {name: value for name, _, value in (pair.partition("=") for pair in pairs)}


@channels.command()
@click.argument("channel")
@click.argument("id_", metavar="ID|*")
@click.option("--remove", is_flag=True, help="It is read by others too.")
@json_option
@pass_app
def private(app: App, channel: str, id_: str, remove: bool, as_json: bool) -> None:
    """Say that only you read and write in a group or channel: it is then treated as your own chat.

    It ends by itself when somebody else writes there; say it again to take it back. `*` stands for every
    group of the channel in which nobody else was seen. The channel may be another program's that logs here.

    \b
    Example:
      holdfast channels private discord 1187
    """
    from holdfast.errors import InvalidInput, NotFound

    if ":" in channel or len(channel.split()) != 1:
        hint = "Use its name as it stands in the keys of sessions."
        raise InvalidInput(f"not a channel: {channel[:80]!r}", hint=hint)
    with app.open() as hold:
        known = hold.settings.channels.get(channel)
        declared = () if known is None else known.private
        if remove and id_ not in declared:
            hint = "See `holdfast channels list` for those that are."
            said = f"{channel[:80]} {id_[:80]} is not declared private"
            raise NotFound(said, code="not_private", hint=hint)
        kept = [one for one in declared if one != id_] + ([] if remove else [id_])
        hold.config.patch({"channels": {channel: {"private": kept}}})
        if not remove:
            _reclaim(hold, channel, id_)
        told = {"name": channel} | _surfaces(hold, channel)
    if as_json:
        print_json(told)
    else:
        click.echo(f"{channel} {id_} is {'read by others' if remove else 'yours alone'}.")


@channels.command()
@click.option("--status", type=click.Choice(["pending", "delivered", "failed"]), help="Only those.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@json_option
@pass_app
def deliveries(app: App, status: str | None, limit: int, as_json: bool) -> None:
    """What is on its way to people, what arrived and what failed; the newest first."""
    from holdfast.log.outbox import DeliveryStatus

    with app.open() as hold:
        wanted = None if status is None else DeliveryStatus(status)
        found = _office(hold).deliveries(status=wanted, limit=limit)
    if as_json:
        print_json(found)
        return
    rows = [
        (d["id"], d["target"], d["status"], d["attempts"], _minute(d["updatedAt"]), d["error"]) for d in found
    ]
    print_table(["delivery", "target", "status", "attempts", "at", "error"], rows, empty="No deliveries.")


@channels.command()
@click.argument("target")
@click.argument("text")
@json_option
@pass_app
def send(app: App, target: str, text: str, as_json: bool) -> None:
    """Say something to a chat. It goes out where a gateway serves this home.

    \b
    Example:
      holdfast channels send slack:dm:U7 "The build is green."
    """
    with app.open() as hold:
        made = _office(hold).send(target, text)
    if as_json:
        print_json(made)
    else:
        click.echo(f"{made['id']} is on its way to {made['target']}.")


@channels.group(cls=Group)
def pair() -> None:
    """Who may write directly: list, approve, deny."""


@pair.command("list")
@channel_option
@json_option
@pass_app
def pair_list(app: App, channel: str | None, as_json: bool) -> None:
    """Who waits with a code, and who was let in."""
    with app.open() as hold:
        found = _office(hold).pairings(channel)
    if as_json:
        print_json(found)
        return
    rows = [
        (p["channel"], p["sender"], p["label"], p["status"], p["owner"], p["code"], _minute(p["expiresAt"]))
        for p in found
    ]
    print_table(["channel", "id", "name", "status", "owner", "code", "until"], rows, empty="Nobody.")


@pair.command()
@click.argument("code")
@click.option("--owner", is_flag=True, help="They are you: they may do what is for the owner alone.")
@channel_option
@json_option
@pass_app
def approve(app: App, code: str, owner: bool, channel: str | None, as_json: bool) -> None:
    """Let in who was given this code.

    \b
    Example:
      holdfast channels pair approve K7QM2XWA
    """
    with app.open() as hold:
        _say(_office(hold).approve(code, owner=owner, channel=channel), "may write now", as_json)


@pair.command()
@click.argument("code")
@channel_option
@json_option
@pass_app
def deny(app: App, code: str, channel: str | None, as_json: bool) -> None:
    """Turn away who was given this code, for a week."""
    with app.open() as hold:
        _say(_office(hold).deny(code, channel=channel), "is turned away", as_json)


def _say(pairing: Mapping[str, Any], what: str, as_json: bool) -> None:
    if as_json:
        print_json(pairing)
    else:
        click.echo(f"{pairing['label'] or pairing['sender']} on {pairing['channel']} {what}.")


def _surfaces(hold: Holdfast, channel: str) -> dict[str, Any]:
    """The groups of a channel that are the owner's alone, and those in which others were seen to write."""
    from holdfast.clock import iso
    from holdfast.log import OWNER, surfaces

    known = hold.settings.channels.get(channel)
    with hold.store.read(OWNER) as tx:
        seen = surfaces.of_channel(tx, channel)
    exposed = [{"id": id_, "sender": one.sender, "exposedAt": iso(one.exposed_at)} for id_, one in seen]
    return {"private": [] if known is None else list(known.private), "exposed": exposed}


def _reclaim(hold: Holdfast, channel: str, id_: str) -> None:
    from holdfast.log import OWNER, surfaces

    with hold.store.write(OWNER, ordered=False) as tx:
        for found, one in surfaces.of_channel(tx, channel):
            if found == id_:
                surfaces.reclaim(tx, one.surface)


def _office(hold: Holdfast) -> ChannelAdmin:
    from holdfast.channels import ChannelAdmin

    return ChannelAdmin(hold.store, lambda: hold.settings)


def _minute(at: str | None) -> str | None:
    return None if at is None else at[:16].replace("T", " ")
