"""Commands that tell what there is, and that choose a model and how much it thinks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

from holdfast.agents.commands.registry import Command, CommandContext, CommandRegistry, PassOn, Reply
from holdfast.agents.policy import decide, explain, policy_of
from holdfast.agents.tools import settings
from holdfast.config.agents import Thinking
from holdfast.context import ToolCall
from holdfast.errors import InvalidInput, NotFound
from holdfast.ids import uuid7
from holdfast.log import SYSTEM, Session, sessions

if TYPE_CHECKING:
    from holdfast.agents.skills import SlashCommand
    from holdfast.agents.tools.types import Caller


def help_with(commands: CommandRegistry) -> Command:
    async def help_(context: CommandContext, args: str) -> Reply:
        lines = [f"/{c.name}{' ' + c.usage if c.usage else ''} — {c.help}" for c in commands.listed]
        lines += [f"/{s.name} — {s.description}" for s in await _skill_commands(context, commands.names)]
        return Reply("\n".join(lines), {"commands": [c.name for c in commands.listed]})

    return Command("help", "All commands.", help_, aliases=("commands",))


async def tools(context: CommandContext, args: str) -> Reply:
    """Without a name what may be used; with one what each layer of the policy says of it."""
    caller = _caller(context)
    if args:
        return _explained(context, caller, args)
    offered = context.parts.tools.offered(caller, policy_of(caller.config, caller.agent_id))
    lines = [f"{spec.name} — {' '.join(spec.description.split())[:100]}" for spec in offered]
    return Reply("\n".join(lines) or "No tools are allowed here.", {"tools": [s.name for s in offered]})


def _explained(context: CommandContext, caller: Caller, name: str) -> Reply:
    from holdfast.agents.tools.settings import situation_of

    tool = context.parts.tools.get(name).name
    decision = decide(tool, policy_of(caller.config, caller.agent_id), situation_of(caller))
    data = {"tool": tool, "allowed": decision.allowed, "layer": decision.layer}
    return Reply("\n".join(explain(decision)), data)


async def whoami(context: CommandContext, args: str) -> Reply:
    ask = context.ask
    sender = ask.sender or "someone at the command line or the API"
    text = f"{sender}{', owner' if ask.owner else ''} · {context.session.key}"
    return Reply(text, {"sender": ask.sender, "owner": ask.owner})


def skill_with(commands: CommandRegistry) -> Command:
    async def skill(context: CommandContext, args: str) -> Reply | PassOn:
        name, _, rest = args.partition(" ")
        known = await _skill_commands(context, commands.names)
        if not name:
            listed = "\n".join(f"/{one.name} — {one.description}" for one in known)
            return Reply(listed or "There are no skills here.", {"skills": [one.skill for one in known]})
        found = next((one for one in known if name.lower() in (one.skill.lower(), one.name)), None)
        if found is None:
            raise NotFound(f"no skill {name[:64]!r}", code="unknown_skill", hint="See /skill.")
        return await use_skill(context, found, rest.strip())

    return Command("skill", "List skills, or use one.", skill, "[name] [input]", aliases=("skills",))


def are_skills_open(context: CommandContext) -> bool:
    """Whether those who hear the session may use the agent's skills; others are not even told of them."""
    return settings.open_to(context.parts.config(), context.session.audience).skills


async def use_skill(context: CommandContext, command: SlashCommand, args: str) -> Reply | PassOn:
    """Through the agent, which is told to read it; or straight to a tool where the skill says so."""
    if command.tool is None:
        told = f"The user calls the skill {command.skill}: read it with skill_read and follow it."
        return PassOn(f"/{command.name} {args}".strip() + f"\n\n[{told}]")
    caller = _caller(context)
    call = ToolCall(f"command-{uuid7()}", command.tool, arguments_for(context, command.tool, args))
    results = await context.parts.tools.run_all(caller, [call], lambda _: None)
    return Reply(
        results[0].text, {"skill": command.skill, "tool": command.tool, "isError": results[0].is_error}
    )


def arguments_for(context: CommandContext, tool: str, args: str) -> dict[str, Any]:
    """What was typed, as the tool takes it: an object as it is, else text for its one main field."""
    if args.startswith("{"):
        try:
            given = json.loads(args)
        except ValueError as error:
            raise InvalidInput(
                f"not a JSON object: {error}", hint="Type plain text, or whole JSON."
            ) from error
        return dict(given)
    schema = context.parts.tools.get(tool).spec.parameters
    fields = list(schema.get("properties", {}))
    main = ["command"] if "command" in fields else [*schema.get("required", ()), *fields]
    return {main[0]: args} if main and args else {}


async def _skill_commands(context: CommandContext, taken: tuple[str, ...]) -> tuple[SlashCommand, ...]:
    room = context.parts.skills
    if room is None or not are_skills_open(context):
        return ()
    return await context.parts.threads(lambda: room().commands(context.to.agent_id, taken))


def _caller(context: CommandContext) -> Caller:
    from holdfast.agents.loop.accepting import terms_of
    from holdfast.agents.loop.planning import caller_of

    parts = context.parts
    config = parts.config()
    settings = config.agent(context.to.agent_id)
    own = (context.session.meta or {}).get("model")
    about = parts.models.about(parts.models.choice(settings, own)[0])
    workspace = parts.workspace(context.to.agent_id)
    terms = terms_of(context.ask, context.to, context.session.audience)
    return caller_of(config, context.session, terms, workspace, about)


def about_commands(commands: CommandRegistry) -> tuple[Command, ...]:
    return (
        help_with(commands),
        skill_with(commands),
        Command("tools", "Tools that may be used here, or why one may or may not.", tools, "[name]"),
        Command("whoami", "Who you are here.", whoami),
    )


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


CHOICE_COMMANDS = (
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
