"""Approvals by several people, who stands in for whom, where people are reached; budgets of teams; logins
by a provider under way."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0019"
down_revision = "0018"
Json = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("users", sa.Column("away_until", sa.BigInteger))
    op.add_column("users", sa.Column("delegate_id", sa.Text))
    op.add_column("teams", sa.Column("budget", Json))
    op.create_index("turns_of_audience", "turns", ["audience", "accepted_at"])
    op.create_table(
        "approval_votes",
        sa.Column("approval_id", sa.Text, primary_key=True),
        sa.Column("person", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("behalf_of", sa.Text),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "user_contacts",
        sa.Column("handle", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, nullable=False, index=True),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("linked_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "login_codes",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("kept", Json, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
