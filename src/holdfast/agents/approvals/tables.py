"""The tables of approvals, allowed commands and the account of decisions."""

from __future__ import annotations

import sqlalchemy as sa

from holdfast.log.tables import Json, Serial, metadata

approvals = sa.Table(
    "approvals",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("session_key", sa.Text),
    sa.Column("turn_id", sa.Text),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("arguments", Json, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("files", Json),
    sa.Column("why_not_always", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("decided_by", sa.Text),
    sa.Column("decided_at", sa.BigInteger),
    sa.Column("used_at", sa.BigInteger),
    sa.Column("expires_at", sa.BigInteger, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

approval_votes = sa.Table(
    "approval_votes",
    metadata,
    sa.Column("approval_id", sa.Text, primary_key=True),
    sa.Column("person", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("behalf_of", sa.Text),
    sa.Column("at", sa.BigInteger, nullable=False),
)

allowed_commands = sa.Table(
    "allowed_commands",
    metadata,
    sa.Column("agent_id", sa.Text, primary_key=True),
    sa.Column("pattern", sa.Text, primary_key=True),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("created_by", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("last_used_at", sa.BigInteger),
    sa.Column("last_used_command", sa.Text),
    sa.Column("shown", Json),
)

tool_audit = sa.Table(
    "tool_audit",
    metadata,
    sa.Column("seq", Serial, primary_key=True, autoincrement=True),
    sa.Column("event", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text, nullable=False),
    sa.Column("session_key", sa.Text),
    sa.Column("tool", sa.Text, nullable=False),
    sa.Column("command", sa.Text, nullable=False),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("actor", sa.Text),
    sa.Column("approval_id", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)
