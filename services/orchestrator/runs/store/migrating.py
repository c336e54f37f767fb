"""Brings a database to the tables that this build knows."""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.orchestrator.runs.store.writer import writing

# Any number, as long as everybody who migrates uses the same.
_LOCK: Final = 7_253_981


class DatabaseBehind(Exception):
    """The database has other tables than this build needs."""


async def migrate(engine: AsyncEngine) -> tuple[str, str]:
    """Apply what is missing, one process at a time. Returns the revision before, empty for a new database, and after."""
    async with writing(engine) as connection:
        if engine.dialect.name == "postgresql":
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        return await connection.run_sync(_upgrade)


async def check_migrated(engine: AsyncEngine) -> None:
    """Raises DatabaseBehind unless the database is at the revision that this build needs."""
    async with engine.connect() as connection:
        found = await connection.run_sync(_revision)
    needed = ScriptDirectory.from_config(_config()).get_current_head()
    if found != needed:
        raise DatabaseBehind(
            f"The database is at revision {found or 'none'}, and this build needs {needed}: run `errata migrate`"
        )


def _upgrade(connection: Connection) -> tuple[str, str]:
    config = _config()
    config.attributes["connection"] = connection
    before = _revision(connection)
    command.upgrade(config, "head")
    return before, _revision(connection)


def _revision(connection: Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or ""


def _config() -> Config:
    config = Config()
    # A percent sign in a path would be an interpolation.
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config
