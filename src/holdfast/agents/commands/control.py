"""Commands that decide about what runs: stop it, go on with it, let a call run or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.agents.approvals import Approval, ApprovalStatus, allow_always, requests
from holdfast.agents.commands.registry import Command, CommandContext, Reply
from holdfast.errors import InvalidInput, NotFound
from holdfast.log import SYSTEM, TurnStatus, Tx, turns

_SHORTEST: Final = 4  # less than that is a number in a list, or a slip
Decide = Callable[[Tx, Approval], Approval]


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

    def decide(tx: Tx, waiting: Approval) -> Approval:
        if always:
            return allow_always(tx, waiting.id, by=_who(context), pattern=pattern.strip() or None)
        return requests.approve(tx, waiting.id, by=_who(context))

    done = await context.parts.threads(_decided, context, id_, decide)
    return Reply(
        f"Approved{' for good' if always else ''}: {done.command}", {"id": done.id, "status": "approved"}
    )


async def deny(context: CommandContext, args: str) -> Reply:
    def decide(tx: Tx, waiting: Approval) -> Approval:
        return requests.deny(tx, waiting.id, by=_who(context))

    done = await context.parts.threads(_decided, context, args.strip(), decide)
    return Reply(f"Denied: {done.command}", {"id": done.id, "status": "denied"})


def _decided(context: CommandContext, id_: str, decide: Decide) -> Approval:
    with context.parts.store.write(SYSTEM) as tx:
        return decide(tx, _waiting(tx, context, id_))


def _waiting(tx: Tx, context: CommandContext, id_: str) -> Approval:
    """The approval that is meant: by its id or the end of it, else the only one of this session that waits.

    What another session asks for was not shown here, so that nobody says yes to it unread.
    """
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


def _who(context: CommandContext) -> str:
    return context.ask.sender or "owner"


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
    Command(
        "approve", "Let a call run that waits for it.", approve, "[id] [always [pattern]]", owner_only=True
    ),
    Command("deny", "Refuse a call that waits for approval.", deny, "[id]", owner_only=True),
)
