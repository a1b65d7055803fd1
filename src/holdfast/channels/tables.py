"""The tables of channels."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

surface_bindings = sa.Table(
    "surface_bindings",
    metadata,
    sa.Column("surface", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("bound_at", sa.BigInteger, nullable=False),
)

channel_messages = sa.Table(
    "channel_messages",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("run_id", sa.Text),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

channel_pairings = sa.Table(
    "channel_pairings",
    metadata,
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

channel_streams = sa.Table(
    "channel_streams",
    metadata,
    sa.Column("turn_id", sa.Text, primary_key=True),
    sa.Column("said", sa.Text, nullable=False),
    sa.Column("fence", Json),
    sa.Column("blocks", sa.Integer, nullable=False),
    sa.Column("closed", sa.Boolean, nullable=False),
    sa.Column("preview", sa.Text),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

channel_receipts = sa.Table(
    "channel_receipts",
    metadata,
    sa.Column("outbox_id", sa.Text, primary_key=True),
    sa.Column("piece", sa.Integer, primary_key=True),
    sa.Column("channel", sa.Text, nullable=False),
    sa.Column("message_id", sa.Text),
    sa.Column("sent_at", sa.BigInteger, nullable=False),
)
