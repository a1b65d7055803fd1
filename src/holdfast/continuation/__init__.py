"""The continuation room: what happens next, without being asked.

continuation = Continuation(store, threads, config, runs.accept_in, payloads=home / "continuation")
toolbox.register_all(continuation.tools())
hooks = (continuation.hook,)
continuation.register(runner)
await continuation.recover()
"""

from holdfast.continuation.orphans import ParentRun, Registry
from holdfast.continuation.parts import Spawned, Spawner, SpawnOrder
from holdfast.continuation.payloads import Attachment
from holdfast.continuation.record import Kind, Phase, Record, Status
from holdfast.continuation.records import prune
from holdfast.continuation.recovering import Recovered
from holdfast.continuation.room import Continuation, delegate_of
from holdfast.continuation.spawning import Carry

__all__ = [
    "Attachment",
    "Carry",
    "Continuation",
    "Kind",
    "ParentRun",
    "Phase",
    "Record",
    "Recovered",
    "Registry",
    "SpawnOrder",
    "Spawned",
    "Spawner",
    "Status",
    "delegate_of",
    "prune",
]
