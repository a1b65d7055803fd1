"""Jobs on this machine itself, for sessions that are not sandboxed: bounded and with a clean environment."""

from __future__ import annotations

import os
import shutil

from holdfast.agents.sandbox.backend import Job, Start
from holdfast.agents.sandbox.bubblewrap import limited
from holdfast.agents.sandbox.environment import scrubbed, search_path


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
