"""Alembic's entry: runs the revisions on the connection that `migrate` hands over."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    transaction_per_migration=False,
    render_as_batch=False,
)
context.run_migrations()
