"""Holdfast: a context runtime for persistent AI agents.

import holdfast

with holdfast.open("~/.holdfast") as hold:
    ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holdfast.context import AssembleResult as AssembleResult
    from holdfast.context import CompactResult as CompactResult
    from holdfast.context import ContextEngine as ContextEngine
    from holdfast.context import register_context_engine as register_context_engine
    from holdfast.errors import HoldfastError as HoldfastError
    from holdfast.runtime import Holdfast as Holdfast
    from holdfast.runtime import open as open  # noqa: A004

_PUBLIC = {
    "open": "holdfast.runtime",
    "Holdfast": "holdfast.runtime",
    "HoldfastError": "holdfast.errors",
    "ContextEngine": "holdfast.context",
    "AssembleResult": "holdfast.context",
    "CompactResult": "holdfast.context",
    "register_context_engine": "holdfast.context",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and only then: `import holdfast` itself costs next to nothing."""
    if name in _PUBLIC:
        from importlib import import_module

        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
