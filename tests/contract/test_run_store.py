"""The run store keeps its contract on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest
import uuid_utils
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, func, select, text
from sqlalchemy.engine import make_url

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import InvalidFields, Reason, RequestIdReused, RunNotFound, StartFailed
from errata_kit.grades import AnswerGrade, Claim, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Span
from services.orchestrator.opening import opened
from services.orchestrator.runs import events
from services.orchestrator.runs.checkpoints import open_checkpoints, prepare_checkpoints
from services.orchestrator.runs.events import Outcome, TraceEvent
from services.orchestrator.runs.housekeeping import Retention, clean
from services.orchestrator.runs.run import Budget, Lease, Run, RunOptions, RunQuery, RunState
from services.orchestrator.runs.store import tables
from services.orchestrator.runs.store.database import open_database
from services.orchestrator.runs.store.migrating import DatabaseBehind, check_migrated, migrate
from services.orchestrator.settings import OrchestratorSettings
from tests.harness.postgres import PostgresServer
from tests.harness.run_stores import (
    CALL,
    WORKFLOWS,
    Database,
    Stores,
    create,
    decision,
    event,
    finish,
    sequences,
    sqlite_url,
    started,
    wait_for_a_person,
)

# --- runs and their events --------------------------------------------------------------------------------------------


async def test_a_run_is_there_with_its_first_event(stores: Stores) -> None:
    before = datetime.datetime.now(datetime.UTC)
    lease = await create(stores.one, principal="ann", budget=Budget(1000, 50))
    run = await stores.two.get(DEFAULT_TENANT, lease.run_id)
    assert run == Run(lease.run_id, "answer", "How long?", "default", run.create_time, principal="ann", last_sequence=1)
    assert before <= run.create_time <= datetime.datetime.now(datetime.UTC)
    [first] = await stores.two.events(DEFAULT_TENANT, lease.run_id, 0)
    assert first == TraceEvent(lease.run_id, 1, run.create_time, started())


async def test_a_run_that_nobody_started_is_not_found(stores: Stores) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(RunNotFound):
        await stores.one.get(DEFAULT_TENANT, unknown)
    assert await stores.one.events(DEFAULT_TENANT, unknown, 0) == ()


async def test_events_come_back_as_they_were_stored(stores: Stores) -> None:
    lease = await create(stores.one)
    claim = Claim("c1", "It is.", Span(0, 6), Verdict.UNSUPPORTED, 0.1, (), "nothing says so")
    grade = AnswerGrade((claim,), 0.0, HallucinationRisk.HIGH, ("c1",), (), "Remove it.", "double")
    payloads = [
        events.PassageGraded(1, "p1", True, grade=PassageGrade(0.9, True, "it does")),
        events.PassageGraded(1, "p2", False, error=events.Failure(Reason.MODEL_UNAVAILABLE, "away", {"a": "b"})),
        events.AnswerGraded(0, grade, False, ("c1 fails",)),
    ]
    stored = [event(lease, number, payload) for number, payload in enumerate(payloads, start=2)]
    await stores.one.append(lease, tuple(stored), {0: CALL, 1: dataclasses.replace(CALL, error=Reason.MODEL_UNAVAILABLE)}, {})
    assert list(await stores.two.events(DEFAULT_TENANT, lease.run_id, 1)) == stored
    assert await stores.two.events(DEFAULT_TENANT, lease.run_id, 3) == (stored[2],)
    assert len(await stores.two.events(DEFAULT_TENANT, lease.run_id, 0, most=2)) == 2
    found = await stores.two.evaluations(DEFAULT_TENANT, lease.run_id)
    assert [(item.kind, item.subject, item.score, item.passed) for item in found] == [
        ("passage", "p1", 0.9, True),
        ("answer", "", 0.0, False),
        ("claim", "c1", 0.1, False),
    ]
    run = await stores.two.get(DEFAULT_TENANT, lease.run_id)
    assert (run.last_sequence, run.totals.model_calls, run.totals.failed_calls) == (4, 2, 1)
    assert run.totals.cost_micros == 14
    assert (await stores.two.model_calls(DEFAULT_TENANT, lease.run_id))[0] == CALL


async def test_many_runs_write_at_once(stores: Stores) -> None:
    leases = await asyncio.gather(*(create(stores.one) for _ in range(30)), *(create(stores.two, "two") for _ in range(30)))

    async def work(lease: Lease) -> None:
        store = stores.one if lease.owner == "one" else stores.two
        for sequence in range(2, 6):
            await store.append(lease, (event(lease, sequence),), {sequence: CALL}, {})
        await finish(store, lease, sequence=6)

    await asyncio.gather(*map(work, leases))
    for lease in leases:
        assert await sequences(stores.one, lease.run_id) == [1, 2, 3, 4, 5, 6]
        assert (await stores.one.get(DEFAULT_TENANT, lease.run_id)).state is RunState.FINISHED


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_lists_are_filtered_by_everything(stores: Stores) -> None:
    plain = await create(stores.one)
    composed = await create(stores.one, workflow="compose", principal="ann")
    refused = await create(stores.one, principal="bob")
    await finish(stores.one, refused, Outcome.REFUSED_NO_EVIDENCE)
    await wait_for_a_person(stores.one, composed)
    times = {
        lease.run_id: (await stores.one.get(DEFAULT_TENANT, lease.run_id)).create_time for lease in (plain, composed, refused)
    }

    async def listed(**wanted: Any) -> list[str]:
        return [run.run_id for run in (await stores.two.list(RunQuery(DEFAULT_TENANT, 10, **wanted))).runs]

    assert await listed() == [refused.run_id, composed.run_id, plain.run_id]
    assert await listed(state=RunState.RUNNING) == [plain.run_id]
    assert await listed(state=RunState.WAITING) == [composed.run_id]
    assert await listed(state=RunState.FINISHED) == [refused.run_id]
    assert await listed(outcome=Outcome.REFUSED_NO_EVIDENCE) == [refused.run_id]
    assert await listed(outcome=Outcome.ANSWERED) == []
    assert await listed(workflow="compose") == [composed.run_id]
    assert await listed(principal="bob", workflow="answer") == [refused.run_id]
    assert await listed(created_from=times[composed.run_id]) == [refused.run_id, composed.run_id]
    assert await listed(created_before=times[composed.run_id]) == [plain.run_id]


async def test_pages_have_each_run_once(stores: Stores) -> None:
    ids = [(await create(stores.one, principal="ann")).run_id for _ in range(5)]
    query, seen, sizes = RunQuery(DEFAULT_TENANT, 2, principal="ann"), [], []
    while True:
        page = await stores.two.list(query)
        seen += [run.run_id for run in page.runs]
        sizes.append(len(page.runs))
        # New runs come first, so that they change no later page.
        await create(stores.one, principal="ann")
        if not page.next_page_token:
            break
        query = dataclasses.replace(query, page_token=page.next_page_token)
    assert seen == ids[::-1]
    assert sizes == [2, 2, 1]


async def test_a_page_token_of_another_query_is_refused(stores: Stores) -> None:
    for _ in range(2):
        await create(stores.one)
    token = (await stores.one.list(RunQuery(DEFAULT_TENANT, 1))).next_page_token
    with pytest.raises(InvalidFields):
        await stores.one.list(RunQuery(DEFAULT_TENANT, 1, page_token=token, state=RunState.RUNNING))
    with pytest.raises(InvalidFields):
        await stores.one.list(RunQuery(DEFAULT_TENANT, 1, page_token="nonsense"))


# --- idempotent starts ------------------------------------------------------------------------------------------------


async def test_a_request_id_gives_the_same_run(stores: Stores) -> None:
    options = RunOptions("ann", "r1", "hash")
    first = await stores.one.create(str(uuid_utils.uuid7()), "{}", started(), options, 30.0)
    again = await stores.two.create(str(uuid_utils.uuid7()), "{}", started(), options, 30.0)
    assert first.event is not None
    assert (again.run_id, again.event) == (first.run_id, None)
    for other in (dataclasses.replace(options, principal="bob"), dataclasses.replace(options, request_id="r2")):
        created = await stores.two.create(str(uuid_utils.uuid7()), "{}", started(), other, 30.0)
        assert created.event is not None
    with pytest.raises(RequestIdReused) as refused:
        await stores.two.create(
            str(uuid_utils.uuid7()), "{}", started(), dataclasses.replace(options, request_hash="other"), 30.0
        )
    assert refused.value.metadata == {"request_id": "r1", "run_id": first.run_id}
    assert len((await stores.one.list(RunQuery(DEFAULT_TENANT, 10))).runs) == 3


async def test_equal_requests_at_the_same_moment_are_one_run(stores: Stores) -> None:
    options = [RunOptions("ann", f"r{number}", "hash") for number in range(5)]
    calls = [
        store.create(str(uuid_utils.uuid7()), "{}", started(), chosen, 30.0)
        for chosen in options
        for store in (stores.one, stores.two, stores.one, stores.two)
    ]
    created = await asyncio.gather(*calls)
    for place in range(5):
        same = created[4 * place : 4 * place + 4]
        assert len({item.run_id for item in same}) == 1
        assert sum(item.event is not None for item in same) == 1
        assert await sequences(stores.one, same[0].run_id) == [1]
    assert len((await stores.one.list(RunQuery(DEFAULT_TENANT, 50))).runs) == 5


async def test_of_different_requests_with_one_id_one_wins(stores: Stores) -> None:
    calls = [
        store.create(str(uuid_utils.uuid7()), "{}", started(), RunOptions("ann", "r1", name), 30.0)
        for store, name in ((stores.one, "a"), (stores.two, "b"), (stores.one, "c"))
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(item).__name__ for item in results) == ["Created", "RequestIdReused", "RequestIdReused"]


# --- retention --------------------------------------------------------------------------------------------------------

FOR_EVER = 1e9


async def test_old_things_go_and_the_rest_stays(stores: Stores) -> None:
    if stores.database.kind == "postgres":
        await prepare_checkpoints(stores.database.url)
    ended, running = await create(stores.one), await create(stores.one)
    graded = events.PassageGraded(1, "p1", True, grade=PassageGrade(0.9, True, "it does"))
    await stores.one.append(ended, (event(ended, 2, graded),), {0: CALL}, {})
    await finish(stores.one, ended, sequence=3)
    await asyncio.sleep(0.01)
    async with open_checkpoints(stores.database.url, ()) as checkpoints:
        for lease in (ended, running):
            config: Any = {"configurable": {"thread_id": lease.run_id, "checkpoint_ns": ""}}
            await checkpoints.saver.aput(config, _checkpoint(), {"source": "loop", "step": 1, "parents": {}}, {})

        async def kept(run_id: str) -> int:
            config: Any = {"configurable": {"thread_id": run_id}}
            return len([item async for item in checkpoints.saver.alist(config)])

        await clean(stores.engine, checkpoints, Retention(FOR_EVER, FOR_EVER, FOR_EVER, 1))
        assert (await kept(ended.run_id), await kept(running.run_id)) == (1, 1)
        await clean(stores.engine, checkpoints, Retention(0, FOR_EVER, FOR_EVER, 1))
        assert (await kept(ended.run_id), await kept(running.run_id)) == (0, 1)
        assert await sequences(stores.one, ended.run_id) == [1, 2, 3]
        await clean(stores.engine, checkpoints, Retention(0, 0, FOR_EVER, 1))
        assert await sequences(stores.one, ended.run_id) == [3]
        assert (await stores.one.get(DEFAULT_TENANT, ended.run_id)).totals.model_calls == 1
        await clean(stores.engine, checkpoints, Retention(0, 0, 0, 1))
    with pytest.raises(RunNotFound):
        await stores.one.get(DEFAULT_TENANT, ended.run_id)
    for table in (tables.run_events, tables.evaluations, tables.model_usage):
        async with stores.engine.connect() as connection:
            rows = select(func.count()).select_from(table).where(table.c.run_id == ended.run_id)
            assert (await connection.execute(rows)).scalar() == 0, table.name
    assert await sequences(stores.one, running.run_id) == [1]


def _checkpoint() -> Any:
    return {"v": 4, "id": str(uuid_utils.uuid7()), "ts": "", "channel_values": {}, "channel_versions": {}, "versions_seen": {}}


# --- the database itself ----------------------------------------------------------------------------------------------


async def test_the_migrations_make_the_tables(stores: Stores) -> None:
    def difference(connection: Connection) -> Any:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        return compare_metadata(context, tables.metadata)

    async with stores.engine.connect() as connection:
        assert await connection.run_sync(difference) == []


async def test_migrating_again_changes_nothing(database: Database) -> None:
    engines = [open_database(database.url) for _ in range(2)]
    before, after = zip(*await asyncio.gather(*map(migrate, engines)), strict=True)
    assert {*before, *after} == {after[0]}
    for engine in engines:
        await check_migrated(engine)
        await engine.dispose()


async def test_two_who_migrate_at_once_do_it_once(request: pytest.FixtureRequest, template: Database, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        url = sqlite_url(tmp_path)
        if template.kind == "postgres":
            address = stack.enter_context(request.getfixturevalue("postgres").database())
            url = make_url(address).set(drivername="postgresql+psycopg")
        engines = [open_database(url) for _ in range(2)]
        results = await asyncio.gather(*map(migrate, engines))
        for engine in engines:
            await check_migrated(engine)
            await engine.dispose()
        assert sorted(before for before, _ in results) == ["", results[0][1]]


async def test_postgresql_is_migrated_by_nobody_but_the_operator(postgres: PostgresServer, tmp_path: Path) -> None:
    with postgres.database() as address:
        engine = open_database(make_url(address).set(drivername="postgresql+psycopg"))
        with pytest.raises(DatabaseBehind, match="errata migrate"):
            await check_migrated(engine)
        await engine.dispose()
        settings: dict[str, Any] = {"database_url": address, "data_dir": tmp_path}
        with pytest.raises(StartFailed, match="errata migrate"):
            async with opened(OrchestratorSettings(**settings), "one"):
                raise AssertionError("it must not open")


async def test_a_lost_connection_costs_no_write(stores: Stores) -> None:
    if stores.database.kind != "postgres":
        pytest.skip("SQLite has no connections to lose")
    lease = await create(stores.one)
    for sequence in range(2, 5):
        await _break_connections(stores)
        await stores.one.append(lease, (event(lease, sequence),), {sequence: CALL}, {})
    await _break_connections(stores)
    assert await sequences(stores.one, lease.run_id) == [1, 2, 3, 4]
    await _break_connections(stores)
    assert (await stores.one.get(DEFAULT_TENANT, lease.run_id)).totals.model_calls == 3
    await wait_for_a_person(stores.one, lease, sequence=5)
    await _break_connections(stores)
    claimed = await stores.one.decide(DEFAULT_TENANT, lease.run_id, decision(), 30.0)
    await _break_connections(stores)
    await stores.one.request_cancel(lease.run_id)
    await _break_connections(stores)
    await stores.one.release((claimed.lease,))
    assert (await stores.two.claim_expired(10, WORKFLOWS))[0].lease.fence == 3


async def _break_connections(stores: Stores) -> None:
    other = open_database(stores.database.url)
    async with other.connect() as connection:
        others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        await connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))
    await other.dispose()
