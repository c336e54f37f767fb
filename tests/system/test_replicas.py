"""Two replicas of the orchestrator on one database: who works on what, who sees what, and what a pause or a kill does."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest
import pytest_asyncio
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from tests.harness import durability
from tests.harness.durability import ANSWER_STEPS, CALL_SECONDS, LEASE_SECONDS, Cluster, Hold
from tests.harness.postgres import PostgresServer
from tests.harness.replicas import Nursery, Plan, Replica
from tests.harness.traces import checked

pytestmark = [pytest.mark.system, pytest.mark.asyncio(loop_scope="module")]

_SLACK_SECONDS = 3.0
_RUNS = 20
STOPPED_WITH_A_LOCK = "a process that is stopped while it writes keeps the SQLite file locked"


@dataclass(frozen=True, slots=True)
class Pair:
    """Two replicas, and what is below them."""

    cluster: Cluster
    one: Replica
    two: Replica

    @property
    def first(self) -> Any:
        """A client of the one."""
        return self.cluster.stub(self.one)

    @property
    def second(self) -> Any:
        """A client of the other."""
        return self.cluster.stub(self.two)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("sqlite", marks=pytest.mark.xdist_group("runs-sqlite")),
        pytest.param("postgres", marks=pytest.mark.xdist_group("runs-postgres")),
    ],
)
def kind(request: pytest.FixtureRequest) -> str:
    """Which database."""
    return str(request.param)


@pytest.fixture(scope="module")
def database(kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The database that the replicas share."""
    server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    with durability.migrated(tmp_path_factory.mktemp("replicated"), server) as variables:
        yield variables


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(nursery: Nursery, database: dict[str, str]) -> AsyncIterator[Cluster]:
    """What is below the replicas."""
    async with durability.cluster(nursery, database) as below:
        yield below


@contextlib.asynccontextmanager
async def two_replicas(cluster: Cluster, lease: float) -> AsyncIterator[Pair]:
    """Two fresh replicas, which a test may kill."""
    variables = {"ORCHESTRATOR_LEASE_SECONDS": str(lease)}
    one, two = await cluster.start(None, **variables), await cluster.start(None, **variables)
    yield Pair(cluster, one, two)
    for replica in (one, two):
        if not replica.gone():
            await replica.kill()


@pytest_asyncio.fixture(loop_scope="module")
async def pair(cluster: Cluster) -> AsyncIterator[Pair]:
    """Two replicas with short leases."""
    async with two_replicas(cluster, LEASE_SECONDS) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def calm_pair(cluster: Cluster) -> AsyncIterator[Pair]:
    """Two replicas whose leases end within no test, however busy the machine is."""
    async with two_replicas(cluster, 60.0) as made:
        yield made


class Asked:
    """A run that a test has started, and what its caller sees."""

    def __init__(self, pair: Pair, workflow: str = "answer", hold: Hold | None = None, seconds: float = CALL_SECONDS) -> None:
        self.mark = durability.new_mark()
        self.seen: list[trace_pb2.TraceEvent] = []
        if hold is not None:
            pair.cluster.desk.holds[self.mark] = hold
        self._second = pair.second
        call = durability.start_run(pair.first, workflow, self.mark, seconds=seconds)
        self.reading = asyncio.create_task(durability.read(call, self.seen))

    def last(self, number: int) -> list[str]:
        """The kinds of the last events."""
        return [str(event.WhichOneof("payload")) for event in self.seen[-number:]]

    async def run_id(self) -> str:
        """The run's id, once it is stored."""
        return await durability.run_id_of(self._second, self.mark)


async def described(stub: Any, run_id: str) -> pb2.GetRunResponse:
    """The run with everything about it."""
    return await stub.GetRun(pb2.GetRunRequest(run_id=run_id), timeout=CALL_SECONDS)  # type: ignore[no-any-return]


# --- one run, one replica ---------------------------------------------------------------------------------------------


async def test_many_runs_on_both_are_each_worked_on_once(calm_pair: Pair) -> None:
    marks = [durability.new_mark() for _ in range(_RUNS)]
    stubs = [calm_pair.first if place % 2 else calm_pair.second for place in range(_RUNS)]
    seen: list[list[trace_pb2.TraceEvent]] = [[] for _ in range(_RUNS)]
    calls = [durability.start_run(stub, "answer", mark) for stub, mark in zip(stubs, marks, strict=True)]
    await asyncio.gather(*(durability.read(call, events) for call, events in zip(calls, seen, strict=True)))
    for mark, events in zip(marks, seen, strict=True):
        assert durability.stored_steps(checked(events)) == list(ANSWER_STEPS)
        assert not durability.resumptions(events)
        assert set(calm_pair.cluster.keys(mark).values()) == {1}


async def test_equal_requests_on_both_at_once_are_one_run(calm_pair: Pair) -> None:
    mark = durability.new_mark()
    seen: list[list[trace_pb2.TraceEvent]] = [[] for _ in range(6)]
    stubs = [calm_pair.first, calm_pair.second] * 3
    calls = [durability.start_run(stub, "answer", mark, request_id=mark) for stub in stubs]
    await asyncio.gather(*(durability.read(call, events) for call, events in zip(calls, seen, strict=True)))
    for events in seen:
        assert [item for item in checked(events) if item.sequence] == [item for item in seen[0] if item.sequence]
    assert set(calm_pair.cluster.keys(mark).values()) == {1}


_PAUSES = [
    Hold("generate_answer", midway=True),
    Hold("generate_answer", seconds=0.8),
    Hold("check_claims", seconds=0.8),
    Hold("grade_passage", "second place", seconds=0.8),
]


@pytest.mark.parametrize("hold", _PAUSES, ids=lambda hold: f"{hold.operation}-{'late' if hold.seconds else 'held'}")
async def test_who_wakes_up_late_lets_the_run_be(pair: Pair, kind: str, hold: Hold) -> None:
    if kind == "sqlite":
        pytest.skip(STOPPED_WITH_A_LOCK)
    asked = Asked(pair, hold=hold)
    run_id = await asked.run_id()
    await pair.cluster.asked(asked.mark, hold.operation)
    at = pair.one.signal(signal.SIGSTOP)
    events = [event for event in checked(await durability.watch(pair.second, run_id)) if event.sequence]
    assert durability.stored_steps(events) == list(ANSWER_STEPS)
    [resumed] = durability.resumptions(events)
    assert durability.time_of(resumed) - at <= LEASE_SECONDS + _SLACK_SECONDS
    before = await described(pair.second, run_id)
    calls = len(pair.cluster.calls(asked.mark))
    pair.one.signal(signal.SIGCONT)
    await durability.until(lambda: pair.one.entries("run_let_go"), "it lets the run go")
    # It goes on with everything else, also with the run's caller and its watchers.
    other = Asked(replace(pair, one=pair.one))
    await asyncio.wait_for(other.reading, CALL_SECONDS)
    assert durability.stored_steps(checked(other.seen)) == list(ANSWER_STEPS)
    await asyncio.wait_for(asked.reading, CALL_SECONDS)
    assert [event for event in checked(asked.seen) if event.sequence] == events
    assert await described(pair.second, run_id) == before
    assert len(pair.cluster.calls(asked.mark)) == calls
    assert all(not call.open for call in pair.cluster.calls(asked.mark))
    assert before.run.takeovers == 1
    assert durability.each_recorded_once(before, len(pair.cluster.keys(asked.mark)))


async def test_a_pause_inside_a_transaction_holds_nobody_up(pair: Pair, kind: str) -> None:
    if kind == "sqlite":
        pytest.skip(STOPPED_WITH_A_LOCK)
    stopping = await pair.cluster.start(Plan(stop_at=7, takes_up=False))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(stopping.kill)
        asked = Asked(replace(pair, one=stopping))
        run_id = await asked.run_id()
        await durability.until(lambda: stopping.entries("stopping"), "it stops")
        at = float(stopping.entries("stopping")[0]["at"])
        events = [event for event in checked(await durability.watch(pair.second, run_id)) if event.sequence]
        assert durability.stored_steps(events) == list(ANSWER_STEPS)
        [resumed] = durability.resumptions(events)
        assert durability.time_of(resumed) - at <= LEASE_SECONDS + _SLACK_SECONDS
        stopping.signal(signal.SIGCONT)
        await durability.until(lambda: stopping.entries("run_let_go"), "it lets the run go")
        assert (await described(pair.second, run_id)).run.last_sequence == len(events)


# --- deadlines --------------------------------------------------------------------------------------------------------


async def test_a_caller_that_leaves_the_run_to_itself_does_not_bound_it(calm_pair: Pair) -> None:
    asked = Asked(calm_pair, hold=Hold("check_claims", seconds=1.5), seconds=1.0)
    run_id = await asked.run_id()
    await asked.reading
    events = checked(await durability.watch(calm_pair.second, run_id))
    assert durability.stored_steps(events) == list(ANSWER_STEPS)
    assert events[-1].run_finished.outcome == trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT


async def test_who_hands_a_decision_over_does_not_bound_the_run(calm_pair: Pair) -> None:
    asked = Asked(calm_pair, "compose")
    run_id = await asked.run_id()

    async def decide(approval: int) -> None:
        calm_pair.cluster.desk.holds[asked.mark] = Hold("revise_draft", seconds=1.5)
        await durability.decide(calm_pair.second, (run_id, asked.mark), approval, seconds=1.0)

    events = checked(await durability.watch(calm_pair.first, run_id, decide))
    assert durability.stored_steps(events) == list(durability.COMPOSE_STEPS)
    await asked.reading


# --- watching from anywhere -------------------------------------------------------------------------------------------


async def test_a_run_can_be_watched_from_the_other_replica(calm_pair: Pair) -> None:
    asked = Asked(calm_pair, hold=Hold("generate_answer", seconds=0.5))
    run_id = await asked.run_id()
    late: list[float] = []

    async def look(stub: Any, after: int) -> list[trace_pb2.TraceEvent]:
        seen = []
        async for reply in stub.WatchRun(pb2.WatchRunRequest(run_id=run_id, after_sequence=after), timeout=CALL_SECONDS):
            seen.append(reply.event)
            if reply.event.sequence > ANSWER_STEPS.index("answer_drafted"):
                late.append(time.time() - durability.time_of(reply.event))
        return seen

    places = [(stub, after) for stub in (calm_pair.first, calm_pair.second) for after in range(6)]
    traces = await asyncio.gather(*(look(stub, after) for stub, after in places))
    await asked.reading
    events = [event for event in checked(asked.seen) if event.sequence]
    for (_, after), trace in zip(places, traces, strict=True):
        assert [event for event in trace if event.sequence] == events[after:]
    # SQLite has no notifications: there the other replica looks four times a second.
    assert statistics.median(late) <= 1.0
    assert max(late) <= 1.0 + _SLACK_SECONDS


async def test_who_does_not_read_slows_nobody(calm_pair: Pair) -> None:
    asked = Asked(calm_pair)
    calm_pair.cluster.desk.long_texts.add(asked.mark)
    run_id = await asked.run_id()
    request = pb2.WatchRunRequest(run_id=run_id)
    idle = [stub.WatchRun(request, timeout=CALL_SECONDS) for stub in (calm_pair.first, calm_pair.second) for _ in range(5)]
    for call in idle:
        await call.read()
    events = await asyncio.wait_for(durability.watch(calm_pair.first, run_id), CALL_SECONDS)
    await asked.reading
    # More than the connections of those who do not read take in.
    assert sum(event.ByteSize() for event in asked.seen if event.sequence == 0) > 60_000
    elapsed = events[-1].run_finished.elapsed.ToTimedelta().total_seconds()
    assert elapsed < 10.0, "the run waited for those who do not read"
    for call in idle:
        call.cancel()


# --- cancelling from anywhere -----------------------------------------------------------------------------------------


async def test_a_run_is_cancelled_from_the_other_replica(pair: Pair) -> None:
    asked = Asked(pair, hold=Hold("generate_answer", midway=True))
    run_id = await asked.run_id()
    held = await pair.cluster.asked(asked.mark, "generate_answer")
    asking = time.monotonic()
    reply = await pair.second.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=CALL_SECONDS)
    await durability.until(lambda: held.closed_by_client, "the call in flight is stopped")
    assert time.monotonic() - asking <= 1.0
    assert (reply.run.state, reply.run.outcome) == (pb2.RUN_STATE_FINISHED, trace_pb2.OUTCOME_CANCELLED)
    events = checked(await durability.watch(pair.second, run_id))
    assert durability.stored_steps(events)[-2:] == ["passage_graded", "run_finished"]
    await asked.reading
    again = await pair.first.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=CALL_SECONDS)
    assert again.run == reply.run


async def test_a_run_whose_replica_died_can_be_cancelled(pair: Pair) -> None:
    asked = Asked(pair, hold=Hold("generate_answer", midway=True))
    run_id = await asked.run_id()
    await pair.cluster.asked(asked.mark, "generate_answer")
    await pair.one.kill()
    reply = await pair.second.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=CALL_SECONDS)
    assert reply.run.outcome == trace_pb2.OUTCOME_CANCELLED
    events = checked(await durability.watch(pair.second, run_id))
    assert [event.WhichOneof("payload") for event in events][-2:] == ["run_resumed", "run_finished"]
    assert set(pair.cluster.keys(asked.mark).values()) == {1}


async def test_a_run_that_waits_is_cancelled_from_the_other_replica(calm_pair: Pair) -> None:
    asked = Asked(calm_pair, "compose")
    run_id = await asked.run_id()

    async def cancel(_: int) -> None:
        reply = await calm_pair.second.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=CALL_SECONDS)
        assert reply.run.outcome == trace_pb2.OUTCOME_CANCELLED

    events = checked(await durability.watch(calm_pair.first, run_id, cancel))
    assert durability.stored_steps(events)[-2:] == ["approval_requested", "run_finished"]
    assert not durability.resumptions(events)
    await asked.reading
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await durability.decide(calm_pair.first, (run_id, asked.mark), 1)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_of_two_decisions_at_once_one_counts(calm_pair: Pair) -> None:
    asked = Asked(calm_pair, "compose")
    run_id = await asked.run_id()
    refused: list[grpc.StatusCode] = []

    async def decide(stub: Any, approval: int) -> None:
        try:
            await durability.decide(stub, (run_id, asked.mark), approval)
        except grpc.aio.AioRpcError as error:
            refused.append(error.code())

    async def both(approval: int) -> None:
        await asyncio.gather(*(decide(stub, approval) for stub in (calm_pair.first, calm_pair.second)))

    events = checked(await durability.watch(calm_pair.second, run_id, both))
    assert durability.stored_steps(events) == list(durability.COMPOSE_STEPS)
    assert refused == [grpc.StatusCode.FAILED_PRECONDITION] * 2
    assert set(calm_pair.cluster.keys(asked.mark).values()) == {1}
    await asked.reading


# --- the services below -----------------------------------------------------------------------------------------------

_PROGRAMS = {
    "judge": "services.judge.__main__",
    "generator": "services.generator.__main__",
    "retriever": "tests.harness.durability",
}
_HELD = {
    "judge": Hold("grade_passage", "second place"),
    "generator": Hold("generate_answer", midway=True),
    "retriever": Hold("broaden_query", seconds=1.0),
}


@pytest.mark.parametrize("name", list(_PROGRAMS))
async def test_a_service_that_is_killed_and_started_again_costs_no_run(cluster: Cluster, name: str) -> None:
    model = {"ERRATA_LLM_PROVIDER": "openai", "OPENAI_BASE_URL": cluster.model.base_url, "ERRATA_DRAIN_PAUSE_SECONDS": "0"}
    model |= {"JUDGE_BATCH_SIZE": "1"} if name == "judge" else {}
    ports = {f"{name.upper()}_PORT": "0", f"{name.upper()}_METRICS_PORT": "0"}
    service = await cluster.nursery.start({**model, **ports}, program=_PROGRAMS[name])
    target = {f"ORCHESTRATOR_{name.upper()}_TARGET": service.target}
    replica = await cluster.nursery.start({**cluster.variables, **target})
    pair = Pair(cluster, replica, replica)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(replica.kill)
        asked = Asked(pair, hold=_HELD[name])
        await durability.until(lambda: asked.mark not in cluster.desk.holds, "the call is in flight")
        if name == "judge":
            await durability.until(lambda: asked.last(2) == ["passages_retrieved", "passage_graded"], "the other one is graded")
        await service.kill()
        await durability.until(lambda: replica.entries("service_away"), "the run waits for the service")
        ports[f"{name.upper()}_PORT"] = str(service.port)
        again = await cluster.nursery.start({**model, **ports}, program=_PROGRAMS[name])
        stack.push_async_callback(again.kill)
        await asyncio.wait_for(asked.reading, CALL_SECONDS)
        events = checked(asked.seen)
        assert durability.stored_steps(events) == list(ANSWER_STEPS)
        assert not durability.resumptions(events)
        found = await described(pair.first, events[0].run_id)
        keys = cluster.keys(asked.mark)
        assert durability.each_recorded_once(found, len(keys))
        # Only the call in flight was made twice.
        assert keys.total() - len(keys) == (0 if name == "retriever" else 1)
