"""What an approval holds for: the files that a command runs, and why it may not be given for good."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0012"
down_revision = "0011"

Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    op.add_column("approvals", sa.Column("files", Json))
    op.add_column("approvals", sa.Column("why_not_always", sa.Text))
    op.add_column("allowed_commands", sa.Column("shown", Json))
