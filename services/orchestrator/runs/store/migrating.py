"""Brings a database to the tables that this build knows."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.orchestrator.runs.store.database import WRITES

# Any number, as long as everybody who migrates uses the same.
_LOCK: Final = 7_253_981


class DatabaseBehind(Exception):
    """The database has other tables than this build needs."""


async def migrate(engine: AsyncEngine) -> tuple[str, str]:
    """Apply what is missing, one process at a time. Returns the revision before, empty for a new database, and after."""
    async with _migrating(engine) as connection:
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


@contextlib.asynccontextmanager
async def _migrating(engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """A transaction to migrate in."""
    async with engine.execution_options(**{WRITES: True}).connect() as connection:
        if engine.dialect.name != "sqlite":
            async with connection.begin():
                yield connection
            return
        # SQLite alters a table by copying it, and dropping the old one would take its events along. Inside a transaction the
        # pragma does nothing, so it goes to the driver's own connection.
        driver = (await connection.get_raw_connection()).driver_connection
        assert driver is not None, "it is connected"  # noqa: S101
        await driver.execute("PRAGMA foreign_keys=OFF")
        try:
            async with connection.begin():
                yield connection
                broken = (await connection.execute(text("PRAGMA foreign_key_check"))).first()
                if broken is not None:
                    raise RuntimeError(f"the migration would break references: {tuple(broken)}")
        finally:
            await driver.execute("PRAGMA foreign_keys=ON")


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
