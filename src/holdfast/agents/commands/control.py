"""Commands that decide about what runs: stop it, go on with it, let a call run or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from holdfast.agents.approvals import Approval, ApprovalStatus, asking, requests, workflow
from holdfast.agents.approvals.workflow import Decider, Decision
from holdfast.agents.commands.registry import Command, CommandContext, Reply
from holdfast.errors import Forbidden, InvalidInput, NotFound
from holdfast.log import SYSTEM, Origin, TurnStatus, Tx, turns
from holdfast.people import contacts

if TYPE_CHECKING:
    from holdfast.agents.loop.asks import Ask

_SHORTEST: Final = 4  # less than that is a number in a list, or a slip


async def stop(context: CommandContext, args: str) -> Reply:
    """`/stop`: every chain that this session has a part in; `/stop all`: every chain of the home."""
    match args.strip().lower():
        case "":
            done = await context.control.stop_session(context.session)
        case "all":
            done = await context.control.stop_all()
        case other:
            raise InvalidInput(f"/stop {other[:60]} is not understood", hint="/stop or /stop all")
    return Reply(done.text, done.json())


async def resume(context: CommandContext, args: str) -> Reply:
    """The last interrupted turn of the session, or the one of that number."""
    run_id = await context.parts.threads(_interrupted, context, args)
    status = await context.control.resume(run_id)
    return Reply(f"Turn {status.turn} goes on.", {"runId": run_id, "turn": status.turn})


async def approve(context: CommandContext, args: str) -> Reply:
    """`/approve [id] [always [pattern]]`; without an id the one that waits."""
    id_, _, rest = args.partition(" ")
    if id_.lower() in ("always", "once"):
        id_, rest = "", args
    word, _, pattern = rest.strip().partition(" ")
    always = word.lower() == "always"

    decision: Decision = "allow" if always else "approve"
    done = await context.parts.threads(_decided, context, id_, decision, pattern.strip() or None)
    if done.status is ApprovalStatus.PENDING:
        return Reply(f"Noted; others must agree too: {done.command}", {"id": done.id, "status": "pending"})
    return Reply(
        f"Approved{' for good' if always else ''}: {done.command}", {"id": done.id, "status": "approved"}
    )


async def deny(context: CommandContext, args: str) -> Reply:
    done = await context.parts.threads(_decided, context, args.strip(), "deny")
    return Reply(f"Denied: {done.command}", {"id": done.id, "status": "denied"})


async def link(context: CommandContext, args: str) -> Reply:
    """`/link <code>`: this direct chat is the code's owner's from now on."""
    name = await context.parts.threads(_linked, context, args.strip())
    return Reply(f"This chat is {name}'s now: what waits for their decision is asked here too.")


def _linked(context: CommandContext, code: str) -> str:
    ask = _proven(context)
    if ask.sender is None or ask.deliver is None or ask.origin is None or ask.origin.peer_kind != "dm":
        raise InvalidInput("only a direct chat can be linked", code="not_direct", hint="Write there.")
    with context.parts.store.write(SYSTEM) as tx:
        tx.origin = Origin(ask.origin.channel)
        return contacts.link(tx, code, ask.sender, ask.deliver.target).name


def _proven(context: CommandContext) -> Ask:
    """What was asked, if its sender is who they say they are: a mail can say that it is from anybody."""
    if not context.ask.proven:
        raise Forbidden(
            "it is not certain who writes here", code="not_proven", hint="Decide on the page, or in a chat."
        )
    return context.ask


def _decided(context: CommandContext, id_: str, decision: Decision, pattern: str | None = None) -> Approval:
    ask = _proven(context)
    with context.parts.store.write(SYSTEM) as tx:
        tx.origin = Origin("chat" if ask.origin is None else ask.origin.channel)
        who = asking.decider(tx, ask.sender, owner=ask.owner)
        waiting = _waiting(tx, context, id_, who)
        return workflow.decide(tx, context.parts.config().teams, who, waiting.id, decision, pattern=pattern)


def _waiting(tx: Tx, context: CommandContext, id_: str, who: Decider) -> Approval:
    """The approval that is meant: by its id or the end of it, else the only one of this session that waits.

    What another session asks for was not shown here, so that nobody says yes to it unread.
    """
    if not who.owner:
        return _theirs(tx, context, id_, who)
    own = frozenset((context.to.agent_id,))
    found = requests.listing(tx, status=ApprovalStatus.PENDING, agent_ids=own)
    if id_:
        named = [one for one in found if one.id == id_ or (len(id_) >= _SHORTEST and one.id.endswith(id_))]
        return named[0] if len(named) == 1 else _not_there(tx, context, id_)
    here = [one for one in found if one.session_key in (None, context.session.key)]
    if len(here) == 1:
        return here[0]
    if not found:
        raise NotFound("nothing waits for approval", code="unknown_approval")
    where = "" if here else " in other sessions"
    listed = "; ".join(f"{one.id}: {one.command[:80]}" for one in (here or found)[:10])
    raise InvalidInput(
        f"{len(here or found)} calls wait{where}: {listed}", hint="Name one: /approve <id> or /deny <id>."
    )


def _theirs(tx: Tx, context: CommandContext, id_: str, who: Decider) -> Approval:
    """Who is not the owner names the call as it was put to them; of others they are told nothing."""
    settings = context.parts.config().teams
    found = requests.listing(tx, limit=requests.MAX_PAGE)
    named = [one for one in found if one.id == id_ and workflow.may_decide(tx, settings, who, one)]
    if not named:
        raise requests.unknown(id_ or "that waits for you")
    return named[0]


def _not_there(tx: Tx, context: CommandContext, id_: str) -> Approval:
    approval = requests.get(tx, id_)
    if approval.agent_id != context.to.agent_id:
        raise requests.unknown(id_)
    return approval


def _interrupted(context: CommandContext, args: str) -> str:
    with context.parts.store.read(SYSTEM) as tx:
        found = turns.listing(tx, context.session.id, limit=200)
    cut = [t for t in found if t.status is TurnStatus.INTERRUPTED and args in ("", str(t.number), t.id)]
    if not cut:
        raise NotFound("no interrupted turn to go on with", code="unknown_turn")
    return cut[0].id


COMMANDS = (
    Command(
        "stop",
        "Stop what runs and waits here, with all that follows from it anywhere; all: everything.",
        stop,
        "[all]",
        aliases=("abort",),
        owner_only=True,
    ),
    Command("resume", "Go on with a turn that was interrupted.", resume, "[turn]", owner_only=True),
    Command("approve", "Let a call run that waits for it.", approve, "[id] [always [pattern]]"),
    Command("deny", "Refuse a call that waits for approval.", deny, "[id]"),
    Command("link", "Make this direct chat yours, by a code from your page.", link, "<code>"),
)
