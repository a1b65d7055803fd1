"""Jobs on this machine itself, for sessions that are not sandboxed: bounded and with a clean environment."""

from __future__ import annotations

import shutil

from holdfast.agents.sandbox.backend import Job, Start
from holdfast.agents.sandbox.bubblewrap import limited
from holdfast.agents.sandbox.environment import scrubbed, search_path


class Host:
    """No isolation at all: who may use it is the policy's to say. `prlimit` bounds it where there is one."""

    name = "host"

    def missing(self) -> str | None:
        return None

    def start(self, job: Job) -> Start:
        home = str(job.workspace or job.scratch)
        env = scrubbed(job.env, path=search_path(job.workspace), home=home)
        bounds = limited(job.limits) if shutil.which("prlimit") else ()
        return Start((*bounds, *job.argv), env, cwd=job.cwd or home)
