"""Slash commands. `standard_commands()` are those that every Holdfast has; plugins may register more."""

from holdfast.agents.commands import about, sessions
from holdfast.agents.commands.about import about_commands, are_skills_open, use_skill
from holdfast.agents.commands.registry import (
    Called,
    Command,
    CommandContext,
    CommandRegistry,
    Control,
    PassOn,
    Reply,
)

__all__ = [
    "Called",
    "Command",
    "CommandContext",
    "CommandRegistry",
    "Control",
    "PassOn",
    "Reply",
    "are_skills_open",
    "standard_commands",
    "use_skill",
]


def standard_commands() -> CommandRegistry:
    made = CommandRegistry((*sessions.SESSION_COMMANDS, *about.CHOICE_COMMANDS, *sessions.CONTROL_COMMANDS))
    for command in about_commands(made):
        made.register(command)
    return made
