"""What agents may do: approvals that wait for a person, allowed command patterns, an account of decisions."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

Json = sa.JSON().with_variant(JSONB(), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
Time = sa.BigInteger


def upgrade() -> None:
    _approvals()
    op.create_table(
        "allowed_commands",
        sa.Column("agent_id", sa.Text, primary_key=True),
        sa.Column("pattern", sa.Text, primary_key=True),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text),
        sa.Column("created_at", Time, nullable=False),
        sa.Column("last_used_at", Time),
        sa.Column("last_used_command", sa.Text),
    )
    op.create_table(
        "tool_audit",
        sa.Column("seq", Serial, primary_key=True, autoincrement=True),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("session_key", sa.Text),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("actor", sa.Text),
        sa.Column("approval_id", sa.Text),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("tool_audit_agent", "tool_audit", ["agent_id", "seq"])
    op.create_index("tool_audit_created", "tool_audit", ["created_at"])


def _approvals() -> None:
    op.create_table(
        "approvals",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("session_key", sa.Text),
        sa.Column("turn_id", sa.Text),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("arguments", Json, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("decided_by", sa.Text),
        sa.Column("decided_at", Time),
        sa.Column("used_at", Time),
        sa.Column("expires_at", Time, nullable=False),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("approvals_status", "approvals", ["status", "expires_at"])
    op.create_index("approvals_newest", "approvals", ["created_at", "id"])
    op.create_index("approvals_same", "approvals", ["digest", "status"])
