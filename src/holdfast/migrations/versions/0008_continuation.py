"""What agents elect for themselves, and how each session's chain of elected turns stands."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0008"
down_revision = "0007"

_LIVE = sa.text("status IN ('queued', 'running')")
_OWED = sa.text("notice_pending")
Json = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "continuation_records",
        sa.Column("record_id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner_session_key", sa.Text, nullable=False),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("failure_reason", sa.Text),
        sa.Column("notice_pending", sa.Boolean, nullable=False),
        sa.Column("cancel_requested_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("chain_id", sa.Text),
        sa.Column("due_at", sa.BigInteger),
        sa.Column("state", Json, nullable=False),
    )
    _index("continuation_live", ["owner_session_key", "created_at", "record_id"], _LIVE)
    _index("continuation_due", ["due_at", "owner_session_key"], _LIVE)
    op.create_index("continuation_ended", "continuation_records", ["ended_at"])
    _index("continuation_owed", ["record_id"], _OWED)
    op.create_table(
        "continuation_chains",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("session_key", sa.Text, nullable=False),
        sa.Column("chain_id", sa.Text, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("traceparent", sa.Text),
        sa.Column("band", sa.Integer),
        sa.Column("used", sa.BigInteger, nullable=False),
        sa.Column("window", sa.BigInteger, nullable=False),
        sa.Column("idle_turns", sa.Integer, nullable=False),
        sa.Column("idle_at", sa.BigInteger),
        sa.Column("compactions", Json, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )


def _index(name: str, columns: list[str], where: sa.TextClause) -> None:
    op.create_index(name, "continuation_records", columns, sqlite_where=where, postgresql_where=where)
