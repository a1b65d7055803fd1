"""The board room: what the log is about. Spaces, topics and tasks, and who sees which of them.

with store.read(OWNER) as tx:
    view = resolve(tx, space_id="space-work")
    page = topics.listing(tx, view)
"""

from holdfast.board import attachments, drafts, log_view, spaces, stats, tasks, topics
from holdfast.board.spaces import Space
from holdfast.board.tags import DEFAULT_SPACE, membership, slug, spaces_of_tags
from holdfast.board.tasks import Task
from holdfast.board.topics import Topic
from holdfast.board.visibility import (
    EVERYTHING,
    View,
    allowed,
    parse_allowed,
    resolve,
    seen_entries,
    source_space,
    spaces_of_entries,
)
from holdfast.board.work import CreatedBy, Keyset, Priority, TaskStatus, TopicStatus
from holdfast.board.working_set import WorkingSet, rank, working_set

__all__ = [
    "DEFAULT_SPACE",
    "EVERYTHING",
    "CreatedBy",
    "Keyset",
    "Priority",
    "Space",
    "Task",
    "TaskStatus",
    "Topic",
    "TopicStatus",
    "View",
    "WorkingSet",
    "allowed",
    "attachments",
    "drafts",
    "log_view",
    "membership",
    "parse_allowed",
    "rank",
    "resolve",
    "seen_entries",
    "slug",
    "source_space",
    "spaces",
    "spaces_of_entries",
    "spaces_of_tags",
    "stats",
    "tasks",
    "topics",
    "working_set",
]
