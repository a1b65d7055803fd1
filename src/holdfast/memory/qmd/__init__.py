"""The `qmd` program as a backend of memory: one process a question, one index an agent."""

from holdfast.memory.qmd.answers import QmdHit, hits_from
from holdfast.memory.qmd.memory import QmdMemory
from holdfast.memory.qmd.program import QmdFailed, QmdProgram
from holdfast.memory.qmd.questions import query_document
from holdfast.memory.qmd.transcripts import SESSIONS, SessionExports

__all__ = [
    "SESSIONS",
    "QmdFailed",
    "QmdHit",
    "QmdMemory",
    "QmdProgram",
    "SessionExports",
    "hits_from",
    "query_document",
]
