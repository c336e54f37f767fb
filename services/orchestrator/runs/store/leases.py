"""Who works on which run: taking runs up, keeping them, letting them go. All times are the database's."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row, exists, literal, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from services.orchestrator.runs.run import Budget, ClaimedRun, Lease, RunState
from services.orchestrator.runs.store.database import now_epoch, reading_from
from services.orchestrator.runs.store.reading import get_calls, get_events
from services.orchestrator.runs.store.tables import runs
from services.orchestrator.runs.store.writer import CANCEL_MARK, notify, same_lease, writing

_ALL_EVENTS = 1_000_000

_CLAIMED = (
    runs.c.run_id,
    runs.c.lease_owner,
    runs.c.fence,
    runs.c.workflow,
    runs.c.request,
    runs.c.principal,
    runs.c.tenant,
    runs.c.takeovers,
    runs.c.max_cost_micros,
    runs.c.max_tokens,
    runs.c.cancel_requested,
    (runs.c.deadline - now_epoch()).label("seconds"),
)


async def claim_expired(
    engine: AsyncEngine, holder: tuple[str, float], most: int, workflows: tuple[str, ...]
) -> tuple[ClaimedRun, ...]:
    """Take up to `most` running runs whose lease is over. Of several replicas that try, one gets each run.

    holder: the owner and the seconds of its leases. workflows: those that it knows; to take another run would only count as
    a change of hands.
    """
    owner, ttl = holder
    over = (runs.c.state == RunState.RUNNING.value) & (runs.c.lease_expires < now_epoch()) & runs.c.workflow.in_(workflows)
    async with reading_from(engine) as connection:
        # Asked for all the time, and nearly always in vain: so without the lock of a writer first.
        if not (await connection.execute(select(exists().where(over)))).scalar():
            return ()
    free = select(runs.c.run_id).where(over).order_by(runs.c.lease_expires).limit(most).with_for_update(skip_locked=True)
    claim = (
        update(runs)
        .where(runs.c.run_id.in_(free.scalar_subquery()), over)
        .values(lease_owner=owner, lease_expires=now_epoch() + ttl, fence=runs.c.fence + 1, takeovers=runs.c.takeovers + 1)
        .returning(*_CLAIMED)
    )
    async with writing(engine) as connection:
        rows = (await connection.execute(claim)).all()
        return tuple([await claimed(connection, row, resumed=True) for row in rows])


async def claim_waiting(connection: AsyncConnection, run_id: str, owner: str, ttl: float, limit: float) -> Row[Any] | None:
    """Take a run that waits for a person, if it still does. limit: seconds until its new deadline."""
    claim = (
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.state == RunState.WAITING.value)
        .values(
            state=RunState.RUNNING.value,
            approval=0,
            lease_owner=owner,
            lease_expires=now_epoch() + ttl,
            deadline=now_epoch() + limit,
            fence=runs.c.fence + 1,
        )
        .returning(*_CLAIMED)
    )
    return (await connection.execute(claim)).first()


async def claimed(connection: AsyncConnection, row: Row[Any], *, resumed: bool) -> ClaimedRun:
    """Everything that is needed to go on with a run that was just taken."""
    return ClaimedRun(
        lease=Lease(row.run_id, row.lease_owner, row.fence),
        workflow=row.workflow,
        request=row.request,
        principal=row.principal,
        tenant=row.tenant,
        takeovers=row.takeovers,
        resumed=resumed,
        budget=Budget(row.max_cost_micros, row.max_tokens),
        seconds=row.seconds,
        cancelled=row.cancel_requested,
        events=await get_events(connection, row.run_id, 0, _ALL_EVENTS),
        model_calls=await get_calls(connection, row.run_id),
    )


async def renew(engine: AsyncEngine, owner: str, ttl: float) -> dict[Lease, bool]:
    """Prolong every lease of an owner. Returns those it still has, each with whether somebody wants the run cancelled."""
    keep = (
        update(runs)
        .where(runs.c.lease_owner == owner, runs.c.state == RunState.RUNNING.value)
        .values(lease_expires=now_epoch() + ttl)
        .returning(runs.c.run_id, runs.c.fence, runs.c.cancel_requested)
    )
    async with writing(engine) as connection:
        rows = (await connection.execute(keep)).all()
    return {Lease(row.run_id, owner, row.fence): row.cancel_requested for row in rows}


async def release(engine: AsyncEngine, leases: Sequence[Lease]) -> None:
    """Let runs go, so that another replica takes them up at once."""
    async with writing(engine) as connection:
        for lease in leases:
            await connection.execute(update(runs).where(same_lease(lease)).values(lease_owner=None, lease_expires=literal(0.0)))
        await _notify(connection, ("",))


async def request_cancel(engine: AsyncEngine, run_id: str) -> None:
    """Tell whoever works on a run that it is to be cancelled."""
    wish = update(runs).where(runs.c.run_id == run_id, runs.c.state != RunState.FINISHED.value)
    async with writing(engine) as connection:
        await connection.execute(wish.values(cancel_requested=true()))
        await _notify(connection, (CANCEL_MARK + run_id,))


async def _notify(connection: AsyncConnection, run_ids: Iterable[str]) -> None:
    if connection.dialect.name == "postgresql":
        await notify(connection, run_ids)
