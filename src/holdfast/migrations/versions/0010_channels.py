"""Channels: which session a surface is bound to, what came in, who is let in, and how far was sent."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    _surfaces()
    _coming_in()
    _going_out()


def _surfaces() -> None:
    op.create_table(
        "surface_bindings",
        sa.Column("surface", sa.Text, primary_key=True),
        sa.Column("session_key", sa.Text, nullable=False),
        sa.Column("bound_at", sa.BigInteger, nullable=False),
    )


def _coming_in() -> None:
    op.create_table(
        "channel_messages",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("run_id", sa.Text),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    op.create_index("channel_messages_channel", "channel_messages", ["channel", "received_at"])
    op.create_index("channel_messages_received", "channel_messages", ["received_at"])
    op.create_table(
        "channel_pairings",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("sender", sa.Text, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("surface", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("owner", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("decided_at", sa.BigInteger),
    )
    op.create_index("channel_pairings_sender", "channel_pairings", ["channel", "sender"], unique=True)
    op.create_index("channel_pairings_status", "channel_pairings", ["status", "channel", "created_at"])


def _going_out() -> None:
    op.create_table(
        "channel_streams",
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("said", sa.Text, nullable=False),
        sa.Column("fence", Json),
        sa.Column("blocks", sa.Integer, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("preview", sa.Text),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("channel_streams_updated", "channel_streams", ["updated_at"])
    op.create_table(
        "channel_receipts",
        sa.Column("outbox_id", sa.Text, primary_key=True),
        sa.Column("piece", sa.Integer, primary_key=True),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text),
        sa.Column("sent_at", sa.BigInteger, nullable=False),
    )
    op.create_index("channel_receipts_message", "channel_receipts", ["channel", "message_id"])
    op.create_index("channel_receipts_sent", "channel_receipts", ["channel", "sent_at"])
    pending = sa.text("status = 'pending'")
    op.create_index(
        "outbox_pending",
        "outbox",
        ["target", "created_at", "id"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
