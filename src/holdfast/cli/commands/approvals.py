"""`holdfast approvals`: what agents ask a person for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.output import print_json, print_table, when
from holdfast.cli.root import App, Group, json_option, pass_app
from holdfast.log import OWNER

if TYPE_CHECKING:
    from holdfast.agents.approvals import AllowedCommand, Approval
    from holdfast.agents.approvals.workflow import Decision
    from holdfast.config import Config

PREFIX = "appr-"


@click.group(cls=Group)
def approvals() -> None:
    """What agents ask for: list, approve, deny, allow, audit."""


@approvals.command("list")
@click.option("--all", "every", is_flag=True, help="Also what is decided or ran out of time.")
@click.option("--allowed", "patterns", is_flag=True, help="The command patterns that run unasked, instead.")
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@json_option
@pass_app
def list_(app: App, every: bool, patterns: bool, agent_id: str | None, limit: int, as_json: bool) -> None:
    """What waits for a decision, newest first."""
    from holdfast.agents.approvals import ApprovalStatus, allowlist, requests

    with app.open() as hold, hold.store.read(OWNER) as tx:
        if patterns:
            in_force = [p for p in allowlist.listing(tx, agent_id) if _counts(hold.settings, p)]
            _print_patterns(in_force, as_json)
            return
        found = requests.listing(
            tx,
            status=None if every else ApprovalStatus.PENDING,
            agent_ids=None if agent_id is None else frozenset((agent_id,)),
            limit=limit,
        )
    if as_json:
        print_json([approval_json(each) for each in found])
        return
    rows = [(a.id, a.agent_id, a.status, _shown(a.command), _why(a), when(a.expires_at)) for a in found]
    columns = ["id", "agent", "status", "command", "why", "expires"]
    print_table(columns, rows, empty="Nothing waits for approval.")


@approvals.command()
@click.argument("id_", metavar="ID")
@json_option
@pass_app
def approve(app: App, id_: str, as_json: bool) -> None:
    """Let one call run, once."""
    _told(_decided(app, id_, "approve"), as_json)


@approvals.command()
@click.argument("id_", metavar="ID")
@json_option
@pass_app
def deny(app: App, id_: str, as_json: bool) -> None:
    """Refuse one call."""
    _told(_decided(app, id_, "deny"), as_json)


@approvals.command()
@click.argument("what", metavar="ID|PATTERN")
@click.option("--agent", "agent_id", metavar="ID", help="For this agent; else the default one.")
@click.option("--pattern", metavar="GLOB", help="With an approval's id: allow this pattern.")
@click.option("--remove", is_flag=True, help="Take the pattern back.")
@json_option
@pass_app
def allow(
    app: App, what: str, agent_id: str | None, pattern: str | None, remove: bool, as_json: bool
) -> None:
    """Let commands run unasked from now on.

    With the id of an approval: approve it and allow its like. Else: allow a pattern.

    \b
    Example:
      holdfast approvals allow 'git diff *' --agent work
    """
    from holdfast.agents.approvals import allowlist

    if what.startswith(PREFIX):
        _told(_decided(app, what, "allow", pattern), as_json)
        return
    with app.open() as hold, hold.store.write(OWNER) as tx:
        agent = hold.settings.agent(agent_id or hold.settings.default_agent_id).id
        if remove:
            allowlist.disallow(tx, agent, what, by=_me())
        else:
            what = allowlist.allow(tx, agent, what, by=_me()).pattern
    if as_json:
        print_json({"agentId": agent, "pattern": what, "allowed": not remove})
    else:
        click.echo(f"Agent {agent} {'must ask for' if remove else 'may run'}: {what}")


@approvals.command()
@click.option("--agent", "agent_id", metavar="ID", help="Only of this agent.")
@click.option("--before", type=int, metavar="SEQ", help="Older than this record: the next page.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@json_option
@pass_app
def audit(app: App, agent_id: str | None, before: int | None, limit: int, as_json: bool) -> None:
    """Every decision on a call, newest first: what ran or was refused, by which rule, who decided."""
    from holdfast.agents.approvals import audit as account
    from holdfast.clock import iso

    with app.open() as hold, hold.store.read(OWNER) as tx:
        found = account.listing(
            tx, agent_ids=None if agent_id is None else frozenset((agent_id,)), before=before, limit=limit
        )
    if as_json:
        print_json(
            [
                {
                    "seq": r.seq,
                    "at": iso(r.created_at),
                    "event": r.event,
                    "agentId": r.agent_id,
                    "sessionKey": r.session_key,
                    "tool": r.tool,
                    "command": r.command,
                    "rule": r.rule,
                    "reason": r.reason,
                    "actor": r.actor,
                    "approvalId": r.approval_id,
                }
                for r in found
            ]
        )
        return
    rows = [
        (r.seq, when(r.created_at), r.event, r.agent_id, r.tool, _shown(r.command), r.rule, r.actor)
        for r in found
    ]
    columns = ["seq", "at", "event", "agent", "tool", "command", "rule", "by"]
    print_table(columns, rows, empty="No call was decided on yet.")


def approval_json(approval: Approval) -> dict[str, Any]:
    from holdfast.clock import iso

    def time(at: int | None) -> str | None:
        return None if at is None else iso(at)

    return {
        "id": approval.id,
        "agentId": approval.agent_id,
        "sessionKey": approval.session_key,
        "turnId": approval.turn_id,
        "tool": approval.tool,
        "command": approval.command,
        "arguments": dict(approval.arguments),
        "reason": approval.reason,
        "files": approval.file_names,
        "whyNotAlways": approval.why_not_always,
        "status": approval.status,
        "decidedBy": approval.decided_by,
        "decidedAt": time(approval.decided_at),
        "usedAt": time(approval.used_at),
        "expiresAt": iso(approval.expires_at),
        "createdAt": iso(approval.created_at),
    }


def _why(approval: Approval) -> str:
    """Why it is asked for, and why only once."""
    once = approval.why_not_always
    return approval.reason if once is None else f"{approval.reason} (only once: {once})"


def _print_patterns(found: list[AllowedCommand], as_json: bool) -> None:
    from holdfast.clock import iso

    if as_json:
        rows = [
            {
                "agentId": each.agent_id,
                "pattern": each.pattern,
                "source": each.source,
                "lastUsedAt": None if each.last_used_at is None else iso(each.last_used_at),
                "lastUsedCommand": each.last_used_command,
            }
            for each in found
        ]
        print_json(rows)
        return
    cells = [(p.agent_id, p.pattern, p.source, when(p.last_used_at), p.last_used_command) for p in found]
    columns = ["agent", "pattern", "by", "last used", "with"]
    print_table(columns, cells, empty="No patterns but those of the config (tools.exec.allowlist).")


def _counts(config: Config, allowed: AllowedCommand) -> bool:
    """A pattern of the config leaves the stamp of its last use behind when it is taken out there."""
    from holdfast.agents.policy import exec_settings

    known = allowed.agent_id in {agent.id for agent in config.agent_list}
    if allowed.source == "person" or not known:
        return allowed.source == "person"
    return allowed.pattern in exec_settings(config, allowed.agent_id).allowlist


def _shown(command: str) -> str:
    """To the letter on one line: where a line ends, another command may begin."""
    from holdfast.cli.output import exact

    return exact(command).replace("\n", "\\n")


def _told(done: Approval, as_json: bool) -> None:
    if as_json:
        print_json(approval_json(done))
    else:
        click.echo(f"{done.status}: {_shown(done.command)}")


def _decided(app: App, id_: str, decision: Decision, pattern: str | None = None) -> Approval:
    from holdfast.agents.approvals import workflow
    from holdfast.log import Origin

    who = workflow.the_owner(_me())
    with app.open() as hold, hold.store.write(OWNER) as tx:
        tx.origin = Origin("cli")
        return workflow.decide(tx, hold.settings.teams, who, id_, decision, pattern=pattern)


def _me() -> str:
    import getpass

    try:
        return f"cli:{getpass.getuser()}"
    except (OSError, KeyError):
        return "cli"
