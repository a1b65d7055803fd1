"""The tables of heartbeats and of where people last spoke."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

heartbeats = sa.Table(
    "heartbeats",
    metadata,
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

last_surfaces = sa.Table(
    "last_surfaces",
    metadata,
    sa.Column("session_key", sa.Text, primary_key=True),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("direct", sa.Boolean, nullable=False),
    sa.Column("deliver", Json, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)
