"""How alembic runs our migrations: on the connection it is handed, in that connection's transaction."""

from alembic import context

from admission.store.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite can alter hardly anything: the table is copied. Its DDL is transactional, which alembic does not assume.
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
