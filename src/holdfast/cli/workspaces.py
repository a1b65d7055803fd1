"""Where the agents of a home have their workspaces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.config import Config
    from holdfast.context import Fitted
    from holdfast.home import Home


def workspace_of(home: Home, config: Config, agent_id: str) -> Path:
    """As configured, from the home on if it is relative; else the agent's usual place."""
    given = config.agent(agent_id).workspace
    if given:
        return home.path / Path(given).expanduser()
    return home.workspace(agent_id, default=agent_id == config.default_agent_id)


def fitted_files(home: Home, config: Config, agent_id: str, window: int | None = None) -> list[Fitted]:
    """The files of an agent's main session as a prompt has them, on a window or as the config says alone."""
    from holdfast.context import Budgets, FileReader, SessionKind, Workspace, chars, names_for

    settings = config.agent(agent_id)
    per_file, total = settings.bootstrap_max_chars, settings.bootstrap_total_max_chars
    if window is not None:
        most = chars(Budgets.for_window(window, settings.compaction).files)
        per_file, total = min(per_file, most // 2), min(total, most)
    workspace = Workspace(workspace_of(home, config, agent_id), FileReader())
    extra = config.hooks.internal.extra_files
    return workspace.files(names_for(SessionKind.MAIN), per_file=per_file, total=total, extra=extra)


def cut_files(home: Home, config: Config, agent_id: str) -> list[str]:
    """A word on each workspace file that is longer than the config lets a prompt have it."""
    files = fitted_files(home, config, agent_id)
    return [file.warning for file in files if file.warning is not None and file.chars > len(file.text)]


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
