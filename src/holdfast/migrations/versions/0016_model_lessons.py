"""What a model's server taught by refusing a request, with when and why."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0016"
down_revision = "0015"
Json = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "model_lessons",
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("fact", sa.Text, primary_key=True),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("value", Json, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
