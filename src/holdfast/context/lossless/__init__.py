"""The `lossless` context engine: summaries as a DAG over the log, and the way back to every word.

register: `plugins.slots.contextEngine = "lossless"`; settings in `plugins.entries.lossless.config`.
"""

from holdfast.context.lossless.debts import KIND, Debt
from holdfast.context.lossless.engine import LosslessEngine, compaction_kind
from holdfast.context.lossless.integrity import Problem, check, repair
from holdfast.context.lossless.nodes import Node
from holdfast.context.lossless.projections import Item, Projection
from holdfast.context.lossless.recall import Found, Hit, Page, Recall, search
from holdfast.context.lossless.settings import Settings

__all__ = [
    "KIND",
    "Debt",
    "Found",
    "Hit",
    "Item",
    "LosslessEngine",
    "Node",
    "Page",
    "Problem",
    "Projection",
    "Recall",
    "Settings",
    "check",
    "compaction_kind",
    "repair",
    "search",
]
