"""The run engine: starts runs, drives them, shows them to watchers and ends them. It knows no workflow's steps."""

import asyncio
import datetime
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import uuid_utils

from errata_kit.calls import within_run
from errata_kit.errors import DeadlineExceeded, Draining, ErrataError, Reason, RunCancelled
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from services.orchestrator.runs.events import (
    AnswerDelta,
    Failure,
    Outcome,
    Payload,
    RunFinished,
    RunStarted,
    TraceEvent,
)
from services.orchestrator.runs.feed import Feed
from services.orchestrator.runs.store import Run, RunStore

# The run ends this much before its caller's deadline, so that the terminal event still reaches the caller.
_DEADLINE_MARGIN_SECONDS: Final = 0.05

_log = get_logger("errata.runs")


class Workflow(Protocol):
    """What the engine drives. Request types are the workflow's own."""

    @property
    def name(self) -> str:
        """The name under which it is registered."""
        ...

    def started(self, request: Any) -> RunStarted:
        """The first event of a run."""
        ...

    async def run(self, run_id: str, request: Any, emit: Callable[[Payload], Awaitable[None]]) -> RunFinished:
        """Work, emitting events, and return the terminal event. Raises ErrataError for failures."""
        ...


@dataclass(slots=True)
class _Active:
    """A run under way in this process."""

    feed: Feed
    task: asyncio.Task[None]
    end: ErrataError | None = None


class RunEngine:
    """Drives the runs of this process. Create it inside a running event loop."""

    def __init__(self, store: RunStore, workflows: tuple[Workflow, ...], metrics: Metrics, timeout_seconds: float) -> None:
        self._store = store
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._metrics = metrics
        self._timeout = timeout_seconds
        self._active: dict[str, _Active] = {}
        self._draining = False

    async def start(self, workflow_name: str, request: Any, seconds: float | None) -> str:
        """Start a run and return its id. seconds: until the caller's deadline; the service's own limit holds as well."""
        if self._draining:
            raise Draining("The orchestrator is shutting down", retry_after=1.0)
        workflow = self._workflows[workflow_name]
        run_id = str(uuid_utils.uuid7())
        limit = self._timeout if seconds is None else min(self._timeout, max(0.0, seconds - _DEADLINE_MARGIN_SECONDS))
        await self._store.create(run_id, workflow.started(request))
        task = asyncio.create_task(self._drive(workflow, run_id, request, limit), name=f"run-{run_id}")
        self._active[run_id] = _Active(Feed(), task)
        task.add_done_callback(lambda _: self._abandoned(run_id))
        self._metrics.runs_in_flight.labels(workflow_name).inc()
        return run_id

    async def watch(self, run_id: str, after: int = 0) -> AsyncGenerator[TraceEvent, None]:
        """Stored events behind after, then live ones and deltas, until the run has ended. RunNotFound without the run."""
        active = self._active.get(run_id)
        if active is None:
            for event in await self._store.events(run_id, after):
                yield event
            return
        watcher = active.feed.subscribe()
        try:
            for event in await self._store.events(run_id, after):
                after = event.sequence
                yield event
            while (live := await watcher.next()) is not None:
                # What was replayed may have been published meanwhile, too.
                if live.sequence == 0 or live.sequence > after:
                    after = max(after, live.sequence)
                    yield live
            # A run that ended as it should has told its feed already; anything else is raised here.
            await asyncio.shield(active.task)
        finally:
            active.feed.unsubscribe(watcher)

    async def cancel(self, run_id: str) -> Run:
        """Stop a run and wait until it has ended. One that has ended stays as it is. RunNotFound without the run."""
        await self._end(run_id, RunCancelled("The run was cancelled"))
        return await self._store.get(run_id)

    async def drain(self, grace_seconds: float) -> None:
        """Start nothing new, give what runs this long to finish, then end the rest."""
        self._draining = True
        tasks = [active.task for active in self._active.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=grace_seconds)
        error = Draining("The orchestrator shut down before the run could finish")
        await asyncio.gather(*(self._end(run_id, error) for run_id in tuple(self._active)))

    async def _end(self, run_id: str, error: ErrataError) -> None:
        active = self._active.get(run_id)
        if active is None:
            return
        if active.end is None:
            active.end = error
            active.task.cancel()
        await asyncio.wait([active.task])

    async def _drive(self, workflow: Workflow, run_id: str, request: Any, limit: float) -> None:
        started = time.monotonic()
        result: RunFinished
        progress = _Progress()
        with within_run(run_id, limit):

            async def emit(payload: Payload) -> None:
                progress.note(payload)
                await self._emit(run_id, payload)

            try:
                async with asyncio.timeout(limit):
                    result = await workflow.run(run_id, request, emit)
            except asyncio.CancelledError:
                active = self._active[run_id]
                result = _failed(active.end or RunCancelled("The run was cancelled"))
            except TimeoutError:
                result = _failed(DeadlineExceeded(f"The run did not finish within {limit:.1f} s"))
            except ErrataError as error:
                _log.warning("run_failed", reason=error.why.value, detail=error.detail[:2000])
                result = _failed(error)
            except Exception:
                _log.exception("run_broke")
                result = _failed(ErrataError())
            elapsed = time.monotonic() - started
            result = replace(result, elapsed_seconds=elapsed)
            if result.error is not None:
                result = replace(result, retrievals=progress.retrievals, refinements=progress.refinements)
            # The terminal event is stored even when somebody cancels again right now.
            await asyncio.shield(self._finish(workflow.name, run_id, result))

    def _abandoned(self, run_id: str) -> None:
        # Only what is no Exception, such as the interpreter's exit, leaves a run without its terminal event.
        active = self._active.pop(run_id, None)
        if active is not None:
            active.feed.close()

    async def _finish(self, workflow: str, run_id: str, result: RunFinished) -> None:
        try:
            await self._emit(run_id, result)
        finally:
            self._active.pop(run_id).feed.close()
            self._metrics.runs_in_flight.labels(workflow).dec()
        self._metrics.runs.labels(workflow, result.outcome.value).inc()
        self._metrics.run_seconds.labels(workflow).observe(result.elapsed_seconds)
        self._metrics.retrievals.inc(result.retrievals)
        self._metrics.refinements.inc(result.refinements)
        _log.info("run_finished", outcome=result.outcome.value, seconds=round(result.elapsed_seconds, 3))

    async def _emit(self, run_id: str, payload: Payload) -> None:
        if isinstance(payload, AnswerDelta):
            event = TraceEvent(run_id, 0, datetime.datetime.now(datetime.UTC), payload)
        else:
            event = await self._store.append(run_id, payload)
        self._active[run_id].feed.publish(event)


@dataclass(slots=True)
class _Progress:
    """Counts of a run that did not reach its own end."""

    retrievals: int = 0
    refinements: int = 0

    def note(self, payload: Payload) -> None:
        self.retrievals = max(self.retrievals, getattr(payload, "retrieval", 0))
        self.refinements = max(self.refinements, getattr(payload, "refinement", 0))


def _failed(error: ErrataError) -> RunFinished:
    outcome = {
        Reason.CANCELLED: Outcome.CANCELLED,
        Reason.DEADLINE_EXCEEDED: Outcome.DEADLINE_EXCEEDED,
    }.get(error.why, Outcome.FAILED)
    return RunFinished(outcome=outcome, error=Failure(error.why, error.message, dict(error.metadata)))
