"""A run's events, each once and in order, also when the connection is lost or the orchestrator starts anew.

A run that this client starts goes on when the connection drops (ON_DISCONNECT_CONTINUE), because a server can't tell a dropped
network from a caller that has lost interest. So it is the client that cancels it, with CancelRun, when its reader leaves early
or its deadline passes.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_client.calls import Caller, Deadline, is_busy, is_lost
from errata_kit.errors import DeadlineExceeded, ErrataError, RunCancelled

LEAVE_SECONDS: Final = 2.0
"""Longest time that cancelling a run takes whoever leaves it, beyond the deadline, when the orchestrator does not answer."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """How a run's stream is opened: Ask or Compose with its request, or WatchRun.

    cancels: leaving early cancels the run. reattaches: a lost connection is taken up again.
    """

    method: Any
    request: Any
    cancels: bool = False
    reattaches: bool = True


class Following:
    """Reads one run. It knows nothing of whoever iterates, so that a reader that is dropped is collected, and leaves."""

    def __init__(self, caller: Caller, stub: Any, beginning: Beginning, seconds: float) -> None:
        self.run_id = ""
        self.sequence = 0
        self.reattached = 0
        self.finished: trace_pb2.RunFinished | None = None
        self._caller = caller
        self._stub = stub
        self._beginning = beginning
        self._deadline = Deadline(seconds)
        self._since = time.monotonic()
        self._heard = False
        self._failures = 0
        self._waits = False
        self._call: Any = None
        self._first: asyncio.Task[Any] | None = None
        self._leaving: asyncio.Task[None] | None = None
        if isinstance(beginning.request, pb2.WatchRunRequest):
            self.run_id, self.sequence = beginning.request.run_id, beginning.request.after_sequence

    async def events(self, opened: Callable[[Self], None], closed: Callable[[Self], None]) -> AsyncGenerator[Any, None]:
        """New events until the run ends. opened and closed hear of a stream that has to be left before the channel closes."""
        opened(self)
        try:
            while True:
                try:
                    replies = await self._opened()
                    while (reply := await self._next(replies)) is not None:
                        if self._take(reply.event):
                            yield reply.event
                        if self.finished is not None:
                            return
                    self._check_end()
                    return
                except grpc.aio.AioRpcError as error:
                    await self._recover(error)
                except asyncio.CancelledError:
                    self._check_closed()
                    raise
        finally:
            try:
                await self.leave()
            finally:
                closed(self)

    async def leave(self) -> None:
        """Give the call up and, when the run is this client's and still under way, cancel it. It never raises ErrataError."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave())
        # Whoever is cancelled while leaving still leaves.
        await asyncio.shield(self._leaving)

    async def _opened(self) -> Any:
        beginning = self._beginning
        if self._leaving is not None:
            raise RunCancelled("The client was closed")
        if self.run_id:
            # Whoever wanted verified text only still does when the connection was lost.
            verified_only = getattr(beginning.request, "verified_only", False)
            request = pb2.WatchRunRequest(run_id=self.run_id, after_sequence=self.sequence, verified_only=verified_only)
            self._call = await self._caller.opened(self._stub.WatchRun, request, self._deadline)
        else:
            self._call = await self._caller.opened(beginning.method, beginning.request, self._deadline)
        return self._call.__aiter__()

    async def _next(self, replies: Any) -> Any:
        if self.run_id or not self._beginning.cancels:
            return await anext(replies, None)
        # Until the run has a name nobody can cancel it: the wait for its name outlives a reader that is cancelled.
        self._first = asyncio.create_task(_anext(replies))
        return await asyncio.shield(self._first)

    def _take(self, event: trace_pb2.TraceEvent) -> bool:
        """Whether the event is new."""
        self.run_id, self._heard, self._failures = event.run_id, True, 0
        if event.sequence:
            if event.sequence <= self.sequence:
                return False
            self.sequence = event.sequence
            self._waits = event.WhichOneof("payload") == "approval_requested"
            if event.HasField("run_finished"):
                self.finished = event.run_finished
        return True

    def _check_end(self) -> None:
        # WatchRun behind the last event of a run ends at once, and well.
        if not isinstance(self._beginning.request, pb2.WatchRunRequest):
            raise ErrataError(f"The events of run {self.run_id} ended before the run did")

    async def _recover(self, error: grpc.aio.AioRpcError) -> None:
        """Wait until it makes sense to open the stream again. Raises what can't be helped."""
        failed = self._caller.error_of(error)
        if self.run_id:
            failed.metadata.setdefault("run_id", self.run_id)
        if is_busy(failed):
            await self._caller.wait_if_busy(failed, self._deadline)
            return
        patient = self._heard or time.monotonic() - self._since < self._caller.retries.start_seconds
        if not is_lost(failed) or not self._beginning.reattaches or not patient:
            raise failed from error
        self._call.cancel()
        if self._failures == 0 and self._heard:
            self.reattached += 1
        await asyncio.sleep(min(self._caller.retries.pause(self._failures), self._deadline.left()))
        self._failures += 1
        if self._deadline.left() == 0:
            message = f"The deadline passed while the {self._caller.service} could not be reached"
            raise DeadlineExceeded(message, metadata=failed.metadata) from error

    def _check_closed(self) -> None:
        task = asyncio.current_task()
        if self._leaving is not None and (task is None or not task.cancelling()):
            # It is not the reader that was cancelled: grpc says so of a call that was given up here.
            raise RunCancelled("The client was closed") from None

    async def _leave(self) -> None:
        if self._first is not None and not self.run_id:
            await self._learn_name(self._first)
        if self._call is not None:
            self._call.cancel()
        # A run that waits for a person waits for the person, not for whoever asked for it.
        if self._beginning.cancels and self.run_id and self.finished is None and not self._waits:
            await self._cancel_run()

    async def _learn_name(self, first: asyncio.Task[Any]) -> None:
        await asyncio.wait({first}, timeout=LEAVE_SECONDS)
        if not first.done():
            first.cancel()
            await asyncio.wait({first})
        if not first.cancelled() and first.exception() is None and first.result() is not None:
            self._take(first.result().event)

    async def _cancel_run(self) -> None:
        deadline = Deadline(LEAVE_SECONDS)
        request = pb2.CancelRunRequest(run_id=self.run_id)
        with contextlib.suppress(ErrataError):
            for attempt in range(100):
                try:
                    await self._caller.unary(self._stub.CancelRun, request, deadline.left())
                    return
                except ErrataError as error:
                    if not is_lost(error) or deadline.left() == 0:
                        raise
                    await asyncio.sleep(min(deadline.left(), self._caller.retries.pause(attempt)))


class RunEvents:
    """The trace events of a run as an async iterator: stored events each once, by their sequence, until RunFinished.

    An AnswerDelta (sequence 0) is sent live only. Append its text as long as refinement and attempt stay the same and
    `reattached` does not rise; else begin anew, for pieces may be missing. The whole text comes with AnswerDrafted,
    AnswerRefined, DraftWritten or DraftRevised, and nobody has checked it before RunFinished.

    Leaving the loop early cancels a run that was started here. It happens at once when the iterator is closed (`aclose`, or an
    `async with` block around the loop), and soon after a mere `break`.

    Iteration ends after RunFinished whatever the outcome, as a watched run does. It raises ErrataError when the run can't be
    started, watched or reached; `why` is the reason.
    """

    def __init__(self, following: Following, events: AsyncGenerator[trace_pb2.TraceEvent, None]) -> None:
        self._following = following
        self._events = events

    @property
    def run_id(self) -> str:
        """The run; empty before its first event."""
        return self._following.run_id

    @property
    def sequence(self) -> int:
        """The last stored event that was seen: what `watch_run(after=…)` goes on behind."""
        return self._following.sequence

    @property
    def reattached(self) -> int:
        """How often a lost connection was taken up again."""
        return self._following.reattached

    @property
    def finished(self) -> trace_pb2.RunFinished | None:
        """The last event's content once it is there."""
        return self._following.finished

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> trace_pb2.TraceEvent:
        return await anext(self._events)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Leave the run."""
        await self._events.aclose()


async def _anext(replies: Any) -> Any:
    return await anext(replies, None)
