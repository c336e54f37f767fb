"""What a call knows about itself: which run it belongs to, and how much time is left. It travels with the task."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final

from errata_kit.access.principals import ANYBODY, Principal


@dataclass(frozen=True, slots=True)
class CallContext:
    """run_id and trace_id are empty when unknown; deadline is on the monotonic clock, None without one.

    budget is what the model calls of this call may consume in all, None without a bound. principal: on whose behalf.
    """

    run_id: str = ""
    trace_id: str = ""
    deadline: float | None = None
    budget: "CallBudget | None" = None
    principal: Principal = ANYBODY

    def remaining(self) -> float | None:
        """Seconds left, never negative; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


class CallBudget:
    """What model calls may consume: micro-dollars, and tokens of input and output together; None means no bound.

    Calls that go on at the same time share it: each reserves what it expects before it starts, and settles afterwards.
    """

    def __init__(self, cost_micros: int | None, tokens: int | None) -> None:
        self.cost_micros = cost_micros
        self.tokens = tokens

    def reserve(self, cost_micros: int | None, tokens: int) -> str:
        """Take so much out; the name of the limit that does not allow it, and then nothing is taken, or an empty string.

        cost_micros: None when the price is unknown, which a bound on cost never allows.
        """
        if self.tokens is not None and tokens > self.tokens:
            return "max_tokens"
        if self.cost_micros is not None and (cost_micros is None or cost_micros > self.cost_micros):
            return "max_cost_micros"
        self.settle(-(cost_micros or 0), -tokens)
        return ""

    def settle(self, cost_micros: int, tokens: int) -> None:
        """Put back what a call has not consumed; negative when it has consumed more."""
        if self.tokens is not None:
            self.tokens += tokens
        if self.cost_micros is not None:
            self.cost_micros += cost_micros


_NOWHERE: Final = CallContext()
_current: ContextVar[CallContext] = ContextVar("errata_call", default=_NOWHERE)


def current_call() -> CallContext:
    """The call that this task works for."""
    return _current.get()


def remaining_seconds() -> float | None:
    """Seconds left until the deadline of this call; None without one."""
    return _current.get().remaining()


def enter_call(
    run_id: str,
    trace_id: str,
    seconds: float | None,
    budget: CallBudget | None = None,
    principal: Principal = ANYBODY,
) -> CallContext:
    """Set the context of this task for the rest of its life, and return it. seconds: until its deadline."""
    deadline = None if seconds is None else time.monotonic() + seconds
    call = CallContext(run_id, trace_id or uuid.uuid4().hex, deadline, budget, principal)
    _current.set(call)
    return call


@contextlib.contextmanager
def spending(cost_micros: int | None, tokens: int | None) -> Iterator[None]:
    """Let the calls inside the block spend at most so much; None means no bound."""
    if cost_micros is None and tokens is None:
        yield
        return
    token = _current.set(replace(_current.get(), budget=CallBudget(cost_micros, tokens)))
    try:
        yield
    finally:
        _current.reset(token)


async def stop_task(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait until it has ended, whatever it ends with."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        # Asked for, so that nobody is told that it was never looked at.
        task.exception()
