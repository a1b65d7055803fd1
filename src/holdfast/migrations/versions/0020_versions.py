"""Config and skills that several gateways share, version by version."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    op.create_table(
        "versions",
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
