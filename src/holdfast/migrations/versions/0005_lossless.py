"""The lossless engine: summaries over the log, their sources, projections, and compaction owed."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"

Json = sa.JSON().with_variant(JSONB(), "postgresql")
Time = sa.BigInteger


def upgrade() -> None:
    _summaries()
    op.create_table(
        "lossless_links",
        sa.Column("summary_id", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True),
        sa.Column("source_id", sa.Text, nullable=False),
    )
    op.create_table(
        "lossless_projections",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("items", Json, nullable=False),
        sa.Column("base", Json, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    )
    op.create_table(
        "lossless_debts",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("pending", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("token_budget", sa.BigInteger, nullable=False),
        sa.Column("current_tokens", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_attempt_at", Time, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("updated_at", Time, nullable=False),
    )


def _summaries() -> None:
    op.create_table(
        "lossless_summaries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("source_session_id", sa.Text),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("first", sa.BigInteger, nullable=False),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("keeps", Json, nullable=False),
        sa.Column("tokens", sa.Integer, nullable=False),
        sa.Column("source_tokens", sa.BigInteger, nullable=False),
        sa.Column("entry_count", sa.Integer, nullable=False),
        sa.Column("earliest_at", Time, nullable=False),
        sa.Column("latest_at", Time, nullable=False),
        sa.Column("level", sa.Text, nullable=False),
        sa.Column("fault", sa.Text),
        sa.Column("replaces", sa.Text),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("lossless_summaries_span", "lossless_summaries", ["session_id", "first"])
