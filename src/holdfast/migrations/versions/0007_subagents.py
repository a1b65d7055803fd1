"""Subagents: the registry of delegated runs and of how their results reach who asked for them."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0007"
down_revision = "0006"

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.create_table(
        "subagent_runs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("spawn_key", sa.Text, nullable=False, unique=True),
        sa.Column("run_id", sa.Text, unique=True),
        sa.Column("child_key", sa.Text, nullable=False),
        sa.Column("child_session_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("requester_key", sa.Text, nullable=False),
        sa.Column("requester_agent", sa.Text, nullable=False),
        sa.Column("requester_turn", sa.Text),
        sa.Column("origin", Json, nullable=False),
        sa.Column("binding", Json),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("mode", sa.Text, nullable=False),
        sa.Column("cleanup", sa.Text, nullable=False),
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("expects", sa.Boolean, nullable=False),
        sa.Column("timeout_seconds", sa.Integer, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("said", sa.Text),
        sa.Column("usage", Json),
        sa.Column("stop_reason", sa.Text),
        sa.Column("announce", sa.Text, nullable=False),
        sa.Column("announcement", sa.Text),
        sa.Column("announce_turn", sa.Text),
        sa.Column("asks", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("archived_at", sa.BigInteger),
        sa.Column("revision", sa.Integer, nullable=False),
    )
    op.create_index("subagent_runs_requester", "subagent_runs", ["requester_key", "created_at", "id"])
    op.create_index("subagent_runs_child", "subagent_runs", ["child_key", "created_at", "id"])
    _partial("subagent_runs_live", ["requester_key", "created_at", "id"], "status <> 'ended'")
    _partial("subagent_runs_unended", ["created_at", "id"], "status <> 'ended'")
    _partial("subagent_runs_announced", ["requester_key", "created_at", "id"], _OPEN)
    _partial("subagent_runs_by_turn", ["requester_turn"], "status <> 'ended'")


_OPEN = "announce IN ('waiting', 'asked', 'quiet')"


def _partial(name: str, columns: list[str], where: str) -> None:
    clause = sa.text(where)
    op.create_index(name, "subagent_runs", columns, sqlite_where=clause, postgresql_where=clause)
