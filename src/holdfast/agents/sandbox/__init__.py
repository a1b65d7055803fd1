"""Where commands run: on this machine, in a bubblewrap or in a container, bounded in every way.

place = place_of(settings.sandbox, home.path / "sandboxes", agent_id="main", session_key=key)
outcome = run(place.backend, Job(argv=["ls"], scratch=place.scratch, workspace=folder, access="ro"))
"""

from holdfast.agents.sandbox.backend import SCRATCH, WORKSPACE, Backend, Job, Limits, Outcome, Start
from holdfast.agents.sandbox.bubblewrap import Bubblewrap
from holdfast.agents.sandbox.choosing import Place, backend_of, is_sandboxed, limits_of, place_of, scope_name
from holdfast.agents.sandbox.docker import Docker
from holdfast.agents.sandbox.host import Host
from holdfast.agents.sandbox.running import run

__all__ = [
    "SCRATCH",
    "WORKSPACE",
    "Backend",
    "Bubblewrap",
    "Docker",
    "Host",
    "Job",
    "Limits",
    "Outcome",
    "Place",
    "Start",
    "backend_of",
    "is_sandboxed",
    "limits_of",
    "place_of",
    "run",
    "scope_name",
]
