"""Models: who answers, through which client, with what credential, and what is tried when one fails.

models = Models(home, lambda: config, clock)
await models.discover()
answered = await models.answer(models.choice(settings), build, agent_id="main", on_event=show)
"""

from holdfast.agents.models.answering import Answered
from holdfast.agents.models.catalogue import RECALL, Catalogue, Endpoint, Resolved
from holdfast.agents.models.credentials import Credential, Credentials
from holdfast.agents.models.discovery import Found, Row
from holdfast.agents.models.failover import Models
from holdfast.agents.models.failures import Attempt
from holdfast.agents.models.helpers import BoardModels, ModelJudge, ModelSummariser
from holdfast.agents.models.lessons import Lesson, StoredLessons
from holdfast.agents.models.recall_model import Hit, RecallModel, Search
from holdfast.agents.models.types import (
    INVALID_ARGUMENTS,
    CallDelta,
    FailureReason,
    Finish,
    Model,
    ModelAbout,
    ModelEvent,
    ModelFailure,
    ModelFit,
    ModelRef,
    ModelReply,
    ModelRequest,
    Restarted,
    TextDelta,
    ThinkingDelta,
    Usage,
)

__all__ = [
    "INVALID_ARGUMENTS",
    "RECALL",
    "Answered",
    "Attempt",
    "BoardModels",
    "CallDelta",
    "Catalogue",
    "Credential",
    "Credentials",
    "Endpoint",
    "FailureReason",
    "Finish",
    "Found",
    "Hit",
    "Lesson",
    "Model",
    "ModelAbout",
    "ModelEvent",
    "ModelFailure",
    "ModelFit",
    "ModelJudge",
    "ModelRef",
    "ModelReply",
    "ModelRequest",
    "ModelSummariser",
    "Models",
    "RecallModel",
    "Resolved",
    "Restarted",
    "Row",
    "Search",
    "StoredLessons",
    "TextDelta",
    "ThinkingDelta",
    "Usage",
]
