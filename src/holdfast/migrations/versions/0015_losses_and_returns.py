"""Lost workers cost no attempt: claims tell an owner's holds apart, losses bound what kills its process.

Returns of subagents that are on their way are found by their chain, and whatever was elected has one.
"""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    for column in ("claims", "losses"):
        op.add_column("agenda", sa.Column(column, sa.Integer, nullable=False, server_default="0"))
    waiting = sa.text("announce = 'waiting'")
    op.create_index(
        "subagent_runs_returning",
        "subagent_runs",
        ["chain_id"],
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    _chains_of_what_waits()


def _chains_of_what_waits() -> None:
    """A session once kept its newest chain alone; what waits of others, or of none yet, gets one too."""
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
