"""What happens unasked: heartbeats, where people last spoke, standing tasks, calls of webhooks."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _heartbeats()
    _surfaces()
    _tasks()
    _calls()


def _heartbeats() -> None:
    op.create_table(
        "heartbeats",
        sa.Column("agent_id", sa.Text, primary_key=True),
        sa.Column("last_at", sa.BigInteger),
        sa.Column("last_status", sa.Text),
        sa.Column("last_reason", sa.Text),
        sa.Column("turn_id", sa.Text),
        sa.Column("boot_turn", sa.Text),
        sa.Column("ran_at", Json, nullable=False),
        sa.Column("items", Json, nullable=False),
        sa.Column("reports", Json, nullable=False),
        sa.Column("day", sa.Text),
        sa.Column("day_tokens", sa.BigInteger, nullable=False),
        sa.Column("day_cost", sa.Float, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
    )


def _surfaces() -> None:
    op.create_table(
        "last_surfaces",
        sa.Column("session_key", sa.Text, primary_key=True),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("direct", sa.Boolean, nullable=False),
        sa.Column("deliver", Json, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index("last_surfaces_agent", "last_surfaces", ["agent_id", "direct", "at"])


def _tasks() -> None:
    op.create_table(
        "standing_tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("session", sa.Text, nullable=False),
        sa.Column("schedule", Json, nullable=False),
        sa.Column("prompt", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("timeout_seconds", sa.Integer),
        sa.Column("deliver", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("next_due", sa.BigInteger),
        sa.Column("last_run", sa.BigInteger),
        sa.Column("last_status", sa.Text),
        sa.Column("last_error", sa.Text),
        sa.Column("turn_id", sa.Text),
        sa.Column("runs", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("created_by", Json, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("standing_tasks_agent", "standing_tasks", ["agent_id", "created_at", "id"])
    op.create_index("standing_tasks_turn", "standing_tasks", ["turn_id"])
    running = sa.text("last_status = 'running'")
    op.create_index(
        "standing_tasks_running", "standing_tasks", ["id"], sqlite_where=running, postgresql_where=running
    )


def _calls() -> None:
    op.create_table(
        "hook_calls",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    op.create_index("hook_calls_name", "hook_calls", ["name", "received_at"])
    op.create_index("hook_calls_received", "hook_calls", ["received_at"])
