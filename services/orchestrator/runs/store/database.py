"""The database: its address, its engine, and its clock."""

from pathlib import Path
from typing import Any, Final

from sqlalchemy import Double, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.expression import FunctionElement

_SQLITE_FILE: Final = "runs.sqlite3"
_CHECKPOINT_FILE: Final = "checkpoints.sqlite3"
_BUSY_SECONDS: Final = 10.0
# A process that is stopped in the middle of a transaction would keep its runs locked, and nobody could take them up.
STALLED: Final = "-c idle_in_transaction_session_timeout=2000"
"""Option of PostgreSQL connections: the server breaks off a transaction whose client has been silent for so many ms."""
WRITES: Final = "errata_writes"
"""Execution option of a connection whose transactions write."""


class DatabaseAddressInvalid(ValueError):
    """ERRATA_DATABASE_URL is no address of a PostgreSQL database."""


class now_epoch(FunctionElement[float]):  # noqa: N801 - it reads as a function in statements
    """Seconds since 1970 by the database's clock, at the statement."""

    type = Double()
    inherit_cache = True


@compiles(now_epoch, "postgresql")
def _now_postgresql(element: Any, compiler: Any, **options: Any) -> str:
    return "EXTRACT(EPOCH FROM clock_timestamp())::double precision"


@compiles(now_epoch, "sqlite")
def _now_sqlite(element: Any, compiler: Any, **options: Any) -> str:
    # 2440587.5 is the Julian day of 1970-01-01. unixepoch('subsec') came later than the SQLite of Debian 12.
    return "((julianday('now') - 2440587.5) * 86400.0)"


def database_url(address: str | None, data_dir: Path) -> URL:
    """Where runs are kept: the PostgreSQL address, or a file in the data folder without one. Raises DatabaseAddressInvalid."""
    if not address:
        return URL.create("sqlite+aiosqlite", database=str(data_dir / _SQLITE_FILE))
    try:
        url = make_url(address)
    except ArgumentError:
        raise DatabaseAddressInvalid("must be an address such as postgresql://user:password@host:5432/errata") from None
    if url.get_backend_name() not in {"postgresql", "postgres"}:
        raise DatabaseAddressInvalid("must start with postgresql://")
    return url.set(drivername="postgresql+psycopg")


def checkpoint_file(url: URL) -> Path:
    """The checkpoints' own SQLite file, beside that of the runs."""
    return Path(str(url.database)).with_name(_CHECKPOINT_FILE)


def libpq_url(url: URL) -> str:
    """The address as PostgreSQL's own library reads it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def reading_from(engine: AsyncEngine) -> AsyncConnection:
    """A connection for reading, to be used in `async with`. Each statement sees what is committed when it starts."""
    if engine.dialect.name == "postgresql":
        # A transaction would cost two more round trips, and hold nothing that a reader needs.
        engine = engine.execution_options(isolation_level="AUTOCOMMIT")
    return engine.connect()


def is_sqlite(url: URL) -> bool:
    """Whether runs are kept in a file."""
    return url.get_backend_name() == "sqlite"


def open_database(url: URL, pool_size: int = 4) -> AsyncEngine:
    """An engine; it connects on first use."""
    if not is_sqlite(url):
        sizes = {"pool_size": pool_size, "max_overflow": pool_size}
        return create_async_engine(url, **sizes, pool_recycle=1800, connect_args={"options": STALLED})
    engine = create_async_engine(url, connect_args={"timeout": _BUSY_SECONDS})

    @event.listens_for(engine.sync_engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        # Without this the driver opens transactions on its own, and too late: see _begin.
        connection.isolation_level = None
        cursor = connection.cursor()
        # WAL: readers do not wait for the writer. FULL: a stored event survives a power failure, not only a crash.
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: Any) -> None:
        # A transaction that reads before it writes could not become a writer when another was faster, so writers say so.
        writes = connection.get_execution_options().get(WRITES)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
