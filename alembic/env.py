"""Alembic environment: runs the migrations on the connection in `attributes`, within its transaction."""

from alembic import context

from admission.store.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite has little of ALTER TABLE, so tables are copied. Its DDL is transactional, which alembic does not assume.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
