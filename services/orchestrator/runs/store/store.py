"""The run store: what people query, and who works on what."""

import datetime
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from errata_kit.errors import RequestIdReused, RunNotFound, RunNotWaiting
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import ApprovalDecided, RunStarted, TraceEvent
from services.orchestrator.runs.run import ClaimedRun, Evaluation, Lease, Run, RunOptions, RunPage, RunQuery, RunState
from services.orchestrator.runs.store import codec, leases, reading
from services.orchestrator.runs.store.database import reading_from
from services.orchestrator.runs.store.tables import run_events, runs
from services.orchestrator.runs.store.writer import Append, Creation, GroupWriter, notify, persistent, writing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Created:
    """What became of a request: a new run with its first event, or, without one, the run that the request_id had."""

    run_id: str
    event: TraceEvent | None


class RunStore:
    """Keeps runs. Everything is stored before it is shown to anybody. Create it inside a running event loop.

    Every method raises ServiceUnavailable when the database can't be reached for seconds.
    """

    def __init__(self, engine: AsyncEngine, owner: str, ttl: float) -> None:
        """owner: this replica, different after each start. ttl: seconds that a lease lasts."""
        self._engine = engine
        self._owner = owner
        self._ttl = ttl
        self._writer = GroupWriter(engine)

    async def create(self, run_id: str, request: str, started: RunStarted, options: RunOptions, limit: float) -> Created:
        """Begin a run under a lease with fence 1. limit: seconds until its deadline.

        Raises:
            RequestIdReused: the principal has used the request_id for another request.
        """
        now = datetime.datetime.now(datetime.UTC)
        event = TraceEvent(run_id, 1, now, started)
        row = {
            "run_id": run_id,
            "workflow": started.workflow,
            "tenant": options.tenant,
            "principal": options.principal,
            "request_id": options.request_id or None,
            "request_hash": options.request_hash,
            "request": request,
            "question": started.question,
            "collection": started.collection,
            "state": RunState.RUNNING.value,
            "create_time": now,
            "last_sequence": 1,
            "max_cost_micros": options.budget.max_cost_micros,
            "max_tokens": options.budget.max_tokens,
            "lease_owner": self._owner,
            "fence": 1,
        }
        if await self._writer.write(Creation(row, event, limit, self._ttl)):
            return Created(run_id, event)
        return Created(await self._run_of_request(options), None)

    async def append(
        self, lease: Lease, events: tuple[TraceEvent, ...], calls: dict[int, ModelCall], changes: dict[str, Any]
    ) -> None:
        """Store events of a run with the model calls behind them, by position. changes: columns of its row.

        Raises:
            LeaseLost: another replica has taken the run.
        """
        sequence = events[-1].sequence
        usage = tuple(codec.usage_row(lease.run_id, sequence, position, call) for position, call in calls.items())
        await self._writer.write(Append(lease, events, usage, {"last_sequence": sequence, **changes}))

    async def note_calls(self, lease: Lease, sequence: int, calls: dict[int, ModelCall]) -> None:
        """Store model calls that led to no event. sequence: the last event before them. Raises LeaseLost."""
        usage = tuple(codec.usage_row(lease.run_id, sequence, position, call) for position, call in calls.items())
        await self._writer.write(Append(lease, (), usage))

    async def get(self, tenant: str, run_id: str) -> Run:
        """A tenant's run; RunNotFound without, also when it is another tenant's."""
        return await self._read(lambda connection: reading.get_run(connection, tenant, run_id))

    async def events(self, tenant: str, run_id: str, after: int, most: int = 200) -> tuple[TraceEvent, ...]:
        """Its next stored events behind a sequence number, in order; none for a run that the tenant does not have."""
        return await self._read(lambda connection: reading.get_events_of(connection, tenant, run_id, after, most))

    async def evaluations(self, tenant: str, run_id: str) -> tuple[Evaluation, ...]:
        """Its grades, in the order of the trace."""
        return await self._read(lambda connection: reading.get_evaluations(connection, tenant, run_id))

    async def model_calls(self, tenant: str, run_id: str) -> tuple[ModelCall, ...]:
        """Its model calls, failed ones too, in the order in which they ended."""
        return await self._read(lambda connection: reading.get_calls_of(connection, tenant, run_id))

    async def list(self, query: RunQuery) -> RunPage:
        """A page of runs, newest first; InvalidFields for a token of another query."""
        return await self._read(lambda connection: reading.list_runs(connection, query))

    async def tokens_since(self, moment: datetime.datetime) -> dict[tuple[str, str], int]:
        """Tokens of the runs of all tenants that started at or after a time, by tenant and principal."""
        return await self._read(lambda connection: reading.tokens_since(connection, moment))

    async def claim_expired(self, most: int, workflows: tuple[str, ...]) -> tuple[ClaimedRun, ...]:
        """Take runs of these workflows up whose lease is over."""
        return await leases.claim_expired(self._engine, (self._owner, self._ttl), most, workflows)

    async def renew(self) -> dict[Lease, bool]:
        """Prolong all leases of this replica; returns those it still has, and whether each run is to be cancelled."""
        return await leases.renew(self._engine, self._owner, self._ttl)

    async def release(self, held: tuple[Lease, ...]) -> None:
        """Let runs go."""
        if held:
            await persistent(lambda: leases.release(self._engine, held))

    async def request_cancel(self, run_id: str) -> None:
        """Note that a run is to be cancelled; whoever works on it will see it."""
        await persistent(lambda: leases.request_cancel(self._engine, run_id))

    async def decide(self, tenant: str, run_id: str, decided: ApprovalDecided, limit: float) -> ClaimedRun:
        """Store a person's decision and take the run. decided.approval: 0 means the request that waits.

        Raises:
            RunNotFound: the tenant has no such run.
            RunNotWaiting: it waits for no decision, or for another one.
        """
        return await persistent(lambda: self._decide(tenant, run_id, decided, limit))

    async def _decide(self, tenant: str, run_id: str, decided: ApprovalDecided, limit: float) -> ClaimedRun:
        async with writing(self._engine) as connection:
            query = select(runs.c.state, runs.c.approval, runs.c.last_sequence)
            row = (await connection.execute(query.where(reading.of_tenant(tenant, run_id)).with_for_update())).first()
            if row is None:
                raise RunNotFound(run_id)
            if row.state != RunState.WAITING.value or decided.approval not in {0, row.approval}:
                raise _not_waiting(run_id, row.state, row.approval, decided.approval)
            taken = await leases.claim_waiting(connection, run_id, self._owner, self._ttl, limit)
            decision = ApprovalDecided(row.approval, decided.decision, decided.feedback, decided.principal)
            event = TraceEvent(run_id, row.last_sequence + 1, datetime.datetime.now(datetime.UTC), decision)
            await connection.execute(runs.update().where(runs.c.run_id == run_id).values(last_sequence=event.sequence))
            await connection.execute(run_events.insert(), [codec.event_row(event)])
            if connection.dialect.name == "postgresql":
                await notify(connection, (run_id,))
            assert taken is not None, "the row is locked and waits"  # noqa: S101
            return await leases.claimed(connection, taken, resumed=False)

    async def claim_waiting(self, run_id: str, limit: float) -> ClaimedRun | None:
        """Take a run that waits, without a decision; None when it does not wait."""

        async def attempt() -> ClaimedRun | None:
            async with writing(self._engine) as connection:
                taken = await leases.claim_waiting(connection, run_id, self._owner, self._ttl, limit)
                return None if taken is None else await leases.claimed(connection, taken, resumed=False)

        return await persistent(attempt)

    async def aclose(self) -> None:
        """Stop writing and let the connections go."""
        await self._writer.aclose()
        await self._engine.dispose()

    async def _read(self, read: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def attempt() -> T:
            async with reading_from(self._engine) as connection:
                return await read(connection)

        return await persistent(attempt)

    async def _run_of_request(self, options: RunOptions) -> str:
        async def attempt() -> Any:
            async with reading_from(self._engine) as connection:
                same = (runs.c.tenant == options.tenant) & (runs.c.principal == options.principal)
                same &= runs.c.request_id == options.request_id
                return (await connection.execute(select(runs.c.run_id, runs.c.request_hash).where(same))).one()

        row = await persistent(attempt)
        if row.request_hash != options.request_hash:
            raise RequestIdReused(
                f"The request_id {options.request_id!r} belongs to another request",
                metadata={"request_id": options.request_id, "run_id": row.run_id},
            )
        run_id: str = row.run_id
        return run_id


def _not_waiting(run_id: str, state: str, waits_for: int, asked: int) -> RunNotWaiting:
    message = "The run does not wait for a decision"
    if state == RunState.WAITING.value:
        message = f"The run waits for the decision on request {waits_for}, not {asked}"
    return RunNotWaiting(message, metadata={"run_id": run_id, "state": state, "approval": str(waits_for)})
