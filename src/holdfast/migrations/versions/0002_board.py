"""The board: spaces and who sees whom, topics, tasks and their membership, drafts, attachments, routing."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

Json = sa.JSON().with_variant(JSONB(), "postgresql")
Time = sa.BigInteger


def upgrade() -> None:
    _spaces()
    _topics()
    _tasks()
    _extras()
    _sorting()


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _spaces() -> None:
    op.create_table(
        "spaces",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("color", sa.Text),
        sa.Column("default_visible", sa.Boolean, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    )
    op.create_table(
        "space_edges",
        sa.Column("source_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
        sa.Column("target_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
        sa.Column("visible", sa.Boolean, nullable=False),
    )


def _worked_on() -> list[sa.Column[object]]:
    """What topics and tasks have in common."""
    return [
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("color", sa.Text),
        sa.Column("description", sa.Text),
        sa.Column("priority", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("snoozed_until", Time),
        sa.Column("due_at", Time),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("digest", sa.Text),
        sa.Column("digest_updated_at", Time),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    ]


def _topics() -> None:
    op.create_table(
        "topics",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("name_key", sa.Text, nullable=False),
        sa.Column("sort_index", sa.BigInteger, nullable=False),
        *_worked_on(),
    )
    op.create_index("topics_name", "topics", ["space_id", "name_key"], unique=True)
    op.create_index("topics_order", "topics", ["sort_index", "id"])
    op.create_index("topics_status", "topics", ["status", "sort_index", "id"])
    op.create_index("topics_updated", "topics", ["updated_at", "id"])
    _urgent("topics")
    op.create_table(
        "topic_spaces",
        sa.Column("topic_id", sa.Text, sa.ForeignKey("topics.id"), primary_key=True),
        sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
    )
    op.create_index("topic_spaces_space", "topic_spaces", ["space_id", "topic_id"])


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("topic_id", sa.Text, sa.ForeignKey("topics.id"), nullable=False),
        sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        *_worked_on(),
    )
    op.create_index("tasks_updated", "tasks", ["updated_at", "id"])
    op.create_index("tasks_topic", "tasks", ["topic_id", "updated_at", "id"])
    _urgent("tasks")
    op.create_table(
        "task_spaces",
        sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
        sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
    )
    op.create_index("task_spaces_space", "task_spaces", ["space_id", "task_id"])


def _urgent(table: str) -> None:
    """One index for each reason to be in the working set, each in the order in which it is read."""
    _partial(f"{table}_pinned", table, ["updated_at", "id"], "pinned IS TRUE")
    op.create_index(f"{table}_moving", table, ["status", "updated_at", "id"])
    _partial(f"{table}_high", table, ["updated_at", "id"], "priority = 'high'")
    _partial(f"{table}_due", table, ["due_at", "id"], "due_at IS NOT NULL")


def _extras() -> None:
    op.create_table(
        "drafts",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    )
    op.create_index("drafts_updated", "drafts", ["updated_at", "key"])
    op.create_table(
        "attachments",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("entry_id", sa.Text),
        sa.Column("space_id", sa.Text),
        sa.Column("file_name", sa.Text, nullable=False),
        sa.Column("mime_type", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("attachments_sha256", "attachments", ["sha256"])
    _partial("attachments_entry", "attachments", ["entry_id", "id"], "entry_id IS NOT NULL")


def _sorting() -> None:
    op.create_table(
        "session_routing",
        sa.Column("session_key", sa.Text, primary_key=True),
        sa.Column("items", Json, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    )
    op.create_index("session_routing_updated", "session_routing", ["updated_at"])
    op.create_table(
        "decisions",
        sa.Column("entry_id", sa.Text, primary_key=True),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text),
        sa.Column("task_id", sa.Text),
        sa.Column("confidence", sa.Float),
        sa.Column("reasons", Json),
        sa.Column("decided_at", Time, nullable=False),
    )
    op.create_index("decisions_decided", "decisions", ["decided_at", "entry_id"])
    op.create_table(
        "supervised_runs",
        sa.Column("run_id", sa.Text, primary_key=True),
        sa.Column("session_key", sa.Text, nullable=False),
        sa.Column("topic_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("started_at", Time, nullable=False),
        sa.Column("next_check_at", Time),
        sa.Column("step", sa.Integer, nullable=False, server_default="0"),
        sa.Column("last_update_at", Time),
        sa.Column("meta", Json),
    )
    _partial("supervised_runs_due", "supervised_runs", ["next_check_at"], "next_check_at IS NOT NULL")
    op.create_index("supervised_runs_session", "supervised_runs", ["session_key", "started_at"])
