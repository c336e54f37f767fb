"""A run as it is listed, started and worked on. Values only."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.usage import ModelCall
from services.orchestrator.runs.events import Outcome, TraceEvent


class RunState(StrEnum):
    """Whether a run is under way."""

    RUNNING = "RUNNING"
    WAITING = "WAITING"
    FINISHED = "FINISHED"


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may consume: millionths of a dollar, and tokens of input and output together. None means no bound."""

    max_cost_micros: int | None = None
    max_tokens: int | None = None


UNBOUNDED: Final = Budget()


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What holds for a run of any workflow.

    principal: who asked, empty when nobody said. tenant: whose run it is. request_id: makes the start idempotent for the
    principal, empty means that it is not. request_hash: equal for equal requests. seconds: until the caller's deadline, None
    without one.
    """

    principal: str = ""
    request_id: str = ""
    request_hash: str = ""
    budget: Budget = UNBOUNDED
    seconds: float | None = None
    tenant: str = DEFAULT_TENANT


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """Model calls summed up. cost_micros is None when the price of one of them is unknown.

    What starts with saved is about calls that a cache made unnecessary, and is in none of the other sums.
    """

    model_calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    cost_micros: int | None = 0
    models: tuple[str, ...] = ()
    saved_calls: int = 0
    saved_tokens: int = 0
    saved_cost_micros: int = 0

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


def totals_of(calls: Sequence[ModelCall]) -> UsageTotals:
    """The sums over some calls."""
    saved = [call for call in calls if call.saved]
    calls = [call for call in calls if not call.saved]
    costs = [call.cost_micros for call in calls]
    return UsageTotals(
        model_calls=len(calls),
        failed_calls=sum(call.error is not None for call in calls),
        input_tokens=sum(call.input_tokens for call in calls),
        cached_input_tokens=sum(call.cached_input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        estimated=any(call.estimated for call in calls),
        cost_micros=None if None in costs else sum(cost for cost in costs if cost is not None),
        models=tuple(sorted({call.model for call in calls})),
        saved_calls=len(saved),
        saved_tokens=sum(call.input_tokens + call.output_tokens for call in saved),
        saved_cost_micros=sum(call.cost_micros or 0 for call in saved),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is listed. outcome and finish_time are None until it has ended; score is None when nothing was graded.

    takeovers: how often it has changed hands. approval: the request that waits for a person, 0 when none does.
    """

    run_id: str
    workflow: str
    question: str
    collection: str
    create_time: datetime.datetime
    principal: str = ""
    state: RunState = RunState.RUNNING
    outcome: Outcome | None = None
    finish_time: datetime.datetime | None = None
    last_sequence: int = 0
    approved: bool = False
    score: float | None = None
    corrections: int = 0
    takeovers: int = 0
    approval: int = 0
    totals: UsageTotals = UsageTotals()

    @property
    def elapsed_seconds(self) -> float | None:
        """From the start to the end; None while it runs."""
        return None if self.finish_time is None else (self.finish_time - self.create_time).total_seconds()


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs of a tenant to list, newest first; None or empty means any. page_size is 1–500; times are half-open."""

    tenant: str
    page_size: int
    page_token: str = ""
    state: RunState | None = None
    outcome: Outcome | None = None
    workflow: str = ""
    principal: str = ""
    created_from: datetime.datetime | None = None
    created_before: datetime.datetime | None = None

    def fingerprint(self) -> list[str]:
        """What a page token is bound to."""
        given = (self.tenant, self.state, self.outcome, self.workflow, self.principal, self.created_from, self.created_before)
        return ["runs", *map(str, given)]


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs; next_page_token is empty on the last."""

    runs: tuple[Run, ...]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One grade, verdict or score. kind: passage, answer, claim, draft or criterion. iteration: retrieval, refinement or
    revision. score is 0–1. threshold is None where nothing had to be reached.
    """

    sequence: int
    kind: str
    subject: str
    iteration: int
    score: float
    passed: bool
    threshold: float | None = None
    verdict: str = ""
    explanation: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a run. fence grows with every change of hands, and every write carries it."""

    run_id: str
    owner: str
    fence: int


@dataclass(frozen=True, slots=True)
class ClaimedRun:
    """A run with everything that is needed to go on with it.

    request: as its workflow wrote it. seconds: until its deadline, may be negative. takeovers: how often it has changed hands,
    this time included. resumed: it has changed hands just now, and was not handed over by a person's decision.
    """

    lease: Lease
    workflow: str
    request: str
    principal: str
    tenant: str
    takeovers: int
    resumed: bool
    budget: Budget
    seconds: float
    cancelled: bool
    events: tuple[TraceEvent, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()


class LeaseLost(Exception):
    """Another replica works on the run, or may do so by now. Nothing that this one finds out counts any more."""
