"""The continuation room: what happens next, without being asked.

continuation = Continuation(store, threads, config, runs.accept_in, payloads=home / "continuation")
toolbox.register_all(continuation.tools())
hooks = (continuation.hook,)
continuation.register(runner)
await continuation.recover()
"""

from holdfast.continuation.attachments import Attachment
from holdfast.continuation.dispatch import Recovered
from holdfast.continuation.records import prune
from holdfast.continuation.room import Continuation
from holdfast.continuation.state import Kind, Phase, Record, Status

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
