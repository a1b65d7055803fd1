"""The tables of the log room. Their creation, with the index that each query needs, is in `migrations`."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

metadata = sa.MetaData()

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
Serial = sa.BigInteger().with_variant(sa.Integer(), "sqlite")

entries = sa.Table(
    "entries",
    metadata,
    sa.Column("position", Serial, primary_key=True, autoincrement=True),
    sa.Column("id", sa.Text, nullable=False, unique=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("role", sa.Text),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("session_key", sa.Text),
    sa.Column("session_id", sa.Text),
    sa.Column("turn_id", sa.Text),
    sa.Column("agent_id", sa.Text),
    sa.Column("agent_label", sa.Text),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("summary", sa.Text),
    sa.Column("raw", sa.Text),
    sa.Column("space_id", sa.Text),
    sa.Column("given_space", sa.Text),
    sa.Column("topic_id", sa.Text),
    sa.Column("task_id", sa.Text),
    sa.Column("related_id", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("code", sa.Text),
    sa.Column("source", Json),
    sa.Column("idempotency_key", sa.Text),
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger),
)

entry_revisions = sa.Table(
    "entry_revisions",
    metadata,
    sa.Column("entry_id", sa.Text, sa.ForeignKey("entries.id"), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("content", sa.Text, nullable=False),
    sa.Column("raw", sa.Text),
    sa.Column("replaced_at", sa.BigInteger, nullable=False),
)

changes = sa.Table(
    "changes",
    metadata,
    sa.Column("seq", Serial, primary_key=True, autoincrement=True),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("entity_id", sa.Text, nullable=False),
    sa.Column("payload", Json),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("space_id", sa.Text),
    sa.Column("agent_id", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("chat_type", sa.Text),
    sa.Column("channel", sa.Text),
    sa.Column("label", sa.Text),
    sa.Column("parent_key", sa.Text),
    sa.Column("successor_id", sa.Text),
    sa.Column("input_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("output_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("total_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("context_tokens", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("compaction_count", sa.Integer, nullable=False, server_default="0"),
    sa.Column("memory_flush_at", sa.BigInteger),
    sa.Column("memory_flush_compaction_count", sa.Integer),
    sa.Column("turn_count", sa.Integer, nullable=False, server_default="0"),
    sa.Column("meta", Json),
    sa.Column("revision", sa.Integer, nullable=False, server_default="0"),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("last_external_at", sa.BigInteger, nullable=False),
    sa.Column("archived_at", sa.BigInteger),
    sa.Column("archive_cause", sa.Text),
)

turns = sa.Table(
    "turns",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("session_id", sa.Text, sa.ForeignKey("sessions.id"), nullable=False),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("trigger", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False, server_default="0"),
    sa.Column("agenda_id", sa.Text),
    sa.Column("input_id", sa.Text),
    sa.Column("reply_id", sa.Text),
    sa.Column("model", sa.Text),
    sa.Column("usage", Json),
    sa.Column("meta", Json),
    sa.Column("error", sa.Text),
    sa.Column("accepted_at", sa.BigInteger, nullable=False),
    sa.Column("started_at", sa.BigInteger),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("chain_id", sa.Text),
)

chains = sa.Table(
    "chains",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("agent_id", sa.Text),
    sa.Column("audience", sa.Text, nullable=False),
    sa.Column("trigger", sa.Text, nullable=False),
    sa.Column("sender", sa.Text),
    sa.Column("entry_id", sa.Text),
    sa.Column("steps", sa.Integer, nullable=False),
    sa.Column("sent", sa.Integer, nullable=False),
    sa.Column("tokens", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.Float, nullable=False),
    sa.Column("traceparent", sa.Text),
    sa.Column("started_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("stopped_at", sa.BigInteger),
    sa.Column("stop_reason", sa.Text),
)

halts = sa.Table(
    "halts",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("since", sa.BigInteger, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
)

agenda = sa.Table(
    "agenda",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("lane", sa.Text, nullable=False),
    sa.Column("key", sa.Text),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("max_attempts", sa.Integer, nullable=False),
    sa.Column("payload", Json, nullable=False),
    sa.Column("owner", sa.Text),
    sa.Column("lease_until", sa.BigInteger),
    sa.Column("cancel_requested", sa.Boolean, nullable=False),
    sa.Column("error", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.BigInteger),
    sa.Column("claims", sa.Integer, nullable=False, server_default="0"),
    sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
)

outbox = sa.Table(
    "outbox",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("payload", Json, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("receipt", sa.Text),
    sa.Column("error", sa.Text),
    sa.Column("agenda_id", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger, nullable=False),
    sa.Column("delivered_at", sa.BigInteger),
)

notes = sa.Table(
    "notes",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("session_key", sa.Text, nullable=False),
    sa.Column("audience", sa.Text, nullable=False, server_default="owner"),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("trust", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("turn_id", sa.Text),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("expires_at", sa.BigInteger),
    sa.Column("taken_at", sa.BigInteger),
)

leases = sa.Table(
    "leases",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("owner", sa.Text, nullable=False),
    sa.Column("until", sa.BigInteger, nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
)

exposed_surfaces = sa.Table(
    "exposed_surfaces",
    metadata,
    sa.Column("surface", sa.Text, primary_key=True),
    sa.Column("sender", sa.Text, nullable=False),
    sa.Column("exposed_at", sa.BigInteger, nullable=False),
)

surface_spaces = sa.Table(
    "surface_spaces",
    metadata,
    sa.Column("surface", sa.Text, primary_key=True),
    sa.Column("space_id", sa.Text, nullable=False),
    sa.Column("address", sa.Text, nullable=False),
    sa.Column("given_at", sa.BigInteger, nullable=False),
)

audit_trail = sa.Table(
    "audit_trail",
    metadata,
    sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("act", sa.Text, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("surface", sa.Text, nullable=False),
    sa.Column("address", sa.Text),
    sa.Column("behalf_of", sa.Text),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("details", Json, nullable=False),
    sa.Column("before", sa.Text, nullable=False),
    sa.Column("digest", sa.Text, nullable=False),
)

versions = sa.Table(
    "versions",
    metadata,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("actor", sa.Text, nullable=False),
    sa.Column("surface", sa.Text, nullable=False),
    sa.Column("what", sa.Text, nullable=False),
    sa.Column("sha256", sa.Text),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("content", sa.LargeBinary),
)
