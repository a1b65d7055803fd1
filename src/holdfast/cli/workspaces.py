"""Where the agents of a home have their workspaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.home import Home


def workspace_of(home: Home, config: Config, agent_id: str) -> Path:
    """As configured, from the home on if it is relative; else the agent's usual place."""
    given = config.agent(agent_id).workspace
    if given:
        return home.path / Path(given).expanduser()
    return home.workspace(agent_id, default=agent_id == config.default_agent_id)


def prepare_workspaces(home: Home, config: Config, *, new_only: bool = False) -> list[Path]:
    """Write what the agents' workspaces lack; with `new_only`, a folder that is there is left alone."""
    from holdfast.templates import write_workspace

    written: list[Path] = []
    for agent in config.agent_list:
        folder = workspace_of(home, config, agent.id)
        if config.agent(agent.id).skip_bootstrap or (new_only and folder.is_dir()):
            continue
        written += write_workspace(folder)
    return written
