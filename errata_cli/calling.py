"""Calls of the orchestrator: the stub, and reading a run's stream to its end, also across a lost connection."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from errata_cli import reviews
from errata_cli.connecting import connect
from errata_cli.inputs import Start
from errata_cli.terminal import ExitCode, Interrupted, errors, output, print_json
from errata_cli.trace import TraceView
from errata_kit.errors import Reason
from errata_kit.rpc.channels import reading
from errata_kit.rpc.status import from_rpc_error

CALL_SECONDS: Final = 30.0
_REATTACH_SECONDS: Final = 30.0
_REATTACH_PAUSE: Final = 0.5
_LOST: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})
_GOOD: Final = frozenset({trace_pb2.OUTCOME_ANSWERED, trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT, trace_pb2.OUTCOME_APPROVED})
_FAILED: Final = frozenset(
    {
        trace_pb2.OUTCOME_UNSPECIFIED,
        trace_pb2.OUTCOME_FAILED,
        trace_pb2.OUTCOME_DEADLINE_EXCEEDED,
        trace_pb2.OUTCOME_CANCELLED,
    }
)


@contextlib.asynccontextmanager
async def orchestrator(target: str) -> AsyncIterator[pb2_grpc.OrchestratorServiceStub]:
    """A stub inside the block."""
    channel = connect(target)
    try:
        yield pb2_grpc.OrchestratorServiceStub(channel)
    finally:
        await channel.close()


def exit_code(finished: trace_pb2.RunFinished | None) -> ExitCode:
    """Good, refused or not approved, and failed apart. An outcome that is news to this client is no success."""
    if finished is None or finished.outcome in _FAILED:
        return ExitCode.FAILED
    return ExitCode.OK if finished.outcome in _GOOD else ExitCode.REFUSED


class Follower:
    """Shows a run's events to the end. Behind an approval that is still wanted it leaves, or waits, with waits set."""

    def __init__(
        self,
        stub: pb2_grpc.OrchestratorServiceStub,
        *,
        json_lines: bool,
        waits: bool = False,
        verified_only: bool = False,
    ) -> None:
        self.finished: trace_pb2.RunFinished | None = None
        self.run_id = ""
        self.sequence = 0
        self.reattached = False
        self._stub = stub
        self._waits = waits
        self._verified_only = verified_only
        self._view = TraceView(output())
        self._show: Callable[[trace_pb2.TraceEvent], None] = print_json if json_lines else self._view.show
        self._json = json_lines

    async def follow(self, call: Any, timeout: float | None = None) -> ExitCode:  # noqa: ASYNC109 - goes on into the next call
        """Read a stream of events, and go on with WatchRun when the connection is lost. timeout: seconds for all of it."""
        limit = None if timeout is None else time.monotonic() + timeout
        lost_since: float | None = None
        while True:
            seen = self.sequence
            try:
                return await self._read(call)
            except grpc.aio.AioRpcError as error:
                # Behind the last event the status only repeats what the event said.
                if self.finished is not None:
                    return exit_code(self.finished)
                now = time.monotonic()
                lost_since = now if lost_since is None or self.sequence > seen else lost_since
                lost = from_rpc_error(error, "orchestrator").why in _LOST
                if not lost or not self.run_id or now - lost_since > _REATTACH_SECONDS:
                    raise
                if not self.reattached:
                    errors().print("errata: the connection was lost; attaching to the run again ...", markup=False)
            self.reattached = True
            await asyncio.sleep(_REATTACH_PAUSE)
            left = None if limit is None else max(0.1, limit - time.monotonic())
            request = pb2.WatchRunRequest(run_id=self.run_id, after_sequence=self.sequence, verified_only=self._verified_only)
            call = self._stub.WatchRun(request, timeout=left)

    async def _read(self, call: Any) -> ExitCode:
        async with reading(call) as replies:
            async for reply in replies:
                event: trace_pb2.TraceEvent = reply.event
                self.run_id = event.run_id
                self.sequence = max(self.sequence, event.sequence)
                self._show(event)
                match event.WhichOneof("payload"):
                    case "run_finished":
                        self.finished = event.run_finished
                    case "approval_requested" if await self._is_wanted(event):
                        if not self._json:
                            reviews.decision_wanted(self._view.lines, event.run_id, event.approval_requested)
                        if not self._waits:
                            return ExitCode.WAITING
        return exit_code(self.finished)

    async def _is_wanted(self, event: trace_pb2.TraceEvent) -> bool:
        # In a replayed trace it may have been decided long ago.
        request = pb2.GetRunRequest(run_id=event.run_id, without_trace=True)
        try:
            run = (await self._stub.GetRun(request, timeout=CALL_SECONDS)).run
        except grpc.aio.AioRpcError:
            # Better asked once too often than waited for in vain.
            return True
        return bool(run.state == pb2.RUN_STATE_WAITING and run.last_sequence == event.sequence)


async def follow_start(follower: Follower, stub: pb2_grpc.OrchestratorServiceStub, call: Any, start: Start) -> ExitCode:
    """Follow a run that this command has started. What becomes of it without us is said when we leave early."""
    try:
        return await follower.follow(call, start.timeout)
    except asyncio.CancelledError:
        raise Interrupted(await _left(follower, stub, start)) from None
    except grpc.aio.AioRpcError:
        if follower.run_id and start.keep_going:
            errors().print(f"errata: the run goes on. Watch it with: {_watch(follower)}", markup=False)
        elif follower.run_id:
            errors().print(f"errata: how the run ended tells: errata show {follower.run_id}", markup=False)
        raise


async def follow_watch(follower: Follower, stub: pb2_grpc.OrchestratorServiceStub, run_id: str, after: int) -> ExitCode:
    """Follow a run that goes on without us. after: the last sequence number that is known already."""
    follower.run_id, follower.sequence = run_id, after
    try:
        code = await follower.follow(stub.WatchRun(pb2.WatchRunRequest(run_id=run_id, after_sequence=after)))
        return code if code == ExitCode.WAITING or follower.finished is not None else await _ended_before(stub, run_id)
    except asyncio.CancelledError:
        raise Interrupted(f"interrupted; the run goes on. Watch it with: {_watch(follower)}") from None


async def _ended_before(stub: pb2_grpc.OrchestratorServiceStub, run_id: str) -> ExitCode:
    """The exit code of a run whose last event was known already."""
    described = await stub.GetRun(pb2.GetRunRequest(run_id=run_id, without_trace=True), timeout=CALL_SECONDS)
    errors().print(f"errata: the run had ended before; see errata show {run_id}", markup=False)
    return exit_code(described.result if described.HasField("result") else None)


async def _left(follower: Follower, stub: pb2_grpc.OrchestratorServiceStub, start: Start) -> str:
    if not follower.run_id:
        return "interrupted before the first event. Whether a run was started tells: errata runs"
    if start.keep_going:
        return f"interrupted; the run goes on. Watch it with: {_watch(follower)}"
    if follower.reattached:
        # To the server we are one watcher among others now, and its leaving cancels nothing.
        with contextlib.suppress(grpc.aio.AioRpcError):
            await stub.CancelRun(pb2.CancelRunRequest(run_id=follower.run_id), timeout=CALL_SECONDS)
    return f"interrupted; the run is cancelled. What there is of it: errata show {follower.run_id}"


def _watch(follower: Follower) -> str:
    after = f" --after {follower.sequence}" if follower.sequence else ""
    return f"errata watch {follower.run_id}{after}"
