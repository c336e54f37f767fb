"""The run engine: starts runs, takes runs up, drives them and ends them. It knows no workflow's steps."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import uuid_utils

from errata_kit.access.principals import Principal, Role
from errata_kit.calls import current_call, enter_call, stop_task
from errata_kit.errors import Draining, ErrataError, RunCancelled, ServiceUnavailable
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics, RunEnd, at_zero
from errata_kit.tracing import current_span, span
from services.orchestrator.runs.admission import under_way
from services.orchestrator.runs.driving import STORAGE_ERRORS, Active, result_of
from services.orchestrator.runs.events import (
    ApprovalDecided,
    ApprovalRequested,
    Outcome,
    RunFinished,
    RunResumed,
    TraceEvent,
)
from services.orchestrator.runs.feed import Feed
from services.orchestrator.runs.keeping import LeaseKeeper
from services.orchestrator.runs.run import ClaimedRun, Lease, LeaseLost, Run, RunOptions, RunState
from services.orchestrator.runs.signals import Signals
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.runs.store.writer import CANCEL_MARK
from services.orchestrator.runs.trace import Recording, RunTrace
from services.orchestrator.runs.watching import Watching
from services.orchestrator.runs.workflow import Workflow

# The run ends this much before its caller's deadline, so that the terminal event still reaches the caller.
_DEADLINE_MARGIN_SECONDS: Final = 0.05
_MOST_TAKEN_AT_ONCE: Final = 16
_log = get_logger("errata.runs")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Seconds, all of them. replica: this process, different after each start.

    timeout: the longest run. lease: until another replica may take a run up. outage: how long a service may be away.
    max_takeovers: a run that has changed hands more often is ended, for it may be what kills its replicas. spent: told about
    the tokens that a principal's run has used.
    """

    replica: str
    timeout: float
    lease: float
    outage: float
    max_takeovers: int = 10
    spent: Callable[[Principal, int], None] = lambda principal, tokens: None


@dataclass(slots=True)
class _Callers:
    """Who waits for a run that was asked for here. keep: one of them wants it to go on without them."""

    count: int = 0
    keep: bool = False


class RunEngine:
    """Drives the runs of this process. Create it inside a running event loop, and close it."""

    def __init__(
        self,
        store: RunStore,
        signals: Signals,
        workflows: tuple[Workflow, ...],
        metrics: Metrics,
        settings: EngineSettings,
    ) -> None:
        self._store = store
        self._signals = signals
        self._workflows = {workflow.name: workflow for workflow in workflows}
        self._metrics = metrics
        at_zero(metrics.runs, self._workflows, Outcome)
        at_zero(metrics.runs_in_flight, self._workflows)
        self._settings = settings
        self._active: dict[str, Active] = {}
        self._callers: dict[str, _Callers] = {}
        self._draining = False
        self._free = asyncio.Event()
        self._watching = Watching(store, signals, self._feed_of, lambda: self._draining)
        self._keeper = LeaseKeeper(store, settings.lease, self._lose, lambda lease: self._interrupt(lease.run_id))
        self._taking = asyncio.create_task(self._take_over(), name="takeovers")
        self._others: set[asyncio.Task[Any]] = set()
        signals.on_news(self._heard)

    async def start(self, workflow_name: str, request: Any, options: RunOptions, *, cancels: bool = False) -> tuple[str, bool]:
        """Start a run. Returns its id, and whether it is new: with a request_id it may have been started before.

        A caller that is cancelled while this waits has still started the run; cancels says what becomes of it then.
        """
        if self._draining:
            raise Draining("The orchestrator is shutting down", retry_after=1.0)
        starting = self._spawn(self._start(self._workflows[workflow_name], request, options))
        try:
            run_id, new = await asyncio.shield(starting)
        except asyncio.CancelledError:
            if cancels:
                starting.add_done_callback(self._abandon)
            raise
        current_span().note({"errata.run_id": run_id})
        return run_id, new

    def watch(self, tenant: str, run_id: str, after: int = 0) -> AsyncGenerator[TraceEvent, None]:
        """The trace of a tenant's run behind a sequence number, replayed and live until the run has ended. See watching.py."""
        return self._watching.watch(tenant, run_id, after)

    @contextlib.contextmanager
    def attached(self, run_id: str, *, cancels: bool) -> Iterator[None]:
        """Inside the block a caller is attached to a run.

        When the last one leaves while this process works on the run, it is cancelled, unless one of its callers has said that
        it is to go on: then cancels was False.
        """
        callers = self._callers.setdefault(run_id, _Callers())
        callers.count += 1
        callers.keep = callers.keep or not cancels
        try:
            yield
        finally:
            callers.count -= 1
            active = self._active.get(run_id)
            if callers.count == 0 and not callers.keep and active is not None and not active.feed.ended and not self._draining:
                self._interrupt(run_id)
            if callers.count == 0 and (active is None or active.feed.ended):
                self._callers.pop(run_id, None)

    def _abandon(self, started: "asyncio.Task[tuple[str, bool]]") -> None:
        if not started.cancelled() and started.exception() is None:
            with self.attached(started.result()[0], cancels=True):
                pass

    async def cancel(self, tenant: str, run_id: str) -> Run:
        """Stop a tenant's run, wherever it is worked on, and return it once it has ended. A run that has ended stays as it is.

        Raises:
            RunNotFound: the tenant has no such run.
            ServiceUnavailable: the replica that works on it did not react in the time of two leases.
        """
        run = await self._store.get(tenant, run_id)
        if run.state is RunState.FINISHED:
            return run
        active = self._active.get(run_id)
        if active is not None and active.task is not None:
            self._interrupt(run_id)
            await asyncio.wait([active.task])
        else:
            await self._store.request_cancel(run_id)
            waiting = await self._store.claim_waiting(run_id, self._settings.timeout)
            if waiting is not None:
                self._resume(waiting, time.monotonic())
            await self._until_ended(tenant, run_id)
        return await self._store.get(tenant, run_id)

    async def decide(self, tenant: str, run_id: str, decided: ApprovalDecided) -> Run:
        """Hand a person's decision over and go on with the run.

        Raises:
            RunNotFound, RunNotWaiting: as RunStore.decide.
        """
        if self._draining:
            raise Draining("The orchestrator is shutting down", retry_after=1.0)
        since = time.monotonic()
        self._resume(await self._store.decide(tenant, run_id, decided, self._settings.timeout), since)
        return await self._store.get(tenant, run_id)

    async def drain(self, grace: float) -> None:
        """Take no new runs, let those under way finish within the grace, and let the others go for another replica."""
        self._draining = True
        await stop_task(self._taking)
        tasks = [active.task for active in self._active.values() if active.task is not None]
        if tasks and grace > 0:
            await asyncio.wait(tasks, timeout=grace)
        left = list(self._active.values())
        for active in left:
            self._let_go(active)
        tasks = [active.task for active in left if active.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self._store.release(tuple(active.lease for active in left))
        # Who watches a run of another replica, or one that waits for a person, is sent there.
        self._signals.ring_all()

    async def aclose(self) -> None:
        """Stop. Runs under way are let go."""
        with contextlib.suppress(ErrataError, *STORAGE_ERRORS):
            await self.drain(0)
        await self._keeper.aclose()
        for task in list(self._others):
            await stop_task(task)

    async def _start(self, workflow: Workflow, request: Any, options: RunOptions) -> tuple[str, bool]:
        run_id, since = str(uuid_utils.uuid7()), time.monotonic()
        seconds = options.seconds
        limit = self._settings.timeout
        if seconds is not None:
            limit = min(limit, max(0.0, seconds - _DEADLINE_MARGIN_SECONDS))
        started = workflow.started(request, options)
        created = await self._store.create(run_id, workflow.dump(request), started, options, limit)
        if created.event is None:
            # The run is there already, and has its own place.
            under_way()
            return created.run_id, False
        lease = Lease(run_id, self._settings.replica, 1)
        active = self._enter(workflow, _owner(options.principal, options.tenant), lease, since, (created.event,))
        trace = RunTrace(lease, self._recording(active), (created.event,), budget=options.budget)
        self._drive_on(active, self._drive(active, request, trace, limit - (time.monotonic() - since)))
        return run_id, True

    def _resume(self, claimed: ClaimedRun, since: float) -> None:
        workflow = self._workflows.get(claimed.workflow)
        if workflow is None:
            # A newer build has started it; such a replica will take it up.
            _log.warning("unknown_workflow", workflow=claimed.workflow, run_id=claimed.lease.run_id)
            self._spawn(self._store.release((claimed.lease,)))
            return
        owner = _owner(claimed.principal, claimed.tenant)
        active = self._enter(workflow, owner, claimed.lease, since, claimed.events)
        self._drive_on(active, self._go_on(claimed, active))

    async def _go_on(self, claimed: ClaimedRun, active: Active) -> None:
        trace = RunTrace(
            claimed.lease,
            self._recording(active),
            claimed.events,
            claimed.model_calls,
            budget=claimed.budget,
            attempt=claimed.takeovers,
        )
        request = active.workflow.load(claimed.request)
        if claimed.resumed:
            self._metrics.lease_takeovers.inc()
            _log.warning("run_taken_up", run_id=claimed.lease.run_id, takeovers=claimed.takeovers)
            try:
                await trace.record(RunResumed(claimed.takeovers, self._settings.replica), takeovers=claimed.takeovers)
            except (LeaseLost, ServiceUnavailable):
                return
        if claimed.cancelled:
            active.end = active.end or RunCancelled("The run was cancelled")
        if claimed.takeovers > self._settings.max_takeovers:
            active.end = ErrataError("The run was given up: it has changed hands too often")
        await self._drive(active, request, trace, claimed.seconds, active.end)

    async def _drive(
        self, active: Active, request: Any, trace: RunTrace, limit: float, already: ErrataError | None = None
    ) -> None:
        """Work on a run until it ends, waits, or is no longer ours."""
        run_id = active.lease.run_id
        # The task is the run's own. The deadline of the call that it came from is in the limit, if it is to hold at all.
        workflow = active.workflow.name
        with span(f"run {workflow}", {"errata.run_id": run_id, "errata.workflow": workflow}) as current:
            trace_id = current.trace_id or current_call().trace_id
            enter_call(run_id, trace_id, max(0.0, limit), principal=active.principal)
            try:
                ended = await result_of(active, request, trace, limit, already)
                # The end is stored even when somebody cancels again right now.
                await asyncio.shield(self._spawn(self._store_end(active, trace, ended)))
            except (LeaseLost, asyncio.CancelledError):
                _log.warning("run_let_go", run_id=run_id)
            except (ServiceUnavailable, *STORAGE_ERRORS) as error:
                # Whoever reaches the database next goes on from the last checkpoint.
                _log.error("run_unstorable", run_id=run_id, error=type(error).__name__, detail=str(error)[:500])

    async def _store_end(self, active: Active, trace: RunTrace, ended: RunFinished | ApprovalRequested) -> None:
        active.ending = True
        if isinstance(ended, ApprovalRequested):
            released: dict[str, Any] = {"lease_owner": None, "lease_expires": 0.0}
            await trace.record(ended, state=RunState.WAITING.value, approval=ended.approval, **released)
            active.ended = True
            return
        result = await trace.finish(ended)
        active.ended = True
        rounds = (result.retrievals, result.refinements, result.revisions)
        self._metrics.record_run(RunEnd(active.workflow.name, result.outcome.value, result.elapsed_seconds, *rounds))
        current_span().note({"errata.outcome": result.outcome.value})
        _log.info("run_finished", outcome=result.outcome.value, seconds=round(result.elapsed_seconds, 3))

    def _enter(
        self, workflow: Workflow, principal: Principal, lease: Lease, since: float, stored: tuple[TraceEvent, ...]
    ) -> Active:
        earlier = self._active.get(lease.run_id)
        if earlier is not None and not earlier.ending:
            # Its renewals came too late, and nobody else was there: the run is ours again, under a new lease.
            self._let_go(earlier)
        active = self._active[lease.run_id] = Active(Feed(stored), workflow, lease, principal)
        under_way()
        self._keeper.add(lease, since)
        self._metrics.runs_in_flight.labels(workflow.name).inc()
        return active

    def _drive_on(self, active: Active, work: Any) -> None:
        run_id = active.lease.run_id
        active.task = asyncio.create_task(work, name=f"run-{run_id}")
        active.task.add_done_callback(lambda task: self._leave(active, task))

    def _leave(self, active: Active, task: asyncio.Task[None]) -> None:
        if self._active.get(active.lease.run_id) is active:
            # Not that of somebody's quick decision on a run that has just begun to wait.
            del self._active[active.lease.run_id]
        if active.feed.ended and self._callers.get(active.lease.run_id, _Callers()).count == 0:
            self._callers.pop(active.lease.run_id, None)
        self._keeper.drop(active.lease)
        self._metrics.runs_in_flight.labels(active.workflow.name).dec()
        active.feed.close()
        self._signals.ring(active.lease.run_id)
        if active.end is not None and not active.ended and not active.released:
            # It was to be cancelled before it had begun to work, or could not be stored: whoever takes it up must know.
            self._spawn(self._store.request_cancel(active.lease.run_id))
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("run_task_broke", run_id=active.lease.run_id, error=repr(error)[:500])

    def _feed_of(self, tenant: str, run_id: str) -> Feed | None:
        active = self._active.get(run_id)
        return None if active is None or active.principal.tenant != tenant else active.feed

    def principals(self) -> list[Principal]:
        """On whose behalf this process works now, one for each run."""
        return [active.principal for active in self._active.values()]

    def _recording(self, active: Active) -> Recording:
        def publish(event: TraceEvent) -> None:
            active.feed.publish(event)

        def spent(tokens: int) -> None:
            self._settings.spent(active.principal, tokens)

        return Recording(self._store, self._keeper, publish, self._settings.outage, spent)

    async def _take_over(self) -> None:
        pause = max(0.05, self._settings.lease / 10)
        while True:
            self._free.clear()
            try:
                since = time.monotonic()
                for claimed in await self._store.claim_expired(_MOST_TAKEN_AT_ONCE, tuple(self._workflows)):
                    self._resume(claimed, since)
            except (ServiceUnavailable, *STORAGE_ERRORS) as error:
                _log.warning("takeover_failed", error=type(error).__name__, detail=str(error)[:300])
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._free.wait()

    def _heard(self, payload: str) -> None:
        if not payload:
            self._free.set()
        elif payload.startswith(CANCEL_MARK):
            self._interrupt(payload.removeprefix(CANCEL_MARK))

    def _interrupt(self, run_id: str) -> None:
        active = self._active.get(run_id)
        if active is not None and active.end is None and not active.ended and active.task is not None:
            active.end = RunCancelled("The run was cancelled")
            active.task.cancel()

    def _lose(self, lease: Lease) -> None:
        active = self._active.get(lease.run_id)
        # A run whose end is being stored has given its lease up itself; if it was lost after all, that write finds out.
        if active is not None and active.lease == lease and not active.ending:
            self._let_go(active)

    def _let_go(self, active: Active) -> None:
        active.released = True
        if active.task is not None:
            active.task.cancel()

    async def _until_ended(self, tenant: str, run_id: str) -> None:
        patience = 2 * self._settings.lease
        try:
            async with asyncio.timeout(patience), contextlib.aclosing(self.watch(tenant, run_id)) as trace:
                async for _ in trace:
                    pass
        except TimeoutError:
            message = f"The replica that works on the run did not react within {patience:.0f} s"
            raise ServiceUnavailable(message, metadata={"service": "orchestrator"}) from None

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._others.add(task)
        task.add_done_callback(self._others.discard)
        return task


def _owner(name: str, tenant: str) -> Principal:
    # On whose behalf the other services are called. A run never needs more than to ask.
    return Principal(name, tenant, frozenset({Role.ASK}))
