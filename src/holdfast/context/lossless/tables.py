"""The tables of the lossless engine: summaries over the log, what they were made of, and projections."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, metadata

summaries = sa.Table(
    "lossless_summaries",
    metadata,
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
    sa.Column("earliest_at", sa.BigInteger, nullable=False),
    sa.Column("latest_at", sa.BigInteger, nullable=False),
    sa.Column("level", sa.Text, nullable=False),
    sa.Column("fault", sa.Text),
    sa.Column("replaces", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

links = sa.Table(
    "lossless_links",
    metadata,
    sa.Column("summary_id", sa.Text, primary_key=True),
    sa.Column("ordinal", sa.Integer, primary_key=True),
    sa.Column("source_id", sa.Text, nullable=False),
)

projections = sa.Table(
    "lossless_projections",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("items", Json, nullable=False),
    sa.Column("base", Json, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

debts = sa.Table(
    "lossless_debts",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("pending", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("token_budget", sa.BigInteger, nullable=False),
    sa.Column("current_tokens", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("next_attempt_at", sa.BigInteger, nullable=False),
    sa.Column("outcome", sa.Text),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)
