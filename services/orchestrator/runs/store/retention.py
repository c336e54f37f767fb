"""How long things are kept: checkpoints of ended runs, events, and runs."""

import datetime
from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, select, true, update
from sqlalchemy.ext.asyncio import AsyncEngine

from services.orchestrator.runs.store.tables import run_events, runs
from services.orchestrator.runs.store.writer import writing

BATCH: Final = 100
"""Runs a transaction: small, so that nothing else waits for it."""


async def with_old_checkpoints(engine: AsyncEngine, seconds: float) -> tuple[str, ...]:
    """Some ended runs whose checkpoints are due."""
    due = (runs.c.finish_time < _ago(seconds)) & runs.c.checkpoints_pruned.is_(False)
    async with engine.connect() as connection:
        rows = await connection.execute(select(runs.c.run_id).where(due).limit(BATCH))
        return tuple(rows.scalars())


async def note_pruned(engine: AsyncEngine, run_ids: Sequence[str]) -> None:
    """Remember that these runs have no checkpoints any more."""
    async with writing(engine) as connection:
        await connection.execute(update(runs).where(runs.c.run_id.in_(run_ids)).values(checkpoints_pruned=true()))


async def prune_events(engine: AsyncEngine, seconds: float) -> int:
    """Delete the events of some runs that ended so long ago, all but RunFinished. Returns the number of runs."""
    due = (runs.c.finish_time < _ago(seconds)) & runs.c.events_pruned.is_(False)
    async with writing(engine) as connection:
        rows = (await connection.execute(select(runs.c.run_id).where(due).limit(BATCH))).scalars().all()
        if rows:
            old = run_events.c.run_id.in_(rows) & (run_events.c.type != "RunFinished")
            await connection.execute(delete(run_events).where(old))
            await connection.execute(update(runs).where(runs.c.run_id.in_(rows)).values(events_pruned=true()))
    return len(rows)


async def prune_runs(engine: AsyncEngine, seconds: float) -> int:
    """Delete some runs that ended so long ago, with everything about them. Returns their number."""
    async with writing(engine) as connection:
        query = select(runs.c.run_id).where(runs.c.finish_time < _ago(seconds)).limit(BATCH)
        rows = (await connection.execute(query)).scalars().all()
        if rows:
            await connection.execute(delete(runs).where(runs.c.run_id.in_(rows)))
    return len(rows)


def _ago(seconds: float) -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
