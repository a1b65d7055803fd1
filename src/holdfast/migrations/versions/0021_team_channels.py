"""Groups of chat services that belong to a space: a team's own channels."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    op.create_table(
        "surface_spaces",
        sa.Column("surface", sa.Text, primary_key=True),
        sa.Column("space_id", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("given_at", sa.BigInteger, nullable=False),
    )
