"""Commands that choose for this session: its model, and how much it thinks."""

from __future__ import annotations

from typing import Any, get_args

from holdfast.agents.commands.registry import Command, CommandContext, Reply
from holdfast.config.agents import Thinking
from holdfast.errors import InvalidInput
from holdfast.log import SYSTEM, Session, sessions

_LEVELS: tuple[str, ...] = get_args(Thinking)
_BACK = frozenset(("default", "auto", "reset"))


async def model(context: CommandContext, args: str) -> Reply:
    """Without a name it tells; with one it sets; `default` goes back to the config's."""
    parts = context.parts
    settings = parts.config().agent(context.to.agent_id)
    own = (context.session.meta or {}).get("model")
    if not args:
        refs = parts.models.choice(settings, own)
        chosen = " (chosen for this session)" if own else ""
        return Reply(f"Model: {refs[0]}{chosen}", {"model": str(refs[0]), "chosen": bool(own)})
    if args.lower() in _BACK:
        await parts.threads(_set, context, "model", None)
        return Reply(f"Model: {parts.models.choice(settings)[0]}", {"model": None})
    ref = parts.models.choice(settings, args)[0]
    about = parts.models.about(ref)
    await parts.threads(_set, context, "model", str(ref))
    return Reply(f"Model: {ref}, {about.window:,} tokens, until the next /new.", {"model": str(ref)})


async def models(context: CommandContext, args: str) -> Reply:
    """Those that this agent would ask, in their order, and all others that are configured."""
    config = context.parts.config()
    own = (context.session.meta or {}).get("model")
    refs = [str(ref) for ref in context.parts.models.choice(config.agent(context.to.agent_id), own)]
    others = [
        f"{name}/{entry.id}"
        for name, provider in config.models.providers.items()
        for entry in provider.models
    ]
    rest = [name for name in others if name not in refs]
    lines = [f"{'→' if index == 0 else ' '} {name}" for index, name in enumerate(refs)]
    return Reply("\n".join([*lines, *(f"  {name}" for name in rest)]), {"asked": refs, "others": rest})


async def think(context: CommandContext, args: str) -> Reply:
    level = args.lower()
    if not level:
        own = (context.session.meta or {}).get("thinking")
        now = own or context.parts.config().agent(context.to.agent_id).thinking_default or "the model's own"
        return Reply(f"Thinking: {now}. Levels: {', '.join(_LEVELS)}.", {"thinking": own})
    if level in _BACK:
        await context.parts.threads(_set, context, "thinking", None)
        return Reply("Thinking: as configured.", {"thinking": None})
    if level not in _LEVELS:
        raise InvalidInput(f"no such level: {args[:40]!r}", hint=f"Use one of {', '.join(_LEVELS)}, default.")
    await context.parts.threads(_set, context, "thinking", level)
    return Reply(f"Thinking: {level}, until the next /new.", {"thinking": level})


def _set(context: CommandContext, name: str, value: str | None) -> Session:
    with context.parts.store.write(SYSTEM) as tx:
        session = sessions.get(tx, context.session.id)
        kept: dict[str, Any] = {**(session.meta or {}), name: value}
        meta = {key: held for key, held in kept.items() if held is not None}
        return sessions.update(tx, session, meta=meta or None)


COMMANDS = (
    Command(
        "model",
        "Show or choose the model of this session.",
        model,
        "[provider/model | default]",
        owner_only=True,
    ),
    Command("models", "Models that can be used.", models),
    Command(
        "think",
        "Show or choose how much the model thinks.",
        think,
        f"[{' | '.join(_LEVELS)}]",
        aliases=("thinking",),
        owner_only=True,
    ),
)
