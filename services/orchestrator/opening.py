"""Opens what an orchestrator keeps: the database of its runs, their checkpoints and the signals between replicas."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from errata_kit.errors import ServiceUnavailable, StartFailed
from services.orchestrator.runs.checkpoints import Checkpoints, classes_in, open_checkpoints, prepare_checkpoints
from services.orchestrator.runs.signals import Signals
from services.orchestrator.runs.store.database import database_url, is_sqlite, open_database
from services.orchestrator.runs.store.migrating import DatabaseBehind, check_migrated, migrate
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.state import AnswerState
from services.orchestrator.workflows.compose.state import ComposeState

# The lease as stored is shorter by what finding a dead replica's run takes, so that the setting is what an operator sees.
_LEASE_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class Opened:
    """What is open. replica: this process, different after each start. lease_seconds: as stored."""

    replica: str
    lease_seconds: float
    database: AsyncEngine
    store: RunStore
    checkpoints: Checkpoints
    signals: Signals


@contextlib.asynccontextmanager
async def opened(settings: OrchestratorSettings, replica: str) -> AsyncIterator[Opened]:
    """Open everything inside the block.

    A SQLite file is brought up to date here; PostgreSQL, which others may be using, only by `errata migrate`.
    """
    url = url_of(settings)
    async with contextlib.AsyncExitStack() as stack:
        database = open_database(url)
        stack.push_async_callback(database.dispose)
        await _ready(database, url, settings)
        checkpoints = await stack.enter_async_context(open_checkpoints(url, classes_in(AnswerState, ComposeState)))
        lease = settings.lease_seconds * _LEASE_SHARE
        store = RunStore(database, replica, lease)
        stack.push_async_callback(store.aclose)
        signals = Signals(url)
        stack.push_async_callback(signals.aclose)
        yield Opened(replica, lease, database, store, checkpoints, signals)


async def bring_up_to_date(settings: OrchestratorSettings) -> str:
    """Apply the migrations that the database lacks. Returns a sentence about what was done."""
    url = url_of(settings)
    if is_sqlite(url):
        await asyncio.to_thread(settings.data_dir.mkdir, parents=True, exist_ok=True)
    database = open_database(url)
    try:
        before, after = await migrate(database)
    finally:
        await database.dispose()
    if not is_sqlite(url):
        await prepare_checkpoints(url)
    where = _shown(url)
    if before == after:
        return f"{where} is up to date (revision {after})."
    return f"{where} was brought from revision {before or 'none'} to {after}."


def url_of(settings: OrchestratorSettings) -> URL:
    """The address of the database."""
    address = settings.database_url
    return database_url(None if address is None else address.get_secret_value(), settings.data_dir)


async def _ready(database: AsyncEngine, url: URL, settings: OrchestratorSettings) -> None:
    try:
        if is_sqlite(url):
            await asyncio.to_thread(settings.data_dir.mkdir, parents=True, exist_ok=True)
            await migrate(database)
        else:
            await check_migrated(database)
    except DatabaseBehind as error:
        raise StartFailed(str(error)) from None
    except (SQLAlchemyError, OSError, ServiceUnavailable) as error:
        where = _shown(url)
        raise StartFailed(f"The database of the runs ({where}) can't be opened: {_first_line(error)}") from error


def _shown(url: URL) -> str:
    # Without the driver, which nobody has asked for, and without the password.
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)


def _first_line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return str(cause).strip().split("\n")[0][:300]
