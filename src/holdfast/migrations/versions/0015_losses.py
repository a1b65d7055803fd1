"""Lost workers cost no attempt: claims tell an owner's holds apart, losses bound what kills its process."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    for column in ("claims", "losses"):
        op.add_column("agenda", sa.Column(column, sa.Integer, nullable=False, server_default="0"))
