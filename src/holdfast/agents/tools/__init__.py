"""Tools: what an agent can do, each with its schema, within what policy allows.

toolbox = builtin_toolbox(ToolParts(store=…, threads=…, home=…, clock=…, memory=…, board=…, skills=…))
results = await toolbox.run_all(caller, reply.calls, on_event)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.agents.tools.types import Caller, OnEvent, Tool, ToolEvent, ToolOutput
from holdfast.effects import Effect

if TYPE_CHECKING:
    from holdfast.agents.tools.builtin import ToolParts, builtin_toolbox, builtin_tools
    from holdfast.agents.tools.commands import STOPS, BackgroundCommands
    from holdfast.agents.tools.outputs import Outputs
    from holdfast.agents.tools.registry import Toolbox
    from holdfast.agents.tools.session_tools import Courier

__all__ = [
    "STOPS",
    "BackgroundCommands",
    "Caller",
    "Courier",
    "Effect",
    "OnEvent",
    "Outputs",
    "Tool",
    "ToolEvent",
    "ToolOutput",
    "ToolParts",
    "Toolbox",
    "builtin_toolbox",
    "builtin_tools",
]

_LATER = {
    "STOPS": "commands",
    "BackgroundCommands": "commands",
    "Courier": "session_tools",
    "Outputs": "outputs",
    "ToolParts": "builtin",
    "Toolbox": "registry",
    "builtin_toolbox": "builtin",
    "builtin_tools": "builtin",
}


def __getattr__(name: str) -> Any:
    """What loads every room is imported when it is asked for."""
    if name not in _LATER:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
