"""The tables of continuation: what was elected, and what is known of each session."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log import chains
from holdfast.log.tables import Json, metadata

records = sa.Table(
    "continuation_records",
    metadata,
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
    sa.Column("elected_in", sa.Text),
    sa.Column("call", sa.Text),
)

session_states = sa.Table(
    "continuation_sessions",
    metadata,
    sa.Column("session_id", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("band", sa.Integer),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("window", sa.BigInteger, nullable=False),
    sa.Column("idle_turns", sa.Integer, nullable=False),
    sa.Column("idle_at", sa.BigInteger),
    sa.Column("compactions", Json, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
)

_LIVE = records.c.status.in_([sa.literal_column("'queued'"), sa.literal_column("'running'")])
chains.takes_part(
    chains.Part(
        "election",
        records.c.chain_id,
        records.c.owner_session_key,
        _LIVE,
        at_work=sa.and_(_LIVE, records.c.phase != "staged"),
    )
)
