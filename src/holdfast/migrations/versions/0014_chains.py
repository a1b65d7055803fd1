"""Chains: all that follows from one entry from outside, with one budget; and the switch that halts a home.

What was the chain of one session becomes a chain of its own, so that work which waits stays within its caps.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0014"
down_revision = "0013"

Json = sa.JSON().with_variant(JSONB(), "postgresql")
_KEPT = "session_id, session_key, band, used, window, idle_turns, idle_at, compactions, updated_at"


def upgrade() -> None:
    op.create_table(
        "chains",
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
    op.create_index("chains_updated", "chains", ["updated_at", "id"])
    op.create_table(
        "halts",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
    )
    for table in ("turns", "subagent_runs"):
        op.add_column(table, sa.Column("chain_id", sa.Text))
    op.add_column("subagent_runs", sa.Column("parts", sa.Integer, nullable=False, server_default="0"))
    op.create_index("turns_chain", "turns", ["chain_id"])
    unended = sa.text("status IN ('accepted', 'running', 'interrupted')")
    op.create_index("turns_unended", "turns", ["session_key"], sqlite_where=unended, postgresql_where=unended)
    _partial("subagent_runs_chain", "subagent_runs", "status <> 'ended'")
    _partial("subagent_runs_returning", "subagent_runs", "announce = 'waiting'")
    _partial("continuation_chain", "continuation_records", "status IN ('queued', 'running')")
    for column in ("elected_in", "call"):
        op.add_column("continuation_records", sa.Column(column, sa.Text))
    live = sa.text("status IN ('queued', 'running')")
    columns = ["elected_in", "call"]
    op.create_index(
        "continuation_elected_in", "continuation_records", columns, sqlite_where=live, postgresql_where=live
    )
    _split_session_chains()


def _partial(name: str, table: str, where: str) -> None:
    clause = sa.text(where)
    op.create_index(name, table, ["chain_id"], sqlite_where=clause, postgresql_where=clause)


def _split_session_chains() -> None:
    op.create_table(
        "continuation_sessions",
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
    kept = ", ".join(f'"{name.strip()}"' for name in _KEPT.split(","))
    op.execute(f"INSERT INTO continuation_sessions ({kept}) SELECT {kept} FROM continuation_chains")
    op.execute(
        "INSERT INTO chains (id, session_key, agent_id, audience, trigger, steps, sent, tokens, cost,"
        " traceparent, started_at, updated_at)"
        " SELECT c.chain_id, c.session_key, s.agent_id, s.audience, 'user', c.count, 0, c.tokens, 0,"
        " c.traceparent, COALESCE(c.started_at, c.updated_at), c.updated_at"
        " FROM continuation_chains c JOIN sessions s ON s.id = c.session_id"
        " WHERE EXISTS (SELECT 1 FROM continuation_records r WHERE r.chain_id = c.chain_id)"
    )
    op.drop_table("continuation_chains")
    _chains_of_what_waits()


def _chains_of_what_waits() -> None:
    """A session kept its newest chain alone; what still waits of others, or of none yet, gets one too."""
    live = "r.status IN ('queued', 'running')"
    op.execute(f"UPDATE continuation_records AS r SET chain_id = record_id WHERE chain_id IS NULL AND {live}")
    op.execute(
        "INSERT INTO chains (id, session_key, agent_id, audience, trigger, steps, sent, tokens, cost,"
        " started_at, updated_at)"
        " SELECT r.chain_id, MIN(r.owner_session_key), MIN(r.agent_id), MIN(s.audience), 'user', COUNT(*), 0,"
        " 0, 0, MIN(r.created_at), MAX(r.updated_at)"
        " FROM continuation_records r JOIN sessions s ON s.id = r.session_id"
        f" WHERE {live} AND NOT EXISTS (SELECT 1 FROM chains c WHERE c.id = r.chain_id)"
        " GROUP BY r.chain_id"
    )
