"""The trace of a run as its nodes write it. What is recorded once is not done again.

A node's result is stored as an event before the node ends, and the checkpoint comes after it. So a replica that takes a run up
repeats at most steps whose events are there already: it finds those here, and neither pays a model again nor writes an event
twice.
"""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol, TypeGuard, TypeVar

from errata_kit.calls import remaining_seconds, spending
from errata_kit.errors import BudgetExhausted, ErrataError, Reason
from errata_kit.logs import get_logger
from errata_kit.usage import ModelCall
from services.orchestrator.runs import events
from services.orchestrator.runs.events import AnswerDelta, Payload, RunFinished, Step, TraceEvent
from services.orchestrator.runs.run import UNBOUNDED, Budget, Lease, RunState, totals_of
from services.orchestrator.runs.store.store import RunStore

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_OUTAGES: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})

_log = get_logger("errata.runs")
S = TypeVar("S", bound=Step)
T = TypeVar("T")


class Holder(Protocol):
    """Knows whether this replica still has a run."""

    async def check(self, lease: Lease) -> None:
        """Raises LeaseLost when it may have it no longer."""
        ...


@dataclass(frozen=True, slots=True)
class Recording:
    """What a trace writes to. publish hands an event to live watchers. outage_seconds: how long a service may be away.

    spent: told about the tokens of model calls once they are stored.
    """

    store: RunStore
    holder: Holder
    publish: Callable[[TraceEvent], None]
    outage_seconds: float
    spent: Callable[[int], None] = lambda tokens: None


class RunTrace:
    """One run's trace, under one lease."""

    def __init__(
        self,
        lease: Lease,
        recording: Recording,
        stored: Sequence[TraceEvent],
        calls: Sequence[ModelCall] = (),
        budget: Budget = UNBOUNDED,
        attempt: int = 0,
    ) -> None:
        """stored: the events so far, RunStarted at least. attempt: at the text that is written, for deltas."""
        self.lease = lease
        self._recording = recording
        self._budget = budget
        # Verdicts are stored with their attempt: those of the text that broke off must not pass for the newest.
        told = (event.payload.attempt for event in stored if isinstance(event.payload, events.ClaimChecked))
        self._attempt = max([attempt, *(earlier + 1 for earlier in told)]) if attempt else attempt
        self._events = list(stored)
        self._calls = list(calls)
        self._sequence = stored[-1].sequence
        self._storing: set[asyncio.Task[TraceEvent]] = set()
        steps = [event.payload for event in stored if _is_step(event.payload)]
        self._steps: dict[tuple[type, str], Step] = {(type(step), step.key): step for step in steps}

    @property
    def events(self) -> tuple[TraceEvent, ...]:
        """Every stored event, in order."""
        return tuple(self._events)

    @property
    def model_calls(self) -> tuple[ModelCall, ...]:
        """Every model call that was recorded, in order."""
        return tuple(self._calls)

    def recorded(self, kind: type[S], key: str = "") -> S | None:
        """A step that is recorded, or None."""
        found = self._steps.get((kind, key))
        return found if isinstance(found, kind) else None

    async def once(self, kind: type[S], key: str, make: Callable[[], Awaitable[tuple[S, Sequence[ModelCall]]]]) -> S:
        """The step of this kind and key: as it is recorded, or made now and recorded with its model calls."""
        found = self.recorded(kind, key)
        if found is not None:
            return found
        made, calls = await self.insist(make)
        await self.record(made, calls)
        return made

    async def insist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do work that needs another service, and again for as long as that service can't be reached.

        Raises:
            LeaseLost: the run may be somebody else's by now; nothing was called.
            BudgetExhausted: nothing is left of the budget.
            ErrataError: what the work raised, or the outage once it lasts longer than it may.
        """
        began, pause = time.monotonic(), _FIRST_PAUSE
        while True:
            await self._recording.holder.check(self.lease)
            try:
                with spending(*self._left()):
                    return await work()
            except ErrataError as error:
                if error.model_calls:
                    await self.note_calls(error)
                left = remaining_seconds()
                waited = time.monotonic() - began
                over = waited + pause > self._recording.outage_seconds or (left is not None and left <= pause)
                # Without the database nothing of what the work has found is kept: it would be paid for again and again.
                if error.why not in _OUTAGES or over or error.metadata.get("service") == "database":
                    raise
                _log.warning("service_away", service=error.metadata.get("service", ""), waited=round(waited, 1))
                self._attempt += 1
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)

    def record(self, payload: Payload, calls: Sequence[ModelCall] = (), **changes: Any) -> "asyncio.Future[TraceEvent]":
        """Store the next event with the model calls behind it, then show it. changes: columns of the run's row.

        The event has its place from now on; await what comes back to know that it is stored. Several at once are stored
        together. Raises, when awaited:

            LeaseLost: another replica has taken the run.
        """
        self._sequence += 1
        event = TraceEvent(self.lease.run_id, self._sequence, datetime.datetime.now(datetime.UTC), payload)
        first = len(self._calls)
        self._calls.extend(calls)
        numbered = dict(enumerate(calls, start=first))
        storing = asyncio.create_task(self._stored(event, numbered, {**_changes(event), **changes}))
        self._storing.add(storing)
        storing.add_done_callback(self._settled)
        # Whoever stops waiting because the run is cancelled leaves no hole in the trace.
        return asyncio.shield(storing)

    async def _stored(self, event: TraceEvent, calls: dict[int, ModelCall], changes: dict[str, Any]) -> TraceEvent:
        await self._recording.store.append(self.lease, (event,), calls, changes)
        if calls:
            self._recording.spent(totals_of(tuple(calls.values())).tokens)
        self._events.append(event)
        if _is_step(event.payload):
            self._steps[type(event.payload), event.payload.key] = event.payload
        self._recording.publish(event)
        return event

    async def settled(self) -> None:
        """Return once everything that was to be recorded is stored, or could not be."""
        if self._storing:
            await asyncio.wait(set(self._storing))

    @property
    def attempt(self) -> int:
        """Which attempt at the text that is written now, from 0."""
        return self._attempt

    def say(self, text: str, number: int, segment: int = 0) -> None:
        """Show a piece of text as it is written. number: the refinement or revision. segment: 0 without segments."""
        now = datetime.datetime.now(datetime.UTC)
        self._recording.publish(TraceEvent(self.lease.run_id, 0, now, AnswerDelta(text, number, self._attempt, segment)))

    async def finish(self, result: RunFinished) -> RunFinished:
        """Store the terminal event. Failed model calls of the last step are recorded already."""
        started = self._events[0].create_time
        elapsed = (datetime.datetime.now(datetime.UTC) - started).total_seconds()
        result = replace(result, elapsed_seconds=max(0.0, elapsed), model_calls=self.model_calls)
        await self.record(result)
        return result

    def _settled(self, storing: "asyncio.Task[TraceEvent]") -> None:
        self._storing.discard(storing)
        if not storing.cancelled():
            # Looked at, so that nobody is told otherwise: whoever waits has it, too.
            storing.exception()

    async def note_calls(self, error: ErrataError) -> None:
        """Store the model calls that a failure has cost, and take them from it."""
        # They cost money, so they are stored at once, beside the last event: what comes next may be a crash.
        first = len(self._calls)
        calls, error.model_calls = error.model_calls, ()
        self._calls.extend(calls)
        await self._recording.store.note_calls(self.lease, self._sequence, dict(enumerate(calls, start=first)))
        self._recording.spent(totals_of(calls).tokens)

    def _left(self) -> tuple[int | None, int | None]:
        spent = totals_of(self._calls)
        tokens = cost = None
        if self._budget.max_tokens is not None:
            tokens = self._budget.max_tokens - spent.tokens
            if tokens <= 0:
                raise BudgetExhausted(metadata={"limit": "max_tokens"})
        if self._budget.max_cost_micros is not None:
            if spent.cost_micros is None:
                raise BudgetExhausted(
                    "The price of a model that was called is unknown, so that the budget can't be kept",
                    metadata={"limit": "max_cost_micros", "cause": "price_unknown"},
                )
            cost = self._budget.max_cost_micros - spent.cost_micros
            if cost <= 0:
                raise BudgetExhausted(metadata={"limit": "max_cost_micros"})
        return cost, tokens


def _is_step(payload: Payload) -> TypeGuard[Step]:
    return isinstance(payload, Step)


def _changes(event: TraceEvent) -> dict[str, Any]:
    match event.payload:
        case events.AnswerGraded() as graded:
            return {"score": graded.grade.faithfulness_score}
        case events.AnswerRefined() as refined:
            return {"corrections": refined.refinement}
        case events.DraftReviewed() as reviewed:
            return {"score": reviewed.review.overall_score}
        case events.DraftRevised() as revised:
            return {"corrections": revised.revision}
        case RunFinished() as result:
            ended = {"state": RunState.FINISHED.value, "outcome": result.outcome.value, "approved": result.approved}
            score = {} if result.review is None else {"score": result.review.overall_score}
            return {
                **ended,
                **score,
                "finish_time": event.create_time,
                "lease_owner": None,
                "lease_expires": 0.0,
                "approval": 0,
            }
        case _:
            return {}
