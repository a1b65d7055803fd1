"""The table of delegated runs."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

subagent_runs = sa.Table(
    "subagent_runs",
    metadata,
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
