"""The tables of the board room. Their creation, with the index that each query needs, is in `migrations`."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

spaces = sa.Table(
    "spaces",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("color", sa.Text),
    sa.Column("default_visible", sa.Boolean, nullable=False),
    sa.Column("shared", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

space_edges = sa.Table(
    "space_edges",
    metadata,
    sa.Column("source_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
    sa.Column("target_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
    sa.Column("visible", sa.Boolean, nullable=False),
)

topics = sa.Table(
    "topics",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("name_key", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("agent_id", sa.Text),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("sort_index", sa.BigInteger, nullable=False),
    sa.Column("color", sa.Text),
    sa.Column("description", sa.Text),
    sa.Column("priority", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("snoozed_until", sa.BigInteger),
    sa.Column("due_at", sa.BigInteger),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("tags", Json, nullable=False),
    sa.Column("digest", sa.Text),
    sa.Column("digest_updated_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

topic_spaces = sa.Table(
    "topic_spaces",
    metadata,
    sa.Column("topic_id", sa.Text, sa.ForeignKey("topics.id"), primary_key=True),
    sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
)

tasks = sa.Table(
    "tasks",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("topic_id", sa.Text, sa.ForeignKey("topics.id"), nullable=False),
    sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), nullable=False),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("created_by", sa.Text, nullable=False),
    sa.Column("color", sa.Text),
    sa.Column("description", sa.Text),
    sa.Column("priority", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("snoozed_until", sa.BigInteger),
    sa.Column("due_at", sa.BigInteger),
    sa.Column("pinned", sa.Boolean, nullable=False),
    sa.Column("tags", Json, nullable=False),
    sa.Column("digest", sa.Text),
    sa.Column("digest_updated_at", sa.BigInteger),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

task_spaces = sa.Table(
    "task_spaces",
    metadata,
    sa.Column("task_id", sa.Text, sa.ForeignKey("tasks.id"), primary_key=True),
    sa.Column("space_id", sa.Text, sa.ForeignKey("spaces.id"), primary_key=True),
)

drafts = sa.Table(
    "drafts",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

attachments = sa.Table(
    "attachments",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("entry_id", sa.Text),
    sa.Column("space_id", sa.Text),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("file_name", sa.Text, nullable=False),
    sa.Column("mime_type", sa.Text, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

session_routing = sa.Table(
    "session_routing",
    metadata,
    sa.Column("session_key", sa.Text, primary_key=True),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("items", Json, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

decisions = sa.Table(
    "decisions",
    metadata,
    sa.Column("entry_id", sa.Text, primary_key=True),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("method", sa.Text, nullable=False),
    sa.Column("topic_id", sa.Text),
    sa.Column("task_id", sa.Text),
    sa.Column("confidence", sa.Float),
    sa.Column("reasons", Json),
    sa.Column("decided_at", sa.BigInteger, nullable=False),
)

supervised_runs = sa.Table(
    "supervised_runs",
    metadata,
    sa.Column("run_id", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("topic_id", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("next_check_at", sa.BigInteger),
    sa.Column("step", sa.Integer, nullable=False, server_default="0"),
    sa.Column("last_update_at", sa.BigInteger),
    sa.Column("meta", Json),
)
