"""What the model of each session sees: projections, manifests, contents by hash, token calibration."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"

Json = sa.JSON().with_variant(JSONB(), "postgresql")
Time = sa.BigInteger


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("created_at", Time, nullable=False),
    )
    _states()
    op.create_table(
        "context_prunings",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("entry_id", sa.Text, primary_key=True),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("form", sa.Text, nullable=False),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("context_prunings_place", "context_prunings", ["session_id", "position"])
    op.create_table(
        "context_manifests",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("call", sa.Integer, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("body", Json, nullable=False),
        sa.Column("created_at", Time, nullable=False),
    )
    op.create_index("context_manifests_turn", "context_manifests", ["session_id", "number", "call"])
    op.create_index("context_manifests_created", "context_manifests", ["created_at"])
    op.create_table(
        "context_calibrations",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("factor", sa.Float, nullable=False),
        sa.Column("error", sa.Float, nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("rejected", sa.Integer, nullable=False),
        sa.Column("updated_at", Time, nullable=False),
    )


def _states() -> None:
    op.create_table(
        "context_states",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("agent_id", sa.Text),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("floor", sa.BigInteger, nullable=False),
        sa.Column("cut", sa.BigInteger, nullable=False),
        sa.Column("summary_id", sa.Text),
        sa.Column("fork_session_id", sa.Text),
        sa.Column("fork_until", sa.BigInteger),
        sa.Column("first_session", sa.Boolean, nullable=False),
        sa.Column("daily", Json),
        sa.Column("called_at", Time),
        sa.Column("updated_at", Time, nullable=False),
    )
    op.create_index("context_states_agent", "context_states", ["agent_id"])
