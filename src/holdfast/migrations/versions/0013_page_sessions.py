"""Page sessions: a browser's login as a row, so that it can be ended."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    op.create_table(
        "page_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("token_id", sa.Text, nullable=False),
        sa.Column("home_token", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("last_used_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index("page_sessions_token", "page_sessions", ["token_id", "created_at"])
    op.create_index("page_sessions_expires", "page_sessions", ["expires_at"])
