"""Commands about the session: afresh, how it stands, what it costs; stop it, go on, let a call run or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from holdfast.agents.approvals import Approval, ApprovalStatus, requests, workflow
from holdfast.agents.approvals.workflow import Decider, Decision
from holdfast.agents.commands.registry import Command, CommandContext, Reply
from holdfast.agents.models.types import ModelFailure, ModelRef
from holdfast.agents.plugin_hooks import before_compaction
from holdfast.clock import iso
from holdfast.context import how_full
from holdfast.errors import Conflict, Forbidden, InvalidInput, NotFound
from holdfast.log import SYSTEM, Origin, Session, Turn, TurnStatus, Tx, agenda, sessions, turns
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
        who = workflow.decider(tx, ask.sender, owner=ask.owner)
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
    found = [one for one in requests.listing(tx, limit=requests.MAX_PAGE) if one.id == id_]
    named = workflow.decidable(tx, settings, who, found)
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


CONTROL_COMMANDS = (
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


DEFAULT_WINDOW: Final = 128_000


async def afresh(context: CommandContext, args: str) -> Reply:
    """`/new` with words behind it never comes here: those are the first message of the new session."""
    text = f"A new session has begun. {context.told}".rstrip()
    return Reply(text, {"sessionId": context.session.id})


async def status(context: CommandContext, args: str) -> Reply:
    parts = context.parts
    session, recent, waiting = await parts.threads(_standing, context)
    settings = parts.config().agent(context.to.agent_id)
    refs = parts.models.choice(settings, (session.meta or {}).get("model"))
    window = window_of(context, refs[0])
    used = session.context_tokens
    full = how_full(settings.compaction, window, counted=used) if window else None
    lines = [
        f"Agent {context.to.agent_id} · session {session.key}",
        f"Model {refs[0]}" + (f", then {', '.join(map(str, refs[1:]))}" if len(refs) > 1 else ""),
        f"Context {used:,}"
        + (f" of {full.room:,} tokens ({full.share:.0%}), " if full else " tokens, ")
        + f"engine {parts.context().slot}, compactions {session.compaction_count}",
        f"Turns {session.turn_count} · tokens in {session.input_tokens:,}, out {session.output_tokens:,}",
    ]
    if waiting:
        lines.append(f"{waiting} waiting or running")
    lines += await parts.threads(_more_lines, context, session)
    if recent is not None and recent.error:
        lines.append(f"Last turn {recent.status}: {recent.error.removeprefix(f'{recent.status}: ')}")
    data = {
        "agentId": context.to.agent_id,
        "sessionKey": session.key,
        "sessionId": session.id,
        "model": str(refs[0]),
        "fallbacks": [str(ref) for ref in refs[1:]],
        "contextTokens": used,
        "window": window,
        "usedPercent": None if full is None else round(full.share * 100),
        "turns": session.turn_count,
        "compactions": session.compaction_count,
        "live": waiting,
    }
    return Reply("\n".join(lines), data)


async def usage(context: CommandContext, args: str) -> Reply:
    found = await context.parts.threads(_turns_of, context)
    costs = [float(t.usage["cost"]) for t in found if t.usage and "cost" in t.usage]
    session = context.session
    lines = [
        f"Tokens in {session.input_tokens:,}, out {session.output_tokens:,}, all {session.total_tokens:,}",
        f"Last {len(found)} turns: " + (f"${sum(costs):.4f}" if costs else "no prices are known"),
    ]
    for turn in found[:5]:
        used = turn.usage or {}
        priced = f", ${float(used['cost']):.4f}" if "cost" in used else ""
        lines.append(
            f"  {turn.number}: in {int(used.get('inputTokens', 0)):,}, "
            f"out {int(used.get('outputTokens', 0)):,}{priced} · {turn.model or turn.trigger}"
        )
    data: dict[str, Any] = {
        "inputTokens": session.input_tokens,
        "outputTokens": session.output_tokens,
        "cost": sum(costs) if costs else None,
        "turns": len(found),
    }
    return Reply("\n".join(lines), data)


def _more_lines(context: CommandContext, session: Session) -> list[str]:
    with context.parts.store.read(SYSTEM) as tx:
        told = [hook.status_line(tx, session) for hook in context.parts.hooks]
        halt = agenda.halted(tx)
    if halt is not None:
        told.insert(0, f"Everything is stopped since {iso(halt.since)} ({halt.reason}) until it is released.")
    return [line for line in told if line]


async def compact(context: CommandContext, args: str) -> Reply:
    parts = context.parts
    session, _, live = await parts.threads(_standing, context)
    if live:
        raise Conflict(
            "a turn is under way in this session", code="session_busy", hint="Wait for it, or /stop."
        )
    settings = parts.config().agent(context.to.agent_id)
    ref = parts.models.choice(settings, (session.meta or {}).get("model"))[0]
    parts.plugin_hooks.tell(before_compaction(context.session, "manual"))
    result = await parts.context().compact(
        session,
        window=window_of(context, ref) or DEFAULT_WINDOW,
        reason="manual",
        force=True,
        current_tokens=session.context_tokens or None,
        instructions=args or None,
    )
    words = {
        "compacted": f"Compacted: {result.tokens_before:,} → {result.tokens_after:,} tokens.",
        "nothing_to_do": "There is nothing to compact yet.",
    }
    text = words.get(str(result.outcome), f"Not compacted: {result.reason}.")
    return Reply(text, {"outcome": str(result.outcome), "reason": result.reason})


async def shown(context: CommandContext, args: str) -> Reply:
    """What the model was last given, section by section."""
    try:
        stored = await context.parts.threads(context.parts.context().stored, context.session)
    except NotFound:
        return Reply("No model has been called in this session yet.")
    account = stored.manifest
    lines = [f"Turn {account.number}, {account.model}: {account.used:,} of {account.window:,} tokens"]
    lines += [f"  {s.tokens:>7,}  {s.name} ({s.trust})" for s in account.sections]
    lines += [f"! {warning}" for warning in account.warnings]
    return Reply("\n".join(lines), {"used": account.used, "window": account.window, "turn": account.number})


def window_of(context: CommandContext, ref: ModelRef) -> int | None:
    """The window of a model as this agent may use it; None for one that is not configured."""
    cap = context.parts.config().agent(context.to.agent_id).context_tokens
    try:
        window = context.parts.models.about(ref).window
    except ModelFailure:
        return cap
    return window if cap is None else min(cap, window)


def _standing(context: CommandContext) -> tuple[Session, Turn | None, int]:
    with context.parts.store.read(SYSTEM) as tx:
        session = sessions.get(tx, context.session.id)
        recent = [t for t in turns.listing(tx, session.id, limit=20) if t.trigger != "command"]
        return (
            session,
            recent[0] if recent else None,
            len(agenda.listing(tx, kinds=turns.KINDS, lane=session.key)),
        )


def _turns_of(context: CommandContext) -> list[Turn]:
    with context.parts.store.read(SYSTEM) as tx:
        found = turns.listing(tx, context.session.id, limit=500)
        return [turn for turn in found if turn.usage]


SESSION_COMMANDS = (
    Command(
        "new",
        "Begin a new session; words behind it are its first message.",
        afresh,
        "[message]",
        owner_only=True,
    ),
    Command("reset", "The same as /new.", afresh, "[message]", owner_only=True),
    Command("status", "How this session stands: model, context, turns.", status),
    Command("usage", "Tokens and cost of this session.", usage, aliases=("tokens",)),
    Command("compact", "Summarise older history now.", compact, "[what to keep]", owner_only=True),
    Command("context", "What the model was last given, section by section.", shown),
)
