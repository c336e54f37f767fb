"""The run store keeps its contract on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import uuid_utils
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, func, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncEngine

from errata_kit.errors import InvalidFields, Reason, RequestIdReused, RunNotFound, RunNotWaiting, StartFailed
from errata_kit.grades import AnswerGrade, Claim, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Draft, Span
from errata_kit.usage import ModelCall
from services.orchestrator.opening import opened
from services.orchestrator.runs import events
from services.orchestrator.runs.checkpoints import open_checkpoints, prepare_checkpoints
from services.orchestrator.runs.events import ApprovalDecided, ApprovalDecision, Outcome, RunFinished, RunStarted, TraceEvent
from services.orchestrator.runs.housekeeping import Retention, clean
from services.orchestrator.runs.run import Budget, Lease, LeaseLost, Run, RunOptions, RunQuery, RunState
from services.orchestrator.runs.store import tables
from services.orchestrator.runs.store.database import open_database
from services.orchestrator.runs.store.migrating import DatabaseBehind, check_migrated, migrate
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.settings import OrchestratorSettings
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
    return [item.sequence for item in await store.events(run_id, 0)]


# --- runs and their events --------------------------------------------------------------------------------------------


async def test_a_run_is_there_with_its_first_event(stores: Stores) -> None:
    before = datetime.datetime.now(datetime.UTC)
    lease = await create(stores.one, principal="ann", budget=Budget(1000, 50))
    run = await stores.two.get(lease.run_id)
    assert run == Run(lease.run_id, "answer", "How long?", "default", run.create_time, principal="ann", last_sequence=1)
    assert before <= run.create_time <= datetime.datetime.now(datetime.UTC)
    [first] = await stores.two.events(lease.run_id, 0)
    assert first == TraceEvent(lease.run_id, 1, run.create_time, started())


async def test_a_run_that_nobody_started_is_not_found(stores: Stores) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(RunNotFound):
        await stores.one.get(unknown)
    assert await stores.one.events(unknown, 0) == ()


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
    assert list(await stores.two.events(lease.run_id, 1)) == stored
    assert await stores.two.events(lease.run_id, 3) == (stored[2],)
    assert len(await stores.two.events(lease.run_id, 0, most=2)) == 2
    found = await stores.two.evaluations(lease.run_id)
    assert [(item.kind, item.subject, item.score, item.passed) for item in found] == [
        ("passage", "p1", 0.9, True),
        ("answer", "", 0.0, False),
        ("claim", "c1", 0.1, False),
    ]
    run = await stores.two.get(lease.run_id)
    assert (run.last_sequence, run.totals.model_calls, run.totals.failed_calls) == (4, 2, 1)
    assert run.totals.cost_micros == 14
    assert (await stores.two.model_calls(lease.run_id))[0] == CALL


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
        assert (await stores.one.get(lease.run_id)).state is RunState.FINISHED


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_lists_are_filtered_by_everything(stores: Stores) -> None:
    plain = await create(stores.one)
    composed = await create(stores.one, workflow="compose", principal="ann")
    refused = await create(stores.one, principal="bob")
    await finish(stores.one, refused, Outcome.REFUSED_NO_EVIDENCE)
    await wait_for_a_person(stores.one, composed)
    times = {lease.run_id: (await stores.one.get(lease.run_id)).create_time for lease in (plain, composed, refused)}

    async def listed(**wanted: Any) -> list[str]:
        return [run.run_id for run in (await stores.two.list(RunQuery(10, **wanted))).runs]

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
    query, seen, sizes = RunQuery(2, principal="ann"), [], []
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
    token = (await stores.one.list(RunQuery(1))).next_page_token
    with pytest.raises(InvalidFields):
        await stores.one.list(RunQuery(1, page_token=token, state=RunState.RUNNING))
    with pytest.raises(InvalidFields):
        await stores.one.list(RunQuery(1, page_token="nonsense"))


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
    assert len((await stores.one.list(RunQuery(10))).runs) == 3


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
    assert len((await stores.one.list(RunQuery(50))).runs) == 5


async def test_of_different_requests_with_one_id_one_wins(stores: Stores) -> None:
    calls = [
        store.create(str(uuid_utils.uuid7()), "{}", started(), RunOptions("ann", "r1", name), 30.0)
        for store, name in ((stores.one, "a"), (stores.two, "b"), (stores.one, "c"))
    ]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(item).__name__ for item in results) == ["Created", "RequestIdReused", "RequestIdReused"]


# --- leases -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_taken_up_with_everything(stores: Stores) -> None:
    lease = await create(stores.hasty, "hasty", principal="ann", budget=Budget(1000, 50))
    await stores.hasty.append(lease, (event(lease, 2),), {0: CALL}, {})
    await stores.hasty.note_calls(lease, 2, {1: CALL})
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    [claimed] = await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    assert (claimed.workflow, claimed.request, claimed.principal) == ("answer", '{"asked": 1}', "ann")
    assert (claimed.takeovers, claimed.resumed, claimed.cancelled, claimed.budget) == (1, True, False, Budget(1000, 50))
    assert 25.0 < claimed.seconds < 30.0
    assert [item.sequence for item in claimed.events] == [1, 2]
    assert claimed.model_calls == (CALL, CALL)
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()


async def test_who_has_lost_a_run_writes_nothing_to_it(stores: Stores) -> None:
    lost = await create(stores.hasty, "hasty")
    kept = await create(stores.one)
    [claimed] = await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))
    assert claimed.lease.run_id == lost.run_id
    for attempt in (
        stores.hasty.append(lost, (event(lost, 2),), {0: CALL}, {"score": 0.1, "state": "FINISHED"}),
        stores.hasty.note_calls(lost, 1, {0: CALL}),
        stores.hasty.append(dataclasses.replace(lost, owner="two"), (event(lost, 2),), {}, {}),
        stores.hasty.append(dataclasses.replace(lost, fence=2), (event(lost, 2),), {}, {}),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    # In one transaction with a write of a run that is still held.
    results = await asyncio.gather(
        stores.one.append(kept, (event(kept, 2),), {}, {}),
        stores.one.append(lost, (event(lost, 2),), {}, {}),
        return_exceptions=True,
    )
    assert [type(item) for item in results] == [type(None), LeaseLost]
    assert await sequences(stores.one, kept.run_id) == [1, 2]
    run = await stores.one.get(lost.run_id)
    assert await sequences(stores.one, lost.run_id) == [1]
    assert (run.state, run.score, run.last_sequence, run.totals.model_calls) == (RunState.RUNNING, None, 1, 0)
    await stores.two.append(claimed.lease, (event(lost, 2),), {0: CALL}, {})
    assert await sequences(stores.one, lost.run_id) == [1, 2]


async def test_two_who_take_up_at_once_get_each_run_once(stores: Stores) -> None:
    ids = {lease.run_id for lease in await asyncio.gather(*(create(stores.hasty, "hasty") for _ in range(40)))}
    await asyncio.sleep(SHORT)
    seen: list[str] = []

    async def take(store: RunStore) -> None:
        while len(seen) < len(ids):
            seen.extend(item.lease.run_id for item in await store.claim_expired(3, WORKFLOWS))

    async with asyncio.timeout(20):
        await asyncio.gather(*(take(store) for store in (stores.one, stores.two, stores.one, stores.two)))
    assert sorted(seen) == sorted(ids)


async def test_what_ends_or_waits_is_taken_up_by_nobody(stores: Stores) -> None:
    ended, waiting, running = [await create(stores.hasty, "hasty") for _ in range(3)]
    await finish(stores.hasty, ended)
    await wait_for_a_person(stores.hasty, waiting)
    [claimed] = await eventually(lambda: stores.one.claim_expired(10, WORKFLOWS))
    assert claimed.lease.run_id == running.run_id


async def test_a_run_of_an_unknown_workflow_is_left_to_those_who_know_it(stores: Stores) -> None:
    lease = await create(stores.one, workflow="newer")
    await stores.one.release((lease,))
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    [claimed] = await stores.two.claim_expired(10, (*WORKFLOWS, "newer"))
    assert claimed.workflow == "newer"


async def test_renewed_leases_last(stores: Stores) -> None:
    leases = [await create(stores.hasty, "hasty") for _ in range(3)]
    other = await create(stores.one)
    await stores.one.request_cancel(leases[1].run_id)
    for _ in range(5):
        await asyncio.sleep(SHORT / 3)
        kept = await stores.hasty.renew()
        assert kept == {leases[0]: False, leases[1]: True, leases[2]: False}
        assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    await finish(stores.hasty, leases[0])
    assert set(await stores.hasty.renew()) == set(leases[1:])
    assert set(await stores.one.renew()) == {other}
    taken: set[str] = set()
    while len(taken) < 2:
        taken |= {claimed.lease.run_id for claimed in await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))}
    assert await stores.hasty.renew() == {}


async def test_a_run_that_is_let_go_is_free_at_once(stores: Stores) -> None:
    lease, kept = await create(stores.one), await create(stores.one)
    await stores.one.release((lease, dataclasses.replace(kept, fence=7)))
    [claimed] = await stores.two.claim_expired(10, WORKFLOWS)
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    with pytest.raises(LeaseLost):
        await stores.one.append(lease, (event(lease, 2),), {}, {})
    # Late, and for nothing: it is the other's.
    await stores.one.release((lease,))
    assert await stores.one.claim_expired(10, WORKFLOWS) == ()


async def test_a_wish_to_cancel_comes_with_the_run(stores: Stores) -> None:
    lease = await create(stores.one)
    await stores.two.request_cancel(lease.run_id)
    await stores.one.release((lease,))
    [claimed] = await stores.two.claim_expired(10, WORKFLOWS)
    assert claimed.cancelled


# --- decisions --------------------------------------------------------------------------------------------------------


def decision(approval: int = 0) -> ApprovalDecided:
    return ApprovalDecided(approval, ApprovalDecision.REVISE, "shorter", "ann")


async def test_a_decision_takes_the_run(stores: Stores) -> None:
    lease = await create(stores.one)
    await wait_for_a_person(stores.one, lease)
    assert (await stores.two.get(lease.run_id)).approval == 1
    claimed = await stores.two.decide(lease.run_id, decision(), 30.0)
    assert (claimed.lease, claimed.resumed, claimed.takeovers) == (Lease(lease.run_id, "two", 2), False, 0)
    decided = claimed.events[-1]
    assert (decided.sequence, decided.payload) == (3, decision(1))
    run = await stores.one.get(lease.run_id)
    assert (run.state, run.approval, run.last_sequence) == (RunState.RUNNING, 0, 3)
    with pytest.raises(LeaseLost):
        await stores.one.append(lease, (event(lease, 4),), {}, {})
    await stores.two.append(claimed.lease, (event(lease, 4),), {}, {})


async def test_a_second_decision_is_refused(stores: Stores) -> None:
    lease = await create(stores.one)
    with pytest.raises(RunNotWaiting):
        await stores.one.decide(lease.run_id, decision(), 30.0)
    with pytest.raises(RunNotFound):
        await stores.one.decide(str(uuid.uuid4()), decision(), 30.0)
    await wait_for_a_person(stores.one, lease)
    with pytest.raises(RunNotWaiting) as refused:
        await stores.one.decide(lease.run_id, decision(2), 30.0)
    assert refused.value.metadata == {"run_id": lease.run_id, "state": "WAITING", "approval": "1"}
    results = await asyncio.gather(
        *(store.decide(lease.run_id, decision(1), 30.0) for store in (stores.one, stores.two, stores.one, stores.two)),
        return_exceptions=True,
    )
    assert sorted(type(item).__name__ for item in results) == ["ClaimedRun", *["RunNotWaiting"] * 3]
    assert await sequences(stores.one, lease.run_id) == [1, 2, 3]


async def test_a_waiting_run_can_be_taken_without_a_decision_once(stores: Stores) -> None:
    lease = await create(stores.one)
    assert await stores.two.claim_waiting(lease.run_id, 30.0) is None
    await wait_for_a_person(stores.one, lease)
    claimed = await stores.two.claim_waiting(lease.run_id, 30.0)
    assert claimed is not None
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    assert await stores.one.claim_waiting(lease.run_id, 30.0) is None


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
        assert (await stores.one.get(ended.run_id)).totals.model_calls == 1
        await clean(stores.engine, checkpoints, Retention(0, 0, 0, 1))
    with pytest.raises(RunNotFound):
        await stores.one.get(ended.run_id)
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
    assert (await stores.one.get(lease.run_id)).totals.model_calls == 3
    await wait_for_a_person(stores.one, lease, sequence=5)
    await _break_connections(stores)
    claimed = await stores.one.decide(lease.run_id, decision(), 30.0)
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
