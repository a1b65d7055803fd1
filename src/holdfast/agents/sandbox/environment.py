"""The environment of a command: nothing of ours leaks into it but what it needs to find its way."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from holdfast.agents.sandbox.backend import SYSTEM_PATH

_KEPT: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM")
_LOADER: Final = ("LD_", "DYLD_", "BASH_ENV", "ENV", "PYTHONSTARTUP", "PERL5OPT", "NODE_OPTIONS", "IFS")


def scrubbed(given: Mapping[str, str], *, path: str, home: str) -> dict[str, str]:
    """Language and zone of this process, a path and a home, and what was given on purpose."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    own = {name: value for name, value in given.items() if _may_be_set(name, value)}
    return {"LANG": "C.UTF-8", **kept, "PATH": path, "HOME": home, **own}


def search_path(workspace: Path | None) -> str:
    """This process's own search path without folders in which an agent could plant a program."""
    entries = os.environ.get("PATH", SYSTEM_PATH).split(os.pathsep)
    root = None if workspace is None else workspace.resolve()

    def trusted(entry: str) -> bool:
        if not os.path.isabs(entry):
            return False
        return root is None or not Path(entry).resolve().is_relative_to(root)

    return os.pathsep.join(entry for entry in entries if trusted(entry)) or SYSTEM_PATH


def _may_be_set(name: str, value: str) -> bool:
    loads_code = name.startswith(_LOADER[:2]) or name in _LOADER
    return bool(name) and "=" not in name and "\0" not in name + value and not loads_code
