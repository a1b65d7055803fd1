"""What every sandbox is: a job in, a bounded outcome out. Backends only say how the job is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol

Access = Literal["none", "ro", "rw"]
End = Literal["exited", "timeout", "processes", "memory", "output"]

WORKSPACE: Final = "/workspace"
SCRATCH: Final = "/scratch"
SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a job may use. Past `output_bytes` the rest is thrown away; far past it the job is ended."""

    seconds: float = 1800.0
    memory_bytes: int = 4 * 1024**3
    processes: int = 256
    file_bytes: int = 1024**3
    output_bytes: int = 200_000
    open_files: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A command and the place it runs in. `scratch` is the sandbox's own folder, writable always.

    `private` is never shared, even where it lies in the workspace.
    """

    argv: Sequence[str]
    scratch: Path
    workspace: Path | None = None
    private: Path | None = None
    access: Access = "none"
    network: bool = False
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()

    @property
    def covered(self) -> str | None:
        """Where in the shared workspace something private lies, which must be covered."""
        if self.workspace is None or self.private is None or self.access == "none":
            return None
        root, private = self.workspace.resolve(), self.private.resolve()
        return f"{WORKSPACE}/{private.relative_to(root)}" if private.is_relative_to(root) else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended; `code` is negative for a signal. `output` is what both streams said, in order."""

    end: End
    code: int | None
    output: bytes
    dropped: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.end == "exited" and self.code == 0


@dataclass(frozen=True, slots=True)
class Start:
    """How to begin a job on this machine, and what to call afterwards if it had to be ended."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    kill: tuple[str, ...] | None = None


class Backend(Protocol):
    """A way to start jobs apart from everything else."""

    @property
    def name(self) -> str: ...

    def missing(self) -> str | None:
        """What must be installed before it works; None when it does."""

    def start(self, job: Job) -> Start:
        """How to begin this job. Touches nothing."""
