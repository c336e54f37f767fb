"""Deletes what is kept long enough. It works in small batches beside the runs, never in their way."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from errata_kit.logs import get_logger
from services.orchestrator.runs.checkpoints import Checkpoints
from services.orchestrator.runs.store import retention

_PAUSE_BETWEEN_BATCHES: Final = 0.1

_log = get_logger("errata.housekeeping")


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds after the end of a run; interval: seconds between rounds."""

    checkpoints: float
    events: float
    runs: float
    interval: float


async def keep_house(engine: AsyncEngine, checkpoints: Checkpoints, keep: Retention) -> None:
    """Go round until cancelled. What fails is tried again in the next round."""
    while True:
        await asyncio.sleep(keep.interval)
        try:
            await clean(engine, checkpoints, keep)
        except Exception as error:
            _log.warning("housekeeping_failed", error=type(error).__name__, detail=str(error)[:300])


async def clean(engine: AsyncEngine, checkpoints: Checkpoints, keep: Retention) -> None:
    """One round."""
    pruned = 0
    while run_ids := await retention.with_old_checkpoints(engine, keep.checkpoints):
        await checkpoints.forget(run_ids)
        await retention.note_pruned(engine, run_ids)
        pruned += len(run_ids)
        await asyncio.sleep(_PAUSE_BETWEEN_BATCHES)
    events = await _in_batches(lambda: retention.prune_events(engine, keep.events))
    runs = await _in_batches(lambda: retention.prune_runs(engine, keep.runs))
    if pruned or events or runs:
        _log.info("housekeeping", checkpoints_of_runs=pruned, events_of_runs=events, runs=runs)


async def _in_batches(prune: Callable[[], Awaitable[int]]) -> int:
    total = 0
    while (done := await prune()) > 0:
        total += done
        await asyncio.sleep(_PAUSE_BETWEEN_BATCHES)
    return total
