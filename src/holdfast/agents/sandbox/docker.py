"""Jobs in a container: the same promises as a bubblewrap, kept by a Docker engine."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from holdfast.agents.sandbox.backend import SCRATCH, SYSTEM_PATH, WORKSPACE, Job, Limits, Start
from holdfast.agents.sandbox.environment import scrubbed
from holdfast.ids import uuid7

_ENGINE: Final = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG")
_ANSWER_SECONDS: Final = 10
_ASKED_AGAIN: Final = 30


@dataclass(frozen=True, slots=True)
class Docker:
    """`memory` and `cpus` are the config's, in Docker's own form."""

    image: str = "debian:stable-slim"
    network: str = "none"
    memory: str | None = None
    cpus: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = "docker"

    def missing(self) -> str | None:
        """The client alone runs nothing: the engine behind it is asked as well."""
        if shutil.which("docker") is None:
            return "docker is not installed"
        return _engine_trouble(int(time.monotonic() // _ASKED_AGAIN), *sorted(_client_env().items()))

    def start(self, job: Job) -> Start:
        """Values of the environment go by the client's own, since its arguments can be seen by others."""
        env = scrubbed({**self.env, **job.env}, path=SYSTEM_PATH, home=SCRATCH)
        container = f"holdfast-{uuid7()}"
        argv = ("docker", "run", *self._options(job, container, env), self.image, *job.argv)
        passed = {name: value for name, value in env.items() if name not in ("PATH", "HOME")}
        return Start(argv, {**passed, **_client_env()}, kill=("docker", "kill", container))

    def _options(self, job: Job, container: str, env: Mapping[str, str]) -> Iterator[str]:
        yield from ("--rm", "--interactive", "--init", "--name", container, "--pull", "missing")
        yield from ("--read-only", "--tmpfs", "/tmp:rw,nosuid,nodev,size=256m")
        yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        yield from ("--user", f"{os.getuid()}:{os.getgid()}")
        yield from ("--network", self.network if job.network else "none")
        yield from self._bounds(job.limits)
        yield from ("--mount", f"type=bind,source={job.scratch},target={SCRATCH}")
        shared = job.workspace is not None and job.access != "none"
        if shared:
            ending = "" if job.access == "rw" else ",readonly"
            yield from ("--mount", f"type=bind,source={job.workspace},target={WORKSPACE}{ending}")
        if job.covered is not None:
            yield from ("--mount", f"type=tmpfs,target={job.covered},tmpfs-size=4096")
        yield from ("--workdir", job.cwd or (WORKSPACE if shared else SCRATCH))
        yield from ("--env", f"PATH={SYSTEM_PATH}", "--env", f"HOME={SCRATCH}")
        for name in env:
            if name not in ("PATH", "HOME"):
                yield from ("--env", name)

    def _bounds(self, limits: Limits) -> Iterator[str]:
        memory = self.memory or f"{limits.memory_bytes}b"
        yield from ("--memory", memory, "--memory-swap", memory)
        yield from ("--pids-limit", str(limits.processes))
        yield from ("--ulimit", f"fsize={limits.file_bytes}", "--ulimit", "core=0")
        yield from ("--ulimit", f"nofile={limits.open_files}")
        if self.cpus is not None:
            yield from ("--cpus", str(self.cpus))


def _client_env() -> dict[str, str]:
    """What the client needs to find its engine."""
    found = {"PATH": os.environ.get("PATH", SYSTEM_PATH), "HOME": os.environ.get("HOME", "/")}
    return found | {name: os.environ[name] for name in _ENGINE if name in os.environ}


@lru_cache(maxsize=8)
def _engine_trouble(_turn: int, *env: tuple[str, str]) -> str | None:
    """Why the engine does not answer; None where it does. Asked anew when the turn is another."""
    ask = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(
            ask, env=dict(env), capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"docker does not answer: {error}"
    if done.returncode == 0 and done.stdout.strip():
        return None
    said = " ".join(done.stderr.split()) or "no engine is running"
    return f"docker is installed, but its engine does not answer: {said[:200]}"
