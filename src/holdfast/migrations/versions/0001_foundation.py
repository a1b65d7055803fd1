"""The log, its sessions and turns, the agenda, the change feed, the outbox, leases and tokens."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

Json = sa.JSON().with_variant(JSONB(), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Time = sa.BigInteger


def upgrade() -> None:
    _entries()
    _changes()
    _sessions_and_turns()
    _agenda()
    _outbox_and_leases()
    _tokens()


def _partial(name: str, table: str, columns: list[str], where: str, *, unique: bool = False) -> None:
    op.create_index(
        name,
        table,
        columns,
        unique=unique,
        sqlite_where=sa.text(where),
        postgresql_where=sa.text(where),
    )


def _count(name: str, kind: sa.types.TypeEngine[int]) -> sa.Column[int]:
    return sa.Column(name, kind, nullable=False, server_default="0")


def _entries() -> None:
    op.create_table(
        "entries",
        sa.Column("position", Serial, primary_key=True, autoincrement=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("role", sa.Text),
        sa.Column("session_key", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("turn_id", sa.Text),
        sa.Column("agent_id", sa.Text),
        sa.Column("agent_label", sa.Text),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("summary", sa.Text),
        sa.Column("raw", sa.Text),
        sa.Column("space_id", sa.Text),
        sa.Column("topic_id", sa.Text),
        sa.Column("task_id", sa.Text),
        sa.Column("related_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("source", Json),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
        sa.Column("deleted_at", Time),
    )
    live = "deleted_at IS NULL"
    _partial(
        "entries_idempotency", "entries", ["idempotency_key"], "idempotency_key IS NOT NULL", unique=True
    )
    op.create_index("entries_created", "entries", ["created_at", "position"])
    _partial(
        "entries_session", "entries", ["session_key", "created_at", "position"], "session_key IS NOT NULL"
    )
    _partial("entries_transcript", "entries", ["session_id", "position"], "session_id IS NOT NULL")
    _partial("entries_turn", "entries", ["turn_id", "position"], "turn_id IS NOT NULL")
    _partial("entries_topic", "entries", ["topic_id", "created_at", "position"], "topic_id IS NOT NULL")
    _partial("entries_task", "entries", ["task_id", "created_at", "position"], "task_id IS NOT NULL")
    _partial("entries_space", "entries", ["space_id", "created_at", "position"], "space_id IS NOT NULL")
    _partial("entries_related", "entries", ["related_id", "created_at"], "related_id IS NOT NULL")
    _partial("entries_pending", "entries", ["session_key", "position"], f"status = 'pending' AND {live}")
    _partial("entries_waiting", "entries", ["created_at", "position"], f"status = 'pending' AND {live}")
    _partial("entries_failed", "entries", ["created_at", "position"], f"status = 'failed' AND {live}")
    _partial("entries_type", "entries", ["type", "created_at", "position"], live)
    _partial("entries_deleted", "entries", ["deleted_at"], "deleted_at IS NOT NULL")
    op.create_table(
        "entry_revisions",
        sa.Column("entry_id", sa.Text, sa.ForeignKey("entries.id"), primary_key=True),
        sa.Column("revision", sa.Integer, primary_key=True),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("raw", sa.Text),
        sa.Column("replaced_at", Time, nullable=False),
    )


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("entity_id", sa.Text, nullable=False),
        sa.Column("payload", Json),
        sa.Column("created_at", Time, nullable=False),
    )


def _sessions_and_turns() -> None:
    op.create_table(
        "sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("chat_type", sa.Text),
        sa.Column("channel", sa.Text),
        sa.Column("label", sa.Text),
        sa.Column("parent_key", sa.Text),
        sa.Column("successor_id", sa.Text),
        _count("input_tokens", sa.BigInteger()),
        _count("output_tokens", sa.BigInteger()),
        _count("total_tokens", sa.BigInteger()),
        _count("context_tokens", sa.BigInteger()),
        _count("compaction_count", sa.Integer()),
        sa.Column("memory_flush_at", Time),
        sa.Column("memory_flush_compaction_count", sa.Integer),
        _count("turn_count", sa.Integer()),
        sa.Column("meta", Json),
        _count("revision", sa.Integer()),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
        sa.Column("last_external_at", Time, nullable=False),
        sa.Column("archived_at", Time),
        sa.Column("archive_cause", sa.Text),
    )
    _partial("sessions_active", "sessions", ["key"], "status = 'active'", unique=True)
    op.create_index("sessions_key", "sessions", ["key", "created_at"])
    op.create_index("sessions_updated", "sessions", ["status", "updated_at", "id"])
    _partial("sessions_parent", "sessions", ["parent_key"], "parent_key IS NOT NULL")
    op.create_table(
        "turns",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.id"), nullable=False),
        sa.Column("session_key", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("trigger", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        _count("attempt", sa.Integer()),
        sa.Column("agenda_id", sa.Text),
        sa.Column("input_id", sa.Text),
        sa.Column("reply_id", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("usage", Json),
        sa.Column("meta", Json),
        sa.Column("error", sa.Text),
        sa.Column("accepted_at", Time, nullable=False),
        sa.Column("started_at", Time),
        sa.Column("ended_at", Time),
    )
    op.create_index("turns_number", "turns", ["session_id", "number"], unique=True)
    _partial("turns_agenda", "turns", ["agenda_id"], "agenda_id IS NOT NULL")
    _partial("turns_open", "turns", ["status", "accepted_at"], "status IN ('accepted', 'running')")


def _agenda() -> None:
    op.create_table(
        "agenda",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("lane", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("due_at", Time, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", Time),
        sa.Column("cancel_requested", sa.Boolean, nullable=False),
        sa.Column("error", sa.Text),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
        sa.Column("ended_at", Time),
    )
    _partial("agenda_due", "agenda", ["due_at", "id"], "status = 'queued'")
    _partial("agenda_lane", "agenda", ["lane", "due_at", "id"], "status = 'queued'")
    _partial("agenda_running", "agenda", ["lane"], "status = 'running'", unique=True)
    live = "key IS NOT NULL AND status IN ('queued', 'running')"
    _partial("agenda_key", "agenda", ["key"], live, unique=True)
    _partial("agenda_ended", "agenda", ["ended_at"], "ended_at IS NOT NULL")


def _outbox_and_leases() -> None:
    op.create_table(
        "outbox",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("payload", Json, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("receipt", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("agenda_id", sa.Text),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
        sa.Column("delivered_at", Time),
    )
    op.create_index("outbox_target", "outbox", ["target", "created_at"])
    op.create_index("outbox_status", "outbox", ["status", "updated_at"])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("until", Time, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
    )


def _tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("scope", sa.Text, nullable=False),
        sa.Column("spaces", Json),
        sa.Column("agents", Json),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("expires_at", Time),
        sa.Column("revoked_at", Time),
        sa.Column("last_used_at", Time),
    )
    _partial("tokens_name", "tokens", ["name"], "revoked_at IS NULL", unique=True)
