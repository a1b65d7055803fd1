"""Skills as slash commands: safe names, no two alike, none that hides a command of ours."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.agents.skills.skill import Skill

MAX_NAME: Final = 32


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """`/name` runs a skill: through the agent, or straight to `tool` where the skill says so."""

    name: str
    skill: str
    description: str
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class Invocation:
    command: SlashCommand
    argument: str


def slash_commands(skills: Iterable[Skill], taken: Iterable[str] = ()) -> tuple[SlashCommand, ...]:
    """A command for each skill that users may call; a name that is taken gets a number."""
    used = {name.lower().lstrip("/") for name in taken}
    made: list[SlashCommand] = []
    for skill in skills:
        if not skill.user_invocable:
            continue
        name = _free(sanitised(skill.name), used)
        used.add(name)
        made.append(SlashCommand(name, skill.name, skill.description[:100], skill.dispatch_tool))
    return tuple(made)


def invoked(text: str, commands: Iterable[SlashCommand]) -> Invocation | None:
    """The skill that a message calls, with what was typed behind its name."""
    match = re.fullmatch(r"\s*/([A-Za-z0-9_]+)(?:\s+(.*))?", text, re.DOTALL)
    if match is None:
        return None
    by_name = {command.name: command for command in commands}
    command = by_name.get(match[1].lower())
    return None if command is None else Invocation(command, (match[2] or "").strip())


def sanitised(name: str) -> str:
    """Lower case letters, digits and single underscores: what every chat takes as a command."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:MAX_NAME].strip("_") or "skill"


def _free(name: str, used: set[str]) -> str:
    if name not in used:
        return name
    for number in range(2, 10_000):
        ending = f"_{number}"
        found = name[: MAX_NAME - len(ending)] + ending
        if found not in used:
            return found
    raise AssertionError("ten thousand skills with one name")
