"""Commands about the session: afresh, how it stands, what it costs, what the model sees of it."""

from __future__ import annotations

from typing import Any, Final

from holdfast.agents.commands.registry import Command, CommandContext, Reply
from holdfast.agents.models.types import ModelFailure, ModelRef
from holdfast.agents.plugin_hooks import before_compaction
from holdfast.clock import iso
from holdfast.context import how_full
from holdfast.errors import Conflict, NotFound
from holdfast.log import SYSTEM, Session, Turn, agenda, sessions, turns

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


COMMANDS = (
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
