"""Notes for a session: what its next turn should know of, from the runtime, a child or another session."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.create_table(
        "notes",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("session_key", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("trust", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("turn_id", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("taken_at", sa.BigInteger),
    )
    op.create_index(
        "notes_waiting",
        "notes",
        ["session_key", "created_at", "id"],
        sqlite_where=sa.text("taken_at IS NULL"),
        postgresql_where=sa.text("taken_at IS NULL"),
    )
    op.create_index("notes_taken", "notes", ["taken_at"])
