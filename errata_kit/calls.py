"""What a call knows about itself: which run it belongs to, and how much time is left. It travels with the task."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class CallContext:
    """run_id and trace_id are empty when unknown; deadline is on the monotonic clock, None without one."""

    run_id: str = ""
    trace_id: str = ""
    deadline: float | None = None

    def remaining(self) -> float | None:
        """Seconds left, never negative; None without a deadline."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())


_NOWHERE: Final = CallContext()
_current: ContextVar[CallContext] = ContextVar("errata_call", default=_NOWHERE)


def current_call() -> CallContext:
    """The call that this task works for."""
    return _current.get()


def remaining_seconds() -> float | None:
    """Seconds left until the deadline of this call; None without one."""
    return _current.get().remaining()


def enter_call(run_id: str, trace_id: str, seconds: float | None) -> CallContext:
    """Set the context of this task for the rest of its life, and return it."""
    deadline = None if seconds is None else time.monotonic() + seconds
    call = CallContext(run_id=run_id, trace_id=trace_id or uuid.uuid4().hex, deadline=deadline)
    _current.set(call)
    return call


@contextlib.contextmanager
def within_run(run_id: str, seconds: float | None) -> Iterator[CallContext]:
    """Work on a run inside the block, with at most these seconds, or what is left of the surrounding deadline if less."""
    outer = _current.get()
    deadlines = [d for d in (outer.deadline, None if seconds is None else time.monotonic() + seconds) if d is not None]
    trace_id = outer.trace_id or uuid.uuid4().hex
    call = replace(outer, run_id=run_id, trace_id=trace_id, deadline=min(deadlines, default=None))
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


async def stop_task(task: "asyncio.Task[Any]") -> None:
    """Cancel a task and wait until it has ended, whatever it ends with."""
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        # Asked for, so that nobody is told that it was never looked at.
        task.exception()
