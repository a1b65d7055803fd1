"""The skills of each agent as the rest of the system asks for them; all settings are read where used."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.agents.skills.catalogue import Catalogue, Found, roots
from holdfast.agents.skills.commands import SlashCommand, slash_commands
from holdfast.agents.skills.gating import Checked, Surroundings, check
from holdfast.agents.skills.prompt import SkillList, skill_list
from holdfast.agents.skills.skill import Skill
from holdfast.config import public_dump
from holdfast.errors import Forbidden

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.home import Home


class SkillRoom:
    """Finds, gates and lists skills. Every call sees the files and the config as they are now."""

    def __init__(
        self,
        home: Home,
        settings: Callable[[], Config],
        workspace: Callable[[str], Path],
        plugins: Callable[[], Iterable[Path]] = tuple,
    ) -> None:
        self._home = home
        self._settings = settings
        self._workspace = workspace
        self._plugins = plugins
        self._catalogue = Catalogue()

    def found(self, agent_id: str) -> Found:
        """All skills that there are, whether or not they can be used."""
        extra = (Path(path).expanduser() for path in self._settings().skills.load.extra_dirs)
        places = roots(
            workspace=self._workspace(agent_id),
            managed=self._home.skills,
            plugins=self._plugins(),
            extra=extra,
        )
        return self._catalogue.load(places)

    def checked(self, agent_id: str) -> tuple[Checked, ...]:
        """Every skill with what stands in its way."""
        config = self._settings()
        around = surroundings(config)
        only = config.agent(agent_id).skills
        return tuple(check(skill, config.skills, around, only) for skill in self.found(agent_id).skills)

    def eligible(self, agent_id: str) -> tuple[Skill, ...]:
        return tuple(each.skill for each in self.checked(agent_id) if each.eligible)

    def prompt(self, agent_id: str, max_chars: int | None = None) -> SkillList:
        """The list for the system prompt; `max_chars` is what the model's window allows."""
        budget = self._settings().skills.prompt
        most = budget.max_chars if max_chars is None else min(budget.max_chars, max_chars)
        return skill_list(self.eligible(agent_id), max_chars=most, max_skills=budget.max_skills)

    def commands(self, agent_id: str, taken: Iterable[str] = ()) -> tuple[SlashCommand, ...]:
        return slash_commands(self.eligible(agent_id), taken)

    def read(self, agent_id: str, name: str) -> Skill:
        """A skill to be used, for `skill_read`; one that is gated says why instead."""
        skill = self.found(agent_id).get(name)
        config = self._settings()
        state = check(skill, config.skills, surroundings(config), config.agent(agent_id).skills)
        if not state.eligible:
            why = "; ".join(reason.text for reason in state.reasons)
            raise Forbidden(f"skill {name} cannot be used: {why}", code="skill_gated")
        return skill

    def env(self, agent_id: str) -> dict[str, str]:
        """What the config gives to commands on behalf of the skills that are in use."""
        entries = self._settings().skills.entries
        found: dict[str, str] = {}
        for skill in self.eligible(agent_id):
            entry = entries.get(skill.name)
            if entry is None:
                continue
            found |= {name: secret.reveal(os.environ) for name, secret in entry.env.items()}
            if entry.api_key is not None and skill.primary_env is not None:
                found.setdefault(skill.primary_env, entry.api_key.reveal(os.environ))
        return found


def surroundings(config: Config) -> Surroundings:
    """This machine and this config; secrets stay masked, since only whether a key is set counts."""
    return Surroundings(env=os.environ, config=public_dump(config))
