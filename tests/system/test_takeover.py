"""A replica is killed (-9) at each step of each workflow, on both databases: another one takes the run up and finishes it.

Nothing that was recorded is done again: the model double's journal has each recorded call once, and the trace no gap, no step
twice and one end.
"""

from __future__ import annotations

import asyncio
import signal
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from tests.harness import durability
from tests.harness.durability import ANSWER_STEPS, CALL_SECONDS, COMPOSE_STEPS, LEASE_SECONDS, Cluster, Hold
from tests.harness.postgres import PostgresServer
from tests.harness.replicas import Nursery, Plan, Replica
from tests.harness.traces import checked

pytestmark = [pytest.mark.system, pytest.mark.asyncio(loop_scope="module")]

# Processes that write to one SQLite file at the same time keep each other waiting, the survivor's renewals among them.
_AT_ONCE = {"sqlite": 2, "postgres": 3}
# Beyond the time of a lease, for a machine that does other things as well: for each of them, and for half of them.
_SLACK_SECONDS = 3.0
_USUAL_SLACK_SECONDS = 1.0
_STEPS = {"answer": ANSWER_STEPS, "compose": COMPOSE_STEPS}


@dataclass(frozen=True, slots=True)
class Point:
    """Where a replica is killed: right after an event is stored, right before, or with a call in flight (hold)."""

    workflow: str
    sequence: int = 0
    before: bool = False
    hold: Hold | None = None

    def __str__(self) -> str:
        if self.hold is not None:
            return f"{self.workflow}-during-{self.hold.operation}"
        if not self.sequence:
            return f"{self.workflow}-waiting"
        kind = _STEPS[self.workflow][self.sequence - 1]
        return f"{self.workflow}-{'before' if self.before else 'after'}-{self.sequence}-{kind}"

    @property
    def hands_over(self) -> bool:
        """Whether the killed replica had the run: a run that waits, or has ended, is nobody's."""
        if self.hold is not None or self.before:
            return True
        kind = _STEPS[self.workflow][self.sequence - 1] if self.sequence else "approval_requested"
        return kind not in {"approval_requested", "run_finished"}


_POINTS = [
    *(Point("answer", sequence) for sequence in (1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 14, 15, 16)),
    *(Point("answer", sequence, before=True) for sequence in (5, 10, 16)),
    *(Point("compose", sequence) for sequence in (1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 16, 19, 20)),
    *(Point("compose", sequence, before=True) for sequence in (7, 20)),
    Point("answer", hold=Hold("search")),
    Point("answer", hold=Hold("grade_passage", "second place")),
    Point("answer", hold=Hold("broaden_query")),
    Point("answer", hold=Hold("generate_answer", midway=True)),
    Point("answer", hold=Hold("check_claims")),
    Point("answer", hold=Hold("refine_answer", midway=True)),
    Point("compose", hold=Hold("search")),
    Point("compose", hold=Hold("grade_passage", "second place")),
    Point("compose", hold=Hold("write_draft", midway=True)),
    Point("compose", hold=Hold("review_draft")),
    Point("compose", hold=Hold("revise_draft", midway=True)),
    Point("compose"),
]


@dataclass(frozen=True, slots=True)
class Killed:
    """What became of a run. at: when its replica was killed, in seconds since 1970."""

    mark: str
    at: float
    events: list[trace_pb2.TraceEvent]
    described: pb2.GetRunResponse

    def waited(self) -> list[float]:
        """Seconds until it was taken up, if it was."""
        return [durability.time_of(event) - self.at for event in durability.resumptions(self.events)]


class Scene:
    """One run on a replica that is to die, watched on the one that survives."""

    def __init__(self, cluster: Cluster, survivor: Replica, victim: Replica, point: Point) -> None:
        self._cluster = cluster
        self._survivor = survivor
        self._victim = victim
        self._point = point
        self._seen: list[trace_pb2.TraceEvent] = []
        self._at = 0.0

    async def play(self) -> Killed:
        """From the start to the end of the run."""
        mark = durability.new_mark()
        ready = self._hold(mark)
        call = durability.start_run(self._cluster.stub(self._victim), self._point.workflow, mark)
        reading = asyncio.create_task(durability.read(call, self._seen))
        other = self._cluster.stub(self._survivor)
        run_id = await durability.run_id_of(other, mark)
        watching = asyncio.create_task(durability.watch(other, run_id, lambda number: self._decide((run_id, mark), number)))
        if self._point.hold is not None:
            await durability.until(ready, "the call is in flight")
            self._at = await self._victim.kill()
        await self._victim.ended()
        if self._point.sequence:
            self._at = float(self._victim.entries("killed")[0]["at"])
        await reading
        events = await watching
        return Killed(mark, self._at, events, await other.GetRun(pb2.GetRunRequest(run_id=run_id), timeout=CALL_SECONDS))

    def _hold(self, mark: str) -> Callable[[], Any]:
        hold = self._point.hold
        if hold is None:
            return lambda: True
        if hold.operation == "search":
            reached = self._cluster.library.holds[mark] = asyncio.Event()
            return reached.is_set
        self._cluster.desk.holds[mark] = hold
        wanted = {"grade_passage": "passage_graded"}.get(hold.operation, "answer_delta" if hold.midway else "")

        def ready() -> bool:
            # A call counts as in flight when it has got as far as it will: others are recorded, or words have come.
            asked = mark not in self._cluster.desk.holds
            kinds = [event.WhichOneof("payload") for event in self._seen]
            late = kinds[kinds.index("passages_retrieved") :] if "passages_retrieved" in kinds else []
            return asked and (not wanted or wanted in late)

        return ready

    async def _decide(self, run: tuple[str, str], number: int) -> None:
        if not self._point.sequence and self._point.hold is None and not self._at:
            self._at = await self._victim.kill()
        replicas = [self._survivor] if self._victim.gone() else [self._victim, self._survivor]
        for served in replicas:
            try:
                await durability.decide(self._cluster.stub(served), run, number)
            except grpc.aio.AioRpcError as error:
                # The replica that was killed had stored the decision, or it had not.
                if error.code() not in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION}:
                    raise
            else:
                return


def database_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Any:
    """A new database of a kind."""
    server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    return durability.migrated(folder, server)


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
    """The database that all killed replicas and the survivor share."""
    with database_of(kind, request, tmp_path_factory.mktemp("shared")) as variables:
        yield variables


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(nursery: Nursery, database: dict[str, str]) -> AsyncIterator[Cluster]:
    """What is below the replicas."""
    async with durability.cluster(nursery, database) as below:
        yield below


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def killings(
    cluster: Cluster, kind: str, request: pytest.FixtureRequest
) -> AsyncIterator[dict[Point, asyncio.Task[Killed]]]:
    """All killings that tests ask for, a few at once: most of their time is spent on waiting for a lease to end."""
    wanted = {item.callspec.params.get("point") for item in request.session.items if hasattr(item, "callspec")}
    turns = asyncio.Semaphore(_AT_ONCE[kind])
    survivor = await cluster.start()

    async def play(point: Point) -> Killed:
        async with turns:
            victim = await cluster.start(Plan(kill_at=point.sequence, before=point.before, takes_up=False))
            return await asyncio.wait_for(Scene(cluster, survivor, victim, point).play(), 2 * CALL_SECONDS)

    tasks = {point: asyncio.create_task(play(point)) for point in _POINTS if point in wanted}
    yield tasks
    for task in tasks.values():
        task.cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    await survivor.kill()


@pytest.mark.parametrize("point", _POINTS, ids=str)
async def test_a_survivor_finishes_the_run(cluster: Cluster, killings: dict[Point, asyncio.Task[Killed]], point: Point) -> None:
    killed = await killings[point]
    events = checked(killed.events)
    steps = durability.stored_steps(events)
    assert steps == list(_STEPS[point.workflow])
    resumed = durability.resumptions(events)
    assert [event.run_resumed.takeover for event in resumed] == ([1] if point.hands_over else [])
    assert all(seconds <= LEASE_SECONDS + _SLACK_SECONDS for seconds in killed.waited())
    run = killed.described.run
    assert (run.takeovers, run.state) == (len(resumed), pb2.RUN_STATE_FINISHED)
    assert (
        run.outcome
        == {
            "answer": trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT,
            "compose": trace_pb2.OUTCOME_APPROVED,
        }[point.workflow]
    )
    keys = cluster.keys(killed.mark)
    assert durability.each_recorded_once(killed.described, len(keys))
    # What was made more than once was in flight when the replica died.
    assert keys.total() - len(keys) <= _in_flight(point, events), (keys.most_common(3), steps)


async def test_a_run_waits_no_longer_than_a_lease(killings: dict[Point, asyncio.Task[Killed]]) -> None:
    done = await asyncio.gather(*killings.values(), return_exceptions=True)
    waited = [seconds for killed in done if isinstance(killed, Killed) for seconds in killed.waited()]
    if not waited:
        pytest.skip("no replica was killed")
    assert statistics.median(waited) <= LEASE_SECONDS + _USUAL_SLACK_SECONDS


def _in_flight(point: Point, events: list[trace_pb2.TraceEvent]) -> int:
    """How many model calls can have been lost: those whose results were not yet stored."""
    kinds = [str(event.WhichOneof("payload")) for event in events if event.sequence]
    if not point.hands_over:
        return 0
    rest = kinds[kinds.index("run_resumed") + 1 :]
    if rest[0] == "passage_graded":
        # The passages of a retrieval are graded at the same time.
        until_now = kinds[kinds.index("run_resumed") - 1]
        left = next(place for place, kind in enumerate(rest) if kind != "passage_graded")
        after_retrieval = until_now == "passages_retrieved" and not point.before and point.hold is None
        return 0 if after_retrieval else left
    if not point.before and point.hold is None:
        return 0
    # A draft is checked while it is written.
    several = {"draft_reviewed": 2, "answer_drafted": 2}
    return {"passages_retrieved": 0, "run_finished": 0, "approval_requested": 0, **several}.get(rest[0], 1)


@pytest.fixture
def alone(cluster: Cluster, kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    """The same services above a database of one's own."""
    with database_of(kind, request, tmp_path) as variables:
        yield replace(cluster, variables={**cluster.variables, **variables})


@pytest.mark.parametrize("way", ["SIGKILL", "SIGTERM"])
async def test_a_restarted_replica_takes_its_own_run_up(alone: Cluster, way: str) -> None:
    mark = durability.new_mark()
    alone.desk.holds[mark] = Hold("generate_answer", midway=True)
    # A replica that is told to stop lets its runs go, so that nobody has to wait for the end of their lease.
    lease = LEASE_SECONDS if way == "SIGKILL" else 60.0
    variables = {"ERRATA_DRAIN_GRACE_SECONDS": "0.1", "ORCHESTRATOR_LEASE_SECONDS": str(lease)}
    first = await alone.start(None, **variables)
    seen: list[trace_pb2.TraceEvent] = []
    reading = asyncio.create_task(durability.read(durability.start_run(alone.stub(first), "answer", mark), seen))
    await durability.until(lambda: any(event.WhichOneof("payload") == "answer_delta" for event in seen), "words come")
    at = first.signal(signal.Signals[way])
    assert await first.ended() == (0 if way == "SIGTERM" else -signal.SIGKILL)
    await reading
    [held] = [call for call in alone.calls(mark) if call.reply.fault]
    await durability.until(lambda: held.closed_by_client, "the call in flight is cancelled", 2)
    second = await alone.start()
    ready = time.time()
    try:
        events = checked(await durability.watch(alone.stub(second), seen[0].run_id))
    finally:
        await second.kill()
    assert durability.stored_steps(events) == list(ANSWER_STEPS)
    [resumed] = durability.resumptions(events)
    assert durability.time_of(resumed) <= max(ready, at + LEASE_SECONDS) + _SLACK_SECONDS
    assert [count for count in alone.keys(mark).values() if count > 1] == [2]
