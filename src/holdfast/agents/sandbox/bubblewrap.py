"""Jobs in a bubblewrap: own user, processes, network and mounts; programs read-only, nothing of the home."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from holdfast.agents.sandbox.backend import SCRATCH, SYSTEM_PATH, WORKSPACE, Job, Limits, Start
from holdfast.agents.sandbox.environment import scrubbed

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC: Final = ("alternatives", "ca-certificates", "ld.so.cache", "localtime", "pki", "ssl")
_ETC_NETWORK: Final = ("hosts", "nsswitch.conf", "resolv.conf")
_TMP_BYTES: Final = 256 * 1024**2
_UID: Final = "1000"
_NICE: Final = "10"


class Bubblewrap:
    name = "bubblewrap"

    def missing(self) -> str | None:
        if shutil.which("bwrap") is None:
            return "bwrap is not installed (Debian: apt-get install bubblewrap)"
        if shutil.which("prlimit") is None:
            return "prlimit is not installed (Debian: apt-get install util-linux)"
        return _refusal()

    def start(self, job: Job) -> Start:
        env = scrubbed(job.env, path=SYSTEM_PATH, home=SCRATCH)
        options = (*_apart(job.network), *_mounts(job), "--chdir", job.cwd or _folder(job))
        return Start(("bwrap", *options, "--", *limited(job.limits, apart=True), *job.argv), env)


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


def _apart(network: bool) -> Iterator[str]:
    yield from ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
    yield from ("--uid", _UID, "--gid", _UID, "--hostname", "sandbox")
    if "--disable-userns" in _help():
        yield from ("--unshare-user", "--disable-userns")
    if network:
        yield "--share-net"


def _mounts(job: Job) -> Iterator[str]:
    for folder in _SYSTEM:
        path = Path(folder)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            yield from ("--ro-bind", folder, folder)
    for name in (*_ETC, *(_ETC_NETWORK if job.network else ())):
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc", "--dev", "/dev")
    if "--size" in _help():
        yield from ("--size", str(_TMP_BYTES))
    yield from ("--tmpfs", "/tmp")
    yield from ("--bind", str(job.scratch), SCRATCH)
    if job.workspace is not None and job.access != "none":
        yield from ("--bind" if job.access == "rw" else "--ro-bind", str(job.workspace), WORKSPACE)
    yield from ("--remount-ro", "/")


def _folder(job: Job) -> str:
    return WORKSPACE if job.workspace is not None and job.access != "none" else SCRATCH


@cache
def _help() -> str:
    try:
        done = subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


@cache
def _refusal() -> str | None:
    """A bubblewrap that is there may still be forbidden to make namespaces."""
    trial = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"]
    try:
        done = subprocess.run(trial, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not start: {error}"
    return (
        None if done.returncode == 0 else f"bwrap may not make namespaces here: {done.stderr.strip()[:200]}"
    )
