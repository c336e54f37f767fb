"""Places for runs, and tokens of the day: who is let in, and when what was taken comes back."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
from collections import Counter
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, cast

import pytest
from sqlalchemy.exc import OperationalError

from errata_kit.access.principals import Principal
from errata_kit.errors import RateLimited, ServiceUnavailable
from services.orchestrator.runs import admission
from services.orchestrator.runs.admission import DailyTokens, RunAdmission, RunLimits, under_way
from services.orchestrator.runs.store.store import RunStore

ANN, BOB = Principal("ann", "north"), Principal("bob", "north")
ASK = "/x/Ask"
NOON = datetime.datetime(2026, 3, 31, 12, tzinfo=datetime.UTC)


class Counts:
    """Stands for the store: the sums that it tells, and from which time on it was asked to count."""

    def __init__(self, **spent: int) -> None:
        self.spent: Counter[tuple[str, str]] = Counter({("north", name): tokens for name, tokens in spent.items()})
        self.asked: list[datetime.datetime] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    async def tokens_since(self, moment: datetime.datetime) -> dict[tuple[str, str], int]:
        self.asked.append(moment)
        if self.error is not None:
            raise self.error
        counted = dict(self.spent)
        self.meanwhile()
        return counted


class Clock:
    def __init__(self, now: datetime.datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime.datetime:
        return self.now


def tokens(limits: RunLimits, counts: Counts | None = None, clock: Clock | None = None) -> DailyTokens:
    return DailyTokens(cast("RunStore", counts or Counts()), limits, clock or Clock())


class Admission:
    """Admission over runs that a test starts and ends by hand."""

    def __init__(self, **limits: int) -> None:
        self.runs: list[Principal] = []
        chosen = RunLimits(**limits)
        self._admission = RunAdmission(chosen, tokens(chosen), frozenset({ASK}), lambda: self.runs)

    def entering(self, principal: Principal, method: str = ASK) -> contextlib.AbstractContextManager[None]:
        return self._admission.entering(method, principal)

    def start(self, principal: Principal) -> None:
        """A call whose run is under way when it ends."""
        with self.entering(principal):
            self.runs.append(principal)
            under_way()

    def refused(self, principal: Principal) -> dict[str, str]:
        with pytest.raises(RateLimited) as error, self.entering(principal):
            pass
        assert error.value.retry_after is not None and error.value.retry_after > 0
        return error.value.metadata


ALL = {"limit": "concurrent_runs", "scope": "all"}
OWN = {"limit": "concurrent_runs", "scope": "principal"}


# --- runs at once -----------------------------------------------------------------------------------------------------


def test_without_limits_everybody_is_let_in() -> None:
    gate = Admission()
    for _ in range(1000):
        gate.start(ANN)


def test_a_place_is_taken_by_the_call_and_then_by_its_run() -> None:
    gate = Admission(runs=1)
    with gate.entering(ANN):
        assert gate.refused(BOB) == ALL
        gate.runs.append(ANN)
        under_way()
        assert gate.refused(BOB) == ALL
    assert gate.refused(BOB) == ALL
    gate.runs.clear()
    gate.start(BOB)


def test_a_run_under_way_does_not_count_twice_while_its_call_goes_on() -> None:
    gate = Admission(runs=2)
    with gate.entering(ANN):
        gate.runs.append(ANN)
        under_way()
        under_way()
        with gate.entering(BOB):
            assert gate.refused(ANN) == ALL
        # The run has ended, and its caller still reads.
        gate.runs.clear()
        gate.start(BOB)
        gate.start(BOB)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_a_call_that_ends_before_its_run_gives_the_place_back(error: type[BaseException]) -> None:
    gate = Admission(runs=1)
    for _ in range(3):
        with pytest.raises(error), gate.entering(ANN):
            raise error
    gate.start(BOB)


def test_each_principal_has_the_own_limit() -> None:
    gate = Admission(runs=3, principal_runs=2)
    gate.start(ANN)
    gate.start(ANN)
    assert gate.refused(ANN) == OWN
    assert gate.refused(Principal("ann", "north", delegated=True)) == OWN
    gate.start(Principal("ann", "south"))
    assert gate.refused(BOB) == ALL
    assert gate.refused(ANN) == OWN


def test_what_starts_no_run_needs_no_place() -> None:
    gate = Admission(runs=1, principal_runs=1)
    gate.start(ANN)
    for method in ("/x/WatchRun", "/x/CancelRun", ""):
        with gate.entering(ANN, method):
            # Nothing of another call's place is given back here either.
            under_way()
    assert gate.refused(BOB) == ALL


def test_a_refused_call_keeps_nothing() -> None:
    gate = Admission(runs=1)
    gate.start(ANN)
    for _ in range(5):
        gate.refused(BOB)
    gate.runs.clear()
    gate.start(BOB)


async def test_the_task_that_starts_the_run_gives_the_calls_place_back() -> None:
    gate = Admission(runs=1)

    async def start() -> None:
        await asyncio.sleep(0)
        gate.runs.append(ANN)
        under_way()

    with gate.entering(ANN):
        await asyncio.create_task(start())
        gate.runs.clear()
        with gate.entering(BOB):
            pass


def test_a_stream_that_ends_in_another_context_gives_the_place_back_all_the_same() -> None:
    gate = Admission(runs=1)
    block = gate.entering(ANN)
    copy_context().run(block.__enter__)
    assert gate.refused(BOB) == ALL
    copy_context().run(block.__exit__, None, None, None)
    gate.start(BOB)


# --- tokens of the day ------------------------------------------------------------------------------------------------


def used_up(daily: DailyTokens, principal: Principal = ANN) -> str:
    """The scope of the limit that is used up; empty when there is room."""
    try:
        daily.check((principal.tenant, principal.name))
    except RateLimited as error:
        return error.metadata["scope"] if error.metadata["limit"] == "tokens_per_day" else error.metadata["limit"]
    return ""


def test_tokens_count_at_once_and_for_their_principal() -> None:
    daily = tokens(RunLimits(tokens=100, principal_tokens=60))
    daily.spent(ANN, 59)
    assert used_up(daily) == ""
    daily.spent(ANN, 1)
    assert (used_up(daily), used_up(daily, BOB)) == ("principal", "")
    assert used_up(daily, Principal("ann", "south")) == ""
    daily.spent(Principal("ann", "south"), 40)
    assert (used_up(daily), used_up(daily, BOB)) == ("principal", "all")


def test_without_a_limit_nothing_is_counted() -> None:
    daily = tokens(RunLimits())
    daily.spent(ANN, 10**9)
    assert used_up(daily) == "" and not daily._since


def test_at_midnight_there_are_new_ones() -> None:
    clock = Clock(datetime.datetime(2026, 3, 31, 23, 59, 30, tzinfo=datetime.UTC))
    daily = tokens(RunLimits(tokens=10), clock=clock)
    daily.spent(ANN, 10)
    with pytest.raises(RateLimited) as refused:
        daily.check(("north", "ann"))
    assert refused.value.retry_after == pytest.approx(30.0)
    clock.now += datetime.timedelta(seconds=30)
    assert used_up(daily) == ""
    daily.spent(ANN, 10)
    assert used_up(daily) == "all"
    clock.now += datetime.timedelta(days=1)
    assert used_up(daily) == ""


async def test_what_other_replicas_have_spent_counts_with_the_next_count() -> None:
    counts = Counts(ann=80)
    daily = tokens(RunLimits(tokens=100), counts)
    daily.spent(ANN, 10)
    await daily.recount()
    assert counts.asked == [datetime.datetime(2026, 3, 31, tzinfo=datetime.UTC)]
    # What this process had added is in the sum by now.
    counts.spent["north", "bob"] = 19
    await daily.recount()
    assert used_up(daily) == ""
    daily.spent(BOB, 1)
    assert used_up(daily) == "all"


async def test_what_is_spent_while_the_database_counts_is_not_lost() -> None:
    counts = Counts(ann=50)
    daily = tokens(RunLimits(tokens=100), counts)
    daily.spent(ANN, 50)
    counts.meanwhile = lambda: daily.spent(BOB, 50)
    await daily.recount()
    assert used_up(daily) == "all"


async def test_a_count_across_midnight_is_not_taken_for_the_new_day() -> None:
    clock = Clock(datetime.datetime(2026, 3, 31, 23, 59, 59, tzinfo=datetime.UTC))
    counts = Counts(ann=100)
    daily = tokens(RunLimits(tokens=100), counts, clock)

    def midnight() -> None:
        clock.now += datetime.timedelta(seconds=2)
        assert used_up(daily) == ""

    counts.meanwhile = midnight
    await daily.recount()
    assert used_up(daily) == ""


async def test_the_count_of_a_new_day_replaces_that_of_the_old_one() -> None:
    clock, counts = Clock(), Counts(ann=100)
    daily = tokens(RunLimits(tokens=100), counts, clock)
    await daily.recount()
    assert used_up(daily) == "all"
    clock.now += datetime.timedelta(days=1)
    counts.spent.clear()
    await daily.recount()
    assert used_up(daily) == "" and counts.asked[-1] == datetime.datetime(2026, 4, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    "error", [ServiceUnavailable("gone"), OperationalError("SELECT", {}, Exception("gone"))], ids=["away", "broken"]
)
async def test_a_database_that_is_away_leaves_the_last_count(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(admission, "_RECOUNT_SECONDS", 0.01)
    counts = Counts(ann=100)
    daily = tokens(RunLimits(tokens=100), counts)
    await daily.recount()
    counts.error = error
    counting = asyncio.create_task(daily.keep_counting())
    async with asyncio.timeout(5):
        while len(counts.asked) < 4:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.005)
        assert used_up(daily) == "all"
        counts.error = None
        counts.spent.clear()
        while used_up(daily):  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.005)
    await _ended(counting)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
