"""Run stores on both databases, and what runs are made of. tests/contract/conftest.py offers the fixtures."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uuid_utils
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.passages import Draft
from errata_kit.usage import ModelCall
from services.orchestrator.runs import events
from services.orchestrator.runs.events import ApprovalDecided, ApprovalDecision, Outcome, RunFinished, RunStarted, TraceEvent
from services.orchestrator.runs.run import Lease, RunOptions
from services.orchestrator.runs.store.database import open_database
from services.orchestrator.runs.store.migrating import migrate
from services.orchestrator.runs.store.store import RunStore
from tests.harness.postgres import PostgresServer, postgres_server

LONG = 60.0
SHORT = 0.2
WORKFLOWS = ("answer", "compose")
CALL = ModelCall(
    model="double", operation="grade_passage", prompt_version="v1", input_tokens=10, output_tokens=3, cost_micros=7, attempts=1
)


@dataclasses.dataclass(frozen=True, slots=True)
class Database:
    """A database that tests may do anything with."""

    kind: str
    url: URL


@dataclasses.dataclass(frozen=True, slots=True)
class Stores:
    """The stores of two replicas on one database. Leases of `hasty` last a moment only."""

    database: Database
    engine: AsyncEngine
    one: RunStore
    two: RunStore
    hasty: RunStore


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A private PostgreSQL."""
    with postgres_server() as server:
        yield server


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sqlite", marks=pytest.mark.xdist_group("store-sqlite")),
        pytest.param("postgres", marks=pytest.mark.xdist_group("runs-postgres")),
    ],
)
def template(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A database that was brought up to date once, to be copied."""
    if request.param == "sqlite":
        database = Database("sqlite", sqlite_url(tmp_path_factory.mktemp("template")))
        asyncio.run(brought_up_to_date(database))
        yield database
        return
    with request.getfixturevalue("postgres").database() as address:
        database = Database("postgres", make_url(address).set(drivername="postgresql+psycopg"))
        asyncio.run(brought_up_to_date(database))
        yield database


@pytest.fixture
def database(template: Database, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database of the test's own, with the tables in it."""
    if template.kind == "sqlite":
        shutil.copy(str(template.url.database), tmp_path)
        yield Database("sqlite", sqlite_url(tmp_path))
        return
    with request.getfixturevalue("postgres").database(str(template.url.database)) as address:
        yield Database("postgres", make_url(address).set(drivername="postgresql+psycopg"))


@pytest_asyncio.fixture
async def stores(database: Database) -> AsyncIterator[Stores]:
    """Two replicas."""
    async with contextlib.AsyncExitStack() as stack:
        made = []
        for owner, ttl in (("one", LONG), ("two", LONG), ("hasty", SHORT)):
            engine = open_database(database.url)
            stack.push_async_callback(engine.dispose)
            made.append((engine, RunStore(engine, owner, ttl)))
            stack.push_async_callback(made[-1][1].aclose)
        yield Stores(database, made[0][0], *(store for _, store in made))


def sqlite_url(folder: Path) -> URL:
    return URL.create("sqlite+aiosqlite", database=str(folder / "runs.sqlite3"))


async def brought_up_to_date(database: Database) -> None:
    engine = open_database(database.url)
    await migrate(engine)
    await engine.dispose()


# --- what runs are made of --------------------------------------------------------------------------------------------


def started(workflow: str = "answer") -> RunStarted:
    return RunStarted(workflow, "How long?", "default", None, draft_supplied=False)


async def create(store: RunStore, owner: str = "one", workflow: str = "answer", **options: Any) -> Lease:
    run_id = str(uuid_utils.uuid7())
    created = await store.create(run_id, '{"asked": 1}', started(workflow), RunOptions(**options), 30.0)
    assert created.run_id == run_id
    return Lease(run_id, owner, 1)


def event(lease: Lease, sequence: int, payload: Any = None) -> TraceEvent:
    found = payload or events.PassagesRetrieved(sequence, "query", (), ())
    return TraceEvent(lease.run_id, sequence, datetime.datetime.now(datetime.UTC), found)


async def finish(store: RunStore, lease: Lease, outcome: Outcome = Outcome.ANSWERED, sequence: int = 2) -> None:
    end = event(lease, sequence, RunFinished(outcome))
    changes = {"state": "FINISHED", "outcome": outcome.value, "finish_time": end.create_time}
    await store.append(lease, (end,), {}, {**changes, "lease_owner": None, "lease_expires": 0.0})


async def wait_for_a_person(store: RunStore, lease: Lease, approval: int = 1, sequence: int = 2) -> None:
    asked = event(lease, sequence, events.ApprovalRequested(approval, 0, Draft("text"), 0.9))
    changes = {"state": "WAITING", "approval": approval, "lease_owner": None, "lease_expires": 0.0}
    await store.append(lease, (asked,), {}, changes)


async def eventually(attempt: Callable[[], Awaitable[Any]]) -> Any:
    """What the attempt returns, once that is something."""
    limit = time.monotonic() + 10
    while not (result := await attempt()):
        assert time.monotonic() < limit
        await asyncio.sleep(0.02)
    return result


async def sequences(store: RunStore, run_id: str) -> list[int]:
    return [item.sequence for item in await store.events(DEFAULT_TENANT, run_id, 0)]


def decision(approval: int = 0) -> ApprovalDecided:
    return ApprovalDecided(approval, ApprovalDecision.REVISE, "shorter", "ann")
