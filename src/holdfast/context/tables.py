"""The tables of the context room. All are projections: what a session's model sees, not what happened."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

blobs = sa.Table(
    "blobs",
    metadata,
    sa.Column("hash", sa.Text, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

states = sa.Table(
    "context_states",
    metadata,
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
    sa.Column("called_at", sa.BigInteger),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

prunings = sa.Table(
    "context_prunings",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("entry_id", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("form", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

manifests = sa.Table(
    "context_manifests",
    metadata,
    sa.Column("turn_id", sa.Text, primary_key=True),
    sa.Column("call", sa.Integer, primary_key=True),
    sa.Column("session_id", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

calibrations = sa.Table(
    "context_calibrations",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("factor", sa.Float, nullable=False),
    sa.Column("error", sa.Float, nullable=False),
    sa.Column("samples", sa.Integer, nullable=False),
    sa.Column("rejected", sa.Integer, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

lessons = sa.Table(
    "model_lessons",
    metadata,
    sa.Column("model", sa.Text, primary_key=True),
    sa.Column("fact", sa.Text, primary_key=True),
    sa.Column("server", sa.Text, nullable=False),
    sa.Column("value", Json, nullable=False),
    sa.Column("why", sa.Text, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)

engine_sessions = sa.Table(
    "engine_sessions",
    metadata,
    sa.Column("engine", sa.Text, primary_key=True),
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("told_turn", sa.Integer, nullable=False),
    sa.Column("told_position", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

engine_outbox = sa.Table(
    "engine_outbox",
    metadata,
    sa.Column("engine", sa.Text, primary_key=True),
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("body", Json, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("next_at", sa.BigInteger, nullable=False),
)

engine_health = sa.Table(
    "engine_health",
    metadata,
    sa.Column("engine", sa.Text, primary_key=True),
    sa.Column("calls", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.BigInteger, nullable=False),
    sa.Column("last_error", sa.Text),
    sa.Column("last_error_at", sa.BigInteger),
    sa.Column("last_ok_at", sa.BigInteger),
)
