"""The trace of a run: what is recorded once is not done again, and what was paid is on the account."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from errata_kit.calls import current_call, enter_call
from errata_kit.errors import BudgetExhausted, Draining, ErrataError, ModelRefused, Reason, ServiceUnavailable
from errata_kit.grades import Claim, Verdict
from errata_kit.passages import Draft, Span
from errata_kit.usage import ModelCall
from services.orchestrator.runs import trace as traces
from services.orchestrator.runs.events import (
    ClaimChecked,
    DraftWritten,
    Outcome,
    PassagesRetrieved,
    RunFinished,
    RunStarted,
    TraceEvent,
)
from services.orchestrator.runs.run import Budget, Lease, LeaseLost
from services.orchestrator.runs.trace import Recording, RunTrace

LEASE = Lease("run", "here", 1)
CALL = ModelCall("m", "write_draft", input_tokens=60, output_tokens=40, cost_micros=30)
STARTED = TraceEvent("run", 1, datetime.datetime.now(datetime.UTC), RunStarted("compose", "t", "", None, False))
WRITTEN = DraftWritten(Draft("text"), False, ())


@dataclass
class Kept:
    """A store, a lease and a watcher in one. hold: lets an append wait until it is set."""

    events: list[TraceEvent] = field(default_factory=list)
    calls: dict[int, ModelCall] = field(default_factory=dict)
    changes: list[dict[str, Any]] = field(default_factory=list)
    shown: list[TraceEvent] = field(default_factory=list)
    lost: bool = False
    hold: asyncio.Event | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(
        self, lease: Lease, events: tuple[TraceEvent, ...], calls: dict[int, ModelCall], changes: dict[str, Any]
    ) -> None:
        # As in the store: who gives up waiting does not take the write back.
        self.events.extend(events)
        self.calls.update(calls)
        self.changes.append(changes)
        self.arrived.set()
        if self.hold is not None:
            await self.hold.wait()

    async def note_calls(self, lease: Lease, sequence: int, calls: dict[int, ModelCall]) -> None:
        self.calls.update(calls)

    async def check(self, lease: Lease) -> None:
        if self.lost:
            raise LeaseLost(lease.run_id)

    def trace(self, *stored: TraceEvent, outage: float = 1.0, **more: Any) -> RunTrace:
        recording = Recording(self, self, self.shown.append, outage)  # type: ignore[arg-type]  # what a trace needs of a store
        return RunTrace(LEASE, recording, stored or (STARTED,), **more)


class Work:
    """Raises the errors in turn, then gives the draft."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.times = 0

    async def __call__(self) -> tuple[DraftWritten, Sequence[ModelCall]]:
        self.times += 1
        if self.errors:
            raise self.errors.pop(0)
        return WRITTEN, (CALL,)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "_FIRST_PAUSE", 0.001)


async def test_a_step_is_made_once_and_recorded_with_its_calls() -> None:
    kept, work = Kept(), Work()
    trace = kept.trace()
    for _ in range(2):
        assert await trace.once(DraftWritten, "", work) is WRITTEN
    assert work.times == 1 and kept.shown == kept.events == list(trace.events[1:])
    assert [(event.sequence, event.payload) for event in kept.events] == [(2, WRITTEN)]
    assert kept.calls == {0: CALL} and trace.model_calls == (CALL,)


async def test_what_an_earlier_replica_recorded_is_not_made_again() -> None:
    kept, work = Kept(), Work()
    trace = kept.trace(STARTED, TraceEvent("run", 2, STARTED.create_time, WRITTEN), calls=(CALL,))
    assert await trace.once(DraftWritten, "", work) == WRITTEN
    assert (work.times, kept.events) == (0, [])
    await trace.record(PassagesRetrieved(1, "q", (), ()), (CALL,))
    # Numbers and positions go on where they were.
    assert kept.events[0].sequence == 3 and kept.calls == {1: CALL}


async def test_steps_of_one_kind_are_told_apart_by_their_keys() -> None:
    kept = Kept()
    trace = kept.trace()
    for number in (1, 2):
        await trace.record(PassagesRetrieved(number, f"q{number}", (), ()))
    second = trace.recorded(PassagesRetrieved, "2")
    assert second is not None and second.query == "q2" and trace.recorded(PassagesRetrieved, "3") is None


@pytest.mark.parametrize("error", [ServiceUnavailable("gone"), Draining("going")])
async def test_an_outage_is_waited_for(error: ErrataError) -> None:
    kept, work = Kept(), Work(error, error)
    assert await kept.trace().once(DraftWritten, "", work) is WRITTEN
    assert work.times == 3


async def test_an_outage_is_waited_for_only_so_long_and_within_the_deadline() -> None:
    for outage, seconds in ((0.0, 10.0), (10.0, 0.0)):
        work = Work(*[ServiceUnavailable("gone")] * 9)
        enter_call("run", "", seconds)
        with pytest.raises(ServiceUnavailable):
            await Kept().trace(outage=outage).once(DraftWritten, "", work)
        assert work.times == 1


async def test_another_failure_is_not_tried_again() -> None:
    work = Work(ModelRefused())
    with pytest.raises(ModelRefused):
        await Kept().trace().once(DraftWritten, "", work)
    assert work.times == 1


async def test_deltas_carry_the_attempt_at_their_text() -> None:
    kept, work = Kept(), Work(ServiceUnavailable("gone"))
    trace = kept.trace(attempt=2)
    trace.say("a", 1)
    await trace.once(DraftWritten, "", work)
    trace.say("b", 1)
    deltas = [event.payload for event in kept.shown if event.sequence == 0]
    assert [(item.text, item.refinement, item.attempt) for item in deltas] == [("a", 1, 2), ("b", 1, 3)]  # type: ignore[union-attr]


async def test_calls_of_failures_are_recorded_at_once_and_only_once() -> None:
    failed = ModelCall("m", "write_draft", error=Reason.MODEL_REFUSED, cost_micros=5)
    error = ServiceUnavailable("gone")
    error.model_calls = (failed,)
    kept = Kept()
    trace = kept.trace()
    await trace.once(DraftWritten, "", Work(error))
    assert kept.calls == {0: failed, 1: CALL}
    result = await trace.finish(RunFinished(Outcome.APPROVED))
    assert result.model_calls == (failed, CALL) and result.elapsed_seconds >= 0


async def test_nobody_is_called_without_the_lease() -> None:
    kept, work = Kept(lost=True), Work()
    with pytest.raises(LeaseLost):
        await kept.trace().once(DraftWritten, "", work)
    assert work.times == 0


@pytest.mark.parametrize(
    ("budget", "limit"), [(Budget(max_tokens=100), "max_tokens"), (Budget(max_cost_micros=30), "max_cost_micros")]
)
async def test_a_budget_that_is_used_up_ends_the_run_before_the_next_call(budget: Budget, limit: str) -> None:
    work = Work()
    with pytest.raises(BudgetExhausted) as caught:
        await Kept().trace(calls=(CALL,), budget=budget).once(DraftWritten, "", work)
    assert caught.value.metadata["limit"] == limit and work.times == 0


async def test_what_is_left_of_the_budget_goes_along_with_the_call() -> None:
    seen: list[tuple[int | None, int | None]] = []

    async def look() -> tuple[DraftWritten, Sequence[ModelCall]]:
        budget = current_call().budget
        assert budget is not None
        seen.append((budget.cost_micros, budget.tokens))
        return WRITTEN, ()

    trace = Kept().trace(calls=(CALL,), budget=Budget(max_cost_micros=100, max_tokens=150))
    await trace.once(DraftWritten, "", look)
    assert seen == [(70, 50)] and current_call().budget is None


async def test_after_a_call_of_unknown_price_a_bound_on_cost_allows_no_other() -> None:
    unpriced = ModelCall("m", "write_draft", input_tokens=1)
    with pytest.raises(BudgetExhausted) as caught:
        await Kept().trace(calls=(unpriced,), budget=Budget(max_cost_micros=100)).once(DraftWritten, "", Work())
    assert caught.value.metadata["cause"] == "price_unknown"


async def test_an_event_that_nobody_waits_for_any_more_is_shown_and_known_all_the_same() -> None:
    kept = Kept(hold=asyncio.Event())
    trace = kept.trace()
    recording = asyncio.ensure_future(trace.record(WRITTEN, (CALL,)))
    await kept.arrived.wait()
    recording.cancel()
    assert kept.hold is not None
    kept.hold.set()
    with pytest.raises(asyncio.CancelledError):
        await recording
    kept.hold = None
    await trace.finish(RunFinished(Outcome.CANCELLED))
    # The store has both, so that a watcher must have seen both, and in order.
    assert [event.sequence for event in kept.events] == [event.sequence for event in kept.shown] == [2, 3]
    assert trace.recorded(DraftWritten) == WRITTEN and len(trace.events) == 3


async def test_a_database_that_is_away_is_no_outage_to_sit_out() -> None:
    # Each attempt would pay for the work again, and leave a hole where the event was that could not be stored.
    work = Work(ServiceUnavailable("down", metadata={"service": "database"}))
    with pytest.raises(ServiceUnavailable):
        await Kept().trace(outage=5.0).once(DraftWritten, "", work)
    assert work.times == 1


@pytest.mark.parametrize(("told", "takeovers", "attempt"), [((), 0, 0), ((), 1, 1), ((0,), 1, 1), ((0, 3), 1, 4), ((1,), 3, 3)])
def test_a_new_replica_counts_its_attempts_above_those_that_were_told(
    told: tuple[int, ...], takeovers: int, attempt: int
) -> None:
    claim = Claim("c1", "It is so.", Span(0, 9), Verdict.SUPPORTED, 1.0)
    checked = [ClaimChecked(0, claim, True, attempt=number) for number in told]
    stored = [TraceEvent("run", place, STARTED.create_time, payload) for place, payload in enumerate(checked, start=2)]
    assert Kept().trace(STARTED, *stored, attempt=takeovers).attempt == attempt
