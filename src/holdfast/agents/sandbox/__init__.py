"""Where commands run: on this machine, in a bubblewrap or in a container, bounded in every way.

place = place_of(settings.sandbox, home.path / "sandboxes", agent_id="main", session_key=key)
outcome = run(place.backend, Job(argv=["ls"], scratch=place.scratch, workspace=folder, access="ro"))
"""

from holdfast.agents.sandbox.backends import (
    SCRATCH,
    WORKSPACE,
    Backend,
    Bubblewrap,
    Docker,
    Host,
    Job,
    Limits,
    Outcome,
    Start,
)
from holdfast.agents.sandbox.running import (
    Place,
    backend_of,
    is_sandboxed,
    limits_of,
    place_of,
    run,
    scope_name,
)

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
