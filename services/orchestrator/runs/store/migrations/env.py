"""What Alembic runs: the migrations of the run store, on a connection that the caller has opened."""

from alembic import context

from services.orchestrator.runs.store.tables import metadata

connection = context.config.attributes["connection"]
# Batches copy a table where SQLite can't alter it.
context.configure(connection=connection, target_metadata=metadata, render_as_batch=connection.dialect.name == "sqlite")
with context.begin_transaction():
    context.run_migrations()
