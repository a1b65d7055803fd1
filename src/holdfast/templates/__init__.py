"""The files of a new workspace: short texts of our own, written where nothing stands yet."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.errors import Unavailable
from holdfast.home import private_opener

FILES: Final = (
    "AGENTS.md",
    "SOUL.md",
    "IDENTITY.md",
    "USER.md",
    "TOOLS.md",
    "HEARTBEAT.md",
    "BOOTSTRAP.md",
    "MEMORY.md",
)
FOLDERS: Final = ("memory", "skills")
ONCE: Final = "BOOTSTRAP.md"


def template(name: str) -> bytes:
    """The text of one workspace file as it is first written."""
    return Path(__file__).with_name(name).read_bytes()


def is_template(path: Path) -> bool:
    """Whether a file is one of ours that nobody has written in."""
    return path.name in FILES and path.is_file() and path.read_bytes() == template(path.name)


def missing(workspace: Path) -> list[str]:
    """The files and folders that a workspace lacks. The one of the first day is missed only in a new one."""
    fresh = not any((workspace / name).exists() for name in FILES)
    wanted = [name for name in FILES if name != ONCE or fresh]
    return [name for name in (*wanted, *FOLDERS) if not (workspace / name).exists()]


def write_workspace(workspace: Path) -> list[Path]:
    """Write what is missing and say what that was; nothing that is there is touched."""
    written: list[Path] = []
    try:
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in missing(workspace):
            path = workspace / name
            if name in FOLDERS:
                path.mkdir(mode=0o700, exist_ok=True)
            else:
                with open(path, "xb", opener=private_opener) as file:
                    file.write(template(name))
            written.append(path)
    except OSError as error:
        raise Unavailable(
            f"the workspace {workspace} cannot be written: {error.strerror}",
            code="workspace_unusable",
            hint="Mend its permissions, or set agents.defaults.workspace to another folder.",
        ) from error
    return written
