"""People who log in, their teams and invitations, whose a token is, and the audit trail."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0018"
down_revision = "0017"
Json = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    _audit_trail()
    _users()
    _teams()
    op.add_column("tokens", sa.Column("user_id", sa.Text))
    op.drop_index("tokens_name", table_name="tokens")
    op.execute(
        "CREATE UNIQUE INDEX tokens_name ON tokens (name, coalesce(user_id, '')) WHERE revoked_at IS NULL"
    )
    op.add_column("page_sessions", sa.Column("address", sa.Text))
    op.add_column("page_sessions", sa.Column("program", sa.Text))


def _audit_trail() -> None:
    op.create_table(
        "audit_trail",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("act", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("surface", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("behalf_of", sa.Text),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
    )
    for name in ("act", "actor", "target"):
        op.create_index(f"audit_trail_{name}", "audit_trail", [name, "seq"])


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("login", sa.Text, nullable=False, unique=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("password", sa.Text),
        sa.Column("issuer", sa.Text),
        sa.Column("subject", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("last_login_at", sa.BigInteger),
        sa.Column("failed_logins", sa.Integer, nullable=False, server_default="0"),
        sa.Column("wait_until", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_index("users_of_provider", "users", ["issuer", "subject"], unique=True)
    op.create_table(
        "invitations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("hash", sa.Text, nullable=False, unique=True),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("team_id", sa.Text),
        sa.Column("invited_by", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_by", sa.Text),
        sa.Column("ended_at", sa.BigInteger),
    )


def _teams() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("space_id", sa.Text, nullable=False),
        sa.Column("agents", Json, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "team_members",
        sa.Column("team_id", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Text, primary_key=True),
        sa.Column("joined_at", sa.BigInteger, nullable=False),
    )
