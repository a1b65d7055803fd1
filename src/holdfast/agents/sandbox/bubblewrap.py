"""Jobs in a bubblewrap: own user, processes, network and mounts; programs read-only, nothing of the home."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.agents.sandbox.backend import SCRATCH, SYSTEM_PATH, WORKSPACE, Job, Limits, Start
from holdfast.agents.sandbox.environment import scrubbed, search_path

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
