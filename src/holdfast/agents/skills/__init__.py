"""Skills: instructions for particular jobs, found in four tiers, offered when what they need is there.

room = SkillRoom(home, settings=lambda: config.current, workspace=hold.workspace)
room.prompt("main").text
"""

from holdfast.agents.skills.catalogue import Broken, Catalogue, Found, Root, roots
from holdfast.agents.skills.installed import (
    Installed,
    Update,
    install,
    installed,
    mark_of,
    update,
    update_all,
)
from holdfast.agents.skills.needs import Checked, InstallPlan, Reason, Surroundings, carry_out, check, plan
from holdfast.agents.skills.registry import Registry, Release, publish
from holdfast.agents.skills.room import (
    Invocation,
    SkillList,
    SkillRoom,
    SlashCommand,
    invoked,
    skill_list,
    slash_commands,
    surroundings,
)
from holdfast.agents.skills.skill import InstallSpec, Requirements, Skill, Tier, parse_skill

__all__ = [
    "Broken",
    "Catalogue",
    "Checked",
    "Found",
    "InstallPlan",
    "InstallSpec",
    "Installed",
    "Invocation",
    "Reason",
    "Registry",
    "Release",
    "Requirements",
    "Root",
    "Skill",
    "SkillList",
    "SkillRoom",
    "SlashCommand",
    "Surroundings",
    "Tier",
    "Update",
    "carry_out",
    "check",
    "install",
    "installed",
    "invoked",
    "mark_of",
    "parse_skill",
    "plan",
    "publish",
    "roots",
    "skill_list",
    "slash_commands",
    "surroundings",
    "update",
    "update_all",
]
