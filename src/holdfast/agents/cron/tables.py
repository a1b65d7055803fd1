"""The tables of standing tasks and of the calls of webhooks."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

standing_tasks = sa.Table(
    "standing_tasks",
    metadata,
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

hook_calls = sa.Table(
    "hook_calls",
    metadata,
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)
