"""What every sandbox is: a job in, a bounded outcome out; on this host, in bubblewrap or in Docker."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Final, Literal, Protocol

from holdfast.ids import uuid7

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


_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# Certificates, never the private keys that lie beside them: a gateway that runs as root could read those.
_ETC: Final = (
    *("alternatives", "ca-certificates", "crypto-policies", "ld.so.cache", "localtime"),
    *("pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),
    *("ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf"),
)
_ETC_NETWORK: Final = ("hosts", "nsswitch.conf", "resolv.conf")
# To the kernel a process of root's is root's in here too, and may write settings of the whole machine.
_PROC_READ_ONLY: Final = ("bus", "fs", "irq", "sys", "sysrq-trigger")
_PROC_HIDDEN: Final = ("kcore", "keys", "kmsg", "latency_stats", "sched_debug", "timer_list")
_PROC_EMPTY: Final = ("acpi", "asound", "scsi")
_TMP_BYTES: Final = 256 * 1024**2
_UID: Final = "1000"
_NICE: Final = "10"


class Bubblewrap:
    name = "bubblewrap"

    def missing(self) -> str | None:
        """`bwrap` is started from here; what it starts is looked for as it will be in there."""
        program = _program(None)
        if program is None:
            return "bwrap is not installed (Debian: apt-get install bubblewrap)"
        if shutil.which("prlimit", path=SYSTEM_PATH) is None:
            return f"prlimit is in none of {SYSTEM_PATH} (Debian: apt-get install util-linux)"
        return _refusal(program)

    def start(self, job: Job) -> Start:
        """By its full path: the command's own search path need not lead to it."""
        env = scrubbed(job.env, path=SYSTEM_PATH, home=SCRATCH)
        program = _program(job.workspace) or "bwrap"
        options = (*_apart(job.network, program), *_mounts(job, program), "--chdir", job.cwd or _folder(job))
        return Start((program, *options, "--", *limited(job.limits, apart=True), *job.argv), env)


def _program(workspace: Path | None) -> str | None:
    """Where `bwrap` lies on this process's own path, never in a folder that an agent writes to."""
    return shutil.which("bwrap", path=search_path(workspace))


def limited(limits: Limits, *, apart: bool) -> tuple[str, ...]:
    """The words that put the limits of one process before a command.

    The kernel counts processes by user; only what is `apart`, in a user namespace, has its own count. A
    command gives way to who watches it: else a flood of processes would keep its end from coming.
    """
    return (
        *("nice", "-n", _NICE),
        "prlimit",
        f"--data={limits.memory_bytes}",
        *((f"--nproc={limits.processes}",) if apart else ()),
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        "--core=0",
        "--",
    )


def _apart(network: bool, program: str) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    yield from ("--uid", _UID, "--gid", _UID, "--hostname", "sandbox")
    if "--disable-userns" in _help(program):
        yield from ("--unshare-user", "--disable-userns")
    if network:
        yield "--share-net"


def _mounts(job: Job, program: str) -> Iterator[str]:
    for folder in _SYSTEM:
        path = Path(folder)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            yield from ("--ro-bind", folder, folder)
    for name in (*_ETC, *(_ETC_NETWORK if job.network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from _proc()
    yield from ("--dev", "/dev", *_tmpfs("/dev/shm", program), "--remount-ro", "/dev")
    yield from _tmpfs("/tmp", program)
    yield from ("--bind", str(job.scratch), SCRATCH)
    if job.workspace is not None and job.access != "none":
        yield from ("--bind" if job.access == "rw" else "--ro-bind", str(job.workspace), WORKSPACE)
    if job.covered is not None:
        yield from (*_tmpfs(job.covered, program), "--remount-ro", job.covered)
    yield from ("--remount-ro", "/")


def _proc() -> Iterator[str]:
    yield from ("--proc", "/proc")
    there = [name for name in os.listdir("/proc") if not name.isdecimal()]
    for name in sorted(there):
        path = f"/proc/{name}"
        if name in _PROC_READ_ONLY:
            yield from ("--ro-bind", path, path)
        elif name in _PROC_HIDDEN:
            yield from ("--ro-bind", "/dev/null", path)
        elif name in _PROC_EMPTY:
            yield from ("--tmpfs", path, "--remount-ro", path)


def _tmpfs(path: str, program: str) -> tuple[str, ...]:
    """A folder in memory, as large as it may be; older programs cannot bound it."""
    return (*(("--size", str(_TMP_BYTES)) if "--size" in _help(program) else ()), "--tmpfs", path)


def _folder(job: Job) -> str:
    return WORKSPACE if job.workspace is not None and job.access != "none" else SCRATCH


@cache
def _help(program: str) -> str:
    try:
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


@cache
def _refusal(program: str) -> str | None:
    """A bubblewrap that is there may still be forbidden to make namespaces."""
    trial = [program, "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(
            trial, env={"PATH": SYSTEM_PATH}, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not start: {error}"
    return (
        None if done.returncode == 0 else f"bwrap may not make namespaces here: {done.stderr.strip()[:200]}"
    )


class Host:
    """No isolation at all: who may use it is the policy's to say. `prlimit` bounds it where there is one.

    The home is the operator's own, since programs keep their settings and logins there.
    """

    name = "host"

    def missing(self) -> str | None:
        return None

    def start(self, job: Job) -> Start:
        home = os.environ.get("HOME") or str(job.scratch)
        path = search_path(job.workspace)
        env = scrubbed(job.env, path=path, home=home)
        bounds = limited(job.limits, apart=False) if shutil.which("prlimit", path=path) else ()
        return Start((*bounds, *job.argv), env, cwd=job.cwd or str(job.workspace or job.scratch))


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
