"""One model call from its start to its end: attempts, deadline, usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from errata_kit.calls import current_call
from errata_kit.errors import BudgetExhausted, ModelDeadlineExceeded, ModelError, ModelUnavailable, Reason
from errata_kit.llm.openai_faults import classify
from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.usage import TokenCount, UsageRecorder, estimate_tokens, ignore_usage
from errata_kit.tracing import Span, begin_span
from errata_kit.usage import ModelCall

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What is known before a call. Durations are seconds.

    Attributes:
        timeout_seconds: the client's own limit for the whole call.
        caller_seconds: what remains of the caller's deadline; None without one.
        prompt_characters: the length of everything sent, for an estimate of its tokens.
        expected_output_tokens: how long the answer will be, about; what a budget must have left for it.
    """

    model: str
    operation: str
    prompt_version: str
    prompt_characters: int
    timeout_seconds: float
    caller_seconds: float | None = None
    expected_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class CallRules:
    """How a client treats all of its calls."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    prices: PriceList = field(default_factory=PriceList)
    record: UsageRecorder = ignore_usage


class Call:
    """The state of one call. Only `Call.begin` makes one; its end is recorded exactly once, and so is its span.

    Attributes:
        attempts: requests sent so far.
        tokens: what the endpoint reported for the last request, if it did.
        received_characters: length of the text that arrived, for an estimate of its tokens.
        served_model: the model's name in the endpoint's answer.
    """

    def __init__(self, plan: CallPlan, rules: CallRules) -> None:
        self._plan = plan
        self._rules = rules
        self._started = asyncio.get_running_loop().time()
        self._billable = False
        self._closed = False
        self._reserved = (0, 0)
        self._span = Span()
        self.attempts = 0
        self.tokens: TokenCount | None = None
        self.received_characters = 0
        self.served_model = ""

    @classmethod
    @contextmanager
    def begin(cls, plan: CallPlan, rules: CallRules) -> Iterator[Call]:
        """Open a call; whatever ends the block, its usage is recorded, and put on a `ModelError`.

        Raises:
            BudgetExhausted: the call would pass what its caller may spend; nothing was sent.
        """
        call = cls(plan, rules)
        call.reserve()
        call._span = _span_of(plan)
        try:
            yield call
        except ModelError as error:
            error.model_calls = (call.close(error.reason),)
            raise
        except BaseException:
            call.close(Reason.CANCELLED)
            raise

    def reserve(self) -> None:
        """Take what the call will consume, about, out of the caller's budget."""
        budget = current_call().budget
        if budget is None:
            return
        expected = TokenCount(estimate_tokens(self._plan.prompt_characters), 0, self._plan.expected_output_tokens)
        cost = None if budget.cost_micros is None else self._rules.prices.cost_micros(self._plan.model, expected)
        limit = budget.reserve(cost, expected.input + expected.output)
        if limit:
            unknown = {"cause": "price_unknown"} if limit == "max_cost_micros" and cost is None else {}
            raise BudgetExhausted(metadata={"limit": limit, "operation": self._plan.operation, **unknown})
        self._reserved = (cost or 0, expected.input + expected.output)

    def _settle(self, usage: ModelCall) -> None:
        budget = current_call().budget
        if budget is not None:
            cost, tokens = self._reserved
            budget.settle(cost - (usage.cost_micros or 0), tokens - usage.input_tokens - usage.output_tokens)

    @property
    def deadline(self) -> float:
        """When the call must be over, on the loop's clock."""
        limits = (self._plan.timeout_seconds, self._plan.caller_seconds)
        return self._started + max(0.0, min(limit for limit in limits if limit is not None))

    @asynccontextmanager
    async def within_deadline(self) -> AsyncIterator[None]:
        """Bound the block by the deadline.

        Raises:
            ModelDeadlineExceeded: when it was the caller's.
            ModelUnavailable: when it was the client's own limit, so the model took too long.
        """
        scope = asyncio.timeout_at(self.deadline)
        try:
            async with scope:
                yield
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise self._overdue() from error

    async def retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Run `attempt` until it succeeds, fails for good, or no attempt or time is left.

        Raises:
            ModelError: what the last failure means.
        """
        async with self.within_deadline():
            while True:
                try:
                    return await attempt()
                except Exception as error:
                    await self.pause_after(error)

    def sending(self) -> None:
        """Note that a request goes out: from here on it may cost something."""
        self.attempts += 1
        self._billable = True
        self.tokens = None
        self.received_characters = 0

    async def pause_after(self, error: Exception, *, repeatable: bool = True) -> None:
        """Wait as long as is due before the next attempt. Call it within the deadline.

        Raises:
            ModelError: when there must be no next attempt, or the pause would outlast the deadline.
        """
        if isinstance(error, ModelError):
            raise error
        failure = classify(error)
        self._billable = failure.billable
        exhausted = self.attempts >= self._rules.retry.max_attempts
        if not repeatable or not failure.retryable or exhausted:
            raise failure.error from error
        pause = self._rules.retry.pause(self.attempts, failure.error.retry_after)
        if asyncio.get_running_loop().time() + pause >= self.deadline:
            raise failure.error from error
        await asyncio.sleep(pause)

    def close(self, error: Reason | None = None) -> ModelCall:
        """Work out the usage and record it, the first time this is called."""
        tokens = self.tokens or self._estimate()
        usage = ModelCall(
            model=self._plan.model,
            operation=self._plan.operation,
            prompt_version=self._plan.prompt_version,
            input_tokens=tokens.input,
            cached_input_tokens=tokens.cached_input,
            output_tokens=tokens.output,
            cost_micros=self._rules.prices.cost_micros(self._plan.model, tokens),
            estimated=tokens.estimated,
            latency_seconds=asyncio.get_running_loop().time() - self._started,
            attempts=self.attempts,
            error=error,
            served_model=self.served_model,
        )
        if not self._closed:
            self._closed = True
            self._settle(usage)
            self._rules.record(usage)
            self._end_span(usage)
        return usage

    def _end_span(self, usage: ModelCall) -> None:
        if self._span:
            self._span.note(
                {
                    "gen_ai.usage.input_tokens": usage.input_tokens,
                    "gen_ai.usage.cache_read.input_tokens": usage.cached_input_tokens,
                    "gen_ai.usage.output_tokens": usage.output_tokens,
                    "errata.attempts": usage.attempts,
                }
            )
            if usage.served_model:
                self._span.note({"gen_ai.response.model": usage.served_model})
            if usage.cost_micros is not None:
                self._span.note({"errata.cost_micros": usage.cost_micros})
            if usage.error is not None:
                self._span.failed(usage.error.value)
        self._span.end()

    def _overdue(self) -> ModelError:
        own, callers = self._plan.timeout_seconds, self._plan.caller_seconds
        if callers is not None and callers <= own:
            return ModelDeadlineExceeded(detail=f"after {callers:.3f} s")
        detail = f"no answer within {own:.3f} s"
        return ModelUnavailable("The model did not answer in time.", metadata={"cause": "timeout"}, detail=detail)

    def _estimate(self) -> TokenCount:
        if not self._billable:
            return TokenCount()
        sent = estimate_tokens(self._plan.prompt_characters)
        return TokenCount(sent, 0, estimate_tokens(self.received_characters), estimated=True)


def _span_of(plan: CallPlan) -> Span:
    asked = "embeddings" if plan.operation == "embed" else "chat"
    return begin_span(
        f"{asked} {plan.model}",
        {
            "gen_ai.operation.name": asked,
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": plan.model,
            "errata.operation": plan.operation,
            "errata.prompt_version": plan.prompt_version,
        },
    )
