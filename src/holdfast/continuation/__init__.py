"""The continuation room: what happens next, without being asked.

continuation = Continuation(store, threads, config, runs.accept_in, payloads=home / "continuation")
toolbox.register_all(continuation.tools())
hooks = (continuation.hook,)
continuation.register(runner)
await continuation.recover()
"""

from holdfast.continuation.payloads import Attachment
from holdfast.continuation.record import Kind, Phase, Record, Status
from holdfast.continuation.records import prune
from holdfast.continuation.recovering import Recovered
from holdfast.continuation.room import Continuation

__all__ = [
    "Attachment",
    "Continuation",
    "Kind",
    "Phase",
    "Record",
    "Recovered",
    "Status",
    "prune",
]
