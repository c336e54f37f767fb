"""A run under way, and what its workflow comes to."""

import asyncio
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from sqlalchemy.exc import SQLAlchemyError

from errata_kit.access.principals import Principal
from errata_kit.errors import DeadlineExceeded, ErrataError, Reason
from errata_kit.logs import get_logger
from services.orchestrator.runs.events import ApprovalRequested, RunFinished
from services.orchestrator.runs.feed import Feed
from services.orchestrator.runs.run import Lease, LeaseLost
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.runs.workflow import Workflow

STORAGE_ERRORS: Final = (psycopg.Error, sqlite3.Error, SQLAlchemyError)
"""What the database of runs or checkpoints raises. It says nothing about the run."""

_log = get_logger("errata.runs")


@dataclass(slots=True)
class Active:
    """A run under way in this process.

    principal: on whose behalf. end: why it is to end before its time. released: let go, not ended. ending: its end is being
    stored. ended: it is stored.
    """

    feed: Feed
    workflow: Workflow
    lease: Lease
    principal: Principal
    task: asyncio.Task[None] | None = None
    end: ErrataError | None = None
    released: bool = False
    ending: bool = False
    ended: bool = False


async def result_of(
    active: Active, request: Any, trace: RunTrace, limit: float, already: ErrataError | None
) -> RunFinished | ApprovalRequested:
    """Let the workflow work, for `limit` seconds at most. What it raises becomes an end, too.

    already: why the run is to end before it has begun. Raises LeaseLost, CancelledError or one of STORAGE_ERRORS when the run
    is not to end here.
    """
    try:
        if already is not None:
            raise already
        if limit <= 0:
            raise TimeoutError
        async with asyncio.timeout(limit):
            return await active.workflow.run(request, trace)
    except asyncio.CancelledError:
        if active.released or active.end is None:
            raise
        error: ErrataError = active.end
    except TimeoutError:
        error = DeadlineExceeded(f"The run did not finish within {max(0.0, limit):.1f} s")
    except ErrataError as raised:
        if raised.metadata.get("service") == "database":
            raise
        if raised.why not in {Reason.CANCELLED, Reason.BUDGET_EXHAUSTED}:
            _log.warning("run_failed", reason=raised.why.value, detail=raised.for_log())
        error = raised
    except (LeaseLost, *STORAGE_ERRORS):
        raise
    except Exception:
        _log.exception("run_broke")
        error = ErrataError()
    # What was being stored when it was broken off is part of it.
    await trace.settled()
    return active.workflow.broken_off(request, trace, error)
