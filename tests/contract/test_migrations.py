"""From the first tables to those with tenants and back, with everything in them: on SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import datetime
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from alembic import command
from sqlalchemy import Connection, MetaData, column, inspect, table, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from errata_kit.access.principals import DEFAULT_TENANT
from services.orchestrator.runs.run import RunOptions, RunQuery
from services.orchestrator.runs.store import migrating
from services.orchestrator.runs.store.database import WRITES, open_database
from services.orchestrator.runs.store.migrating import DatabaseBehind, check_migrated, migrate
from services.orchestrator.runs.store.store import RunStore
from tests.harness.run_stores import Database, create, sqlite_url, started

NOW = datetime.datetime(2026, 3, 1, 12, 30, 1, 250_000, tzinfo=datetime.UTC)
CHILDREN = ("evaluations", "model_usage", "run_events")
TABLES = (*CHILDREN, "principals", "prompt_versions", "runs")
RUNS = tuple(f"01890000-0000-7000-8000-{number:012x}" for number in range(4))
Rows = dict[str, list[dict[str, Any]]]


@pytest.fixture(
    params=[
        pytest.param("sqlite", marks=pytest.mark.xdist_group("store-sqlite")),
        pytest.param("postgres", marks=pytest.mark.xdist_group("runs-postgres")),
    ]
)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without tables."""
    if request.param == "sqlite":
        yield Database("sqlite", sqlite_url(tmp_path))
        return
    with request.getfixturevalue("postgres").database() as address:
        yield Database("postgres", make_url(address).set(drivername="postgresql+psycopg"))


@pytest_asyncio.fixture
async def old(empty: Database) -> AsyncIterator[AsyncEngine]:
    """A database at revision 0001 with a bit of everything."""
    engine = open_database(empty.url)
    await to(engine, "0001")
    await fill(engine)
    yield engine
    await engine.dispose()


async def to(engine: AsyncEngine, revision: str, move: Callable[..., None] = command.upgrade) -> None:
    """Move to a revision, as migrate() does to the newest one."""

    def moved(connection: Connection) -> None:
        config = migrating._config()
        config.attributes["connection"] = connection
        move(config, revision)

    async with migrating._migrating(engine) as connection:
        await connection.run_sync(moved)


async def rows(engine: AsyncEngine) -> Rows:
    """Everything that is in the tables, in a fixed order."""

    def read(connection: Connection) -> Rows:
        metadata = MetaData()
        metadata.reflect(connection)
        assert set(metadata.tables) - {"alembic_version"} == set(TABLES)
        found: Rows = {}
        for name in TABLES:
            selected = connection.execute(metadata.tables[name].select()).mappings()
            found[name] = sorted((dict(row) for row in selected), key=repr)
        return found

    async with engine.connect() as connection:
        return await connection.run_sync(read)


async def fill(engine: AsyncEngine) -> None:
    """Runs in each state, some with and some without a request_id, with everything that hangs on them."""

    def write(connection: Connection) -> None:
        metadata = MetaData()
        metadata.reflect(connection)
        for name, entries in contents().items():
            connection.execute(metadata.tables[name].insert(), entries)

    async with engine.execution_options(**{WRITES: True}).begin() as connection:
        await connection.run_sync(write)


def contents() -> Rows:
    states = ("RUNNING", "WAITING", "FINISHED", "FINISHED")
    runs = [_run(number, run_id, states[number]) for number, run_id in enumerate(RUNS)]
    events = [
        {"run_id": run_id, "sequence": number, "type": "x", "create_time": NOW, "payload": f'{{"n": "{number} — “ü”"}}'}
        for run_id in RUNS
        for number in (1, 2, 3)
    ]
    grade: dict[str, Any] = {"sequence": 2, "position": 0, "kind": "passage", "subject": "p1", "iteration": 1}
    grade |= {"score": 0.25, "threshold": None, "passed": False, "verdict": "", "explanation": "Why not."}
    call: dict[str, Any] = {"position": 0, "sequence": 2, "model": "m", "served_model": "m-1", "operation": "grade_passage"}
    call |= {"prompt_version": "v1", "input_tokens": 2**40, "cached_input_tokens": 1, "output_tokens": 3, "estimated": True}
    call |= {"cost_micros": None, "latency_seconds": 0.5, "attempts": 2, "error": "MODEL_REFUSED"}
    return {
        "runs": runs,
        "run_events": events,
        "evaluations": [{"run_id": run_id, **grade} for run_id in RUNS],
        "model_usage": [{"run_id": run_id, **call} for run_id in RUNS],
        "principals": [{"principal": name, "first_seen": NOW} for name in ("", "ann", "bob")],
        "prompt_versions": [{"operation": "grade_passage", "version": "v1", "first_seen": NOW}],
    }


def _run(number: int, run_id: str, state: str) -> dict[str, Any]:
    ended = state == "FINISHED"
    return {
        "run_id": run_id,
        "workflow": "answer",
        "principal": ("ann", "bob", "ann", "")[number],
        # The same one of two principals, and none for two runs.
        "request_id": ("one", "one", None, None)[number],
        "request_hash": f"hash-{number}",
        "request": '{"asked": 1}',
        "question": "How long?",
        "collection": "default",
        "state": state,
        "outcome": "ANSWERED" if ended else None,
        "approved": ended,
        "score": 0.875 if ended else None,
        "corrections": number,
        "create_time": NOW,
        "finish_time": NOW if ended else None,
        "last_sequence": 3,
        "max_cost_micros": 2**40,
        "max_tokens": None,
        "approval": int(state == "WAITING"),
        "cancel_requested": number == 1,
        "deadline": 1e9 + number,
        "lease_owner": None if ended else "one",
        "lease_expires": 0.0 if ended else 1e9,
        "fence": number + 1,
        "takeovers": number,
        "checkpoints_pruned": ended,
        "events_pruned": False,
    }


def migrated(before: Rows) -> Rows:
    """What the rows of the first revision become: they belong to the default tenant, and no call was saved."""
    new: dict[str, dict[str, Any]] = {
        "runs": {"tenant": "default"},
        "principals": {"tenant": "default"},
        "model_usage": {"saved": False},
    }
    return {name: [{**row, **new.get(name, {})} for row in found] for name, found in before.items()}


def same(one: Rows, other: Rows) -> None:
    """The same rows, whatever the order of their columns."""
    for name in TABLES:
        by_key = [sorted((sorted(row.items()) for row in found), key=repr) for found in (one[name], other[name])]
        assert by_key[0] == by_key[1], name


async def test_every_row_is_kept_and_belongs_to_the_default_tenant(old: AsyncEngine) -> None:
    before = await rows(old)
    assert {name: len(found) for name, found in before.items()} == {
        "runs": 4, "run_events": 12, "evaluations": 4, "model_usage": 4, "principals": 3, "prompt_versions": 1,
    }  # fmt: skip
    with pytest.raises(DatabaseBehind, match="is at revision 0001, and this build needs"):
        await check_migrated(old)
    assert (await migrate(old))[0] == "0001"
    await check_migrated(old)
    same(await rows(old), migrated(before))
    # Once more changes nothing.
    revision = (await migrate(old))[1]
    assert await migrate(old) == (revision, revision)
    same(await rows(old), migrated(before))


async def test_afterwards_the_store_reads_what_was_there_and_goes_on(old: AsyncEngine) -> None:
    await migrate(old)
    store = RunStore(old, "one", 60.0)
    try:
        page = await store.list(RunQuery(DEFAULT_TENANT, 10))
        assert [run.run_id for run in page.runs] == sorted(RUNS, reverse=True)
        assert (await store.list(RunQuery("north", 10))).runs == ()
        assert [call.input_tokens for call in await store.model_calls(DEFAULT_TENANT, RUNS[0])] == [2**40]
        assert [grade.explanation for grade in await store.evaluations(DEFAULT_TENANT, RUNS[0])] == ["Why not."]
        lease = await create(store, principal="ann", request_id="one", tenant="north", request_hash="another")
        assert (await store.get("north", lease.run_id)).principal == "ann"
        # The request_id of before still belongs to its run.
        options = RunOptions(principal="ann", request_id="one", request_hash="hash-0")
        again = await store.create(str(uuid.uuid4()), "{}", started(), options, 30.0)
        assert (again.run_id, again.event) == (RUNS[0], None)
    finally:
        await store.aclose()


@pytest.mark.parametrize("back", [False, True], ids=["forward", "and back"])
async def test_a_deleted_run_still_takes_along_what_hangs_on_it(old: AsyncEngine, back: bool) -> None:
    await migrate(old)
    if back:
        await to(old, "0001", command.downgrade)
    async with old.execution_options(**{WRITES: True}).begin() as connection:
        await connection.execute(text("DELETE FROM runs WHERE run_id = :run"), {"run": RUNS[1]})
    left = await rows(old)
    for name in ("runs", *CHILDREN):
        assert {row["run_id"] for row in left[name]} == set(RUNS) - {RUNS[1]}, name
    orphan = text("INSERT INTO run_events VALUES (:run, 1, 'x', '2026-03-01 00:00:00', '{}')")
    with pytest.raises(IntegrityError):
        async with old.execution_options(**{WRITES: True}).begin() as connection:
            await connection.execute(orphan, {"run": RUNS[1]})


async def test_forward_and_back_leaves_what_was_there(old: AsyncEngine) -> None:
    before, schema = await rows(old), await described(old)
    await migrate(old)
    await to(old, "0001", command.downgrade)
    same(await rows(old), before)
    assert await described(old) == schema
    await migrate(old)
    same(await rows(old), migrated(before))


async def test_back_deletes_what_belongs_to_other_tenants_and_nothing_else(old: AsyncEngine) -> None:
    before = await rows(old)
    await migrate(old)
    store = RunStore(old, "one", 60.0)
    try:
        # It would collide with that of the default tenant.
        lease = await create(store, principal="ann", request_id="one", tenant="north")
        assert lease.run_id in {row["run_id"] for row in (await rows(old))["run_events"]}
    finally:
        await store._writer.aclose()
    await to(old, "0001", command.downgrade)
    same(await rows(old), before)


async def test_back_leaves_no_saved_call_that_would_count_as_paid(old: AsyncEngine) -> None:
    before = await rows(old)
    await migrate(old)
    async with old.execution_options(**{WRITES: True}).begin() as connection:
        names = ", ".join(name for name in before["model_usage"][0] if name != "position")
        copied = f"INSERT INTO model_usage ({names}, position, saved) SELECT {names}, position + 1, true FROM model_usage"  # noqa: S608
        await connection.execute(text(copied))
    assert len((await rows(old))["model_usage"]) == 2 * len(before["model_usage"])
    await to(old, "0001", command.downgrade)
    same(await rows(old), before)


@pytest.mark.parametrize("tenant", ["default", "north"])
async def test_one_request_id_is_one_run_for_each_tenant_and_principal(old: AsyncEngine, tenant: str) -> None:
    await migrate(old)
    copied = {**_run(0, str(uuid.uuid4()), "RUNNING"), "tenant": tenant}
    runs = table("runs", *(column(name) for name in copied))
    copied |= {"create_time": str(NOW.replace(tzinfo=None)) if old.dialect.name == "sqlite" else NOW}
    collides = pytest.raises(IntegrityError) if tenant == "default" else contextlib.nullcontext()
    with collides:
        async with old.execution_options(**{WRITES: True}).begin() as connection:
            await connection.execute(runs.insert(), copied)


async def test_a_migration_that_breaks_leaves_everything_as_it_was(old: AsyncEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    before, schema = await rows(old), await described(old)

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the power went off")

    monkeypatch.setattr("alembic.op.drop_table", broken)
    with pytest.raises(RuntimeError, match="power"):
        await migrate(old)
    monkeypatch.undo()
    same(await rows(old), before)
    assert await described(old) == schema
    assert (await migrate(old))[0] == "0001"
    same(await rows(old), migrated(before))


async def described(engine: AsyncEngine) -> dict[str, Any]:
    """Columns, keys and indexes of each table; names that the database made up do not count."""

    def read(connection: Connection) -> dict[str, Any]:
        inspector = inspect(connection)
        return {
            name: (
                {column["name"]: (str(column["type"]), column["nullable"]) for column in inspector.get_columns(name)},
                inspector.get_pk_constraint(name)["constrained_columns"],
                sorted((key["referred_table"], key["options"].get("ondelete")) for key in inspector.get_foreign_keys(name)),
                sorted((index["name"] or "", tuple(index["column_names"])) for index in inspector.get_indexes(name)),
                sorted(tuple(unique["column_names"]) for unique in inspector.get_unique_constraints(name)),
            )
            for name in TABLES
        }

    async with engine.connect() as connection:
        return await connection.run_sync(read)
