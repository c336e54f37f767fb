"""Asking an orchestrator that stands on scripted services, and reading the traces it gives."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import grpc
from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from tests.harness.services import (
    CALL_SECONDS,
    Served,
    failure_of,
)

QUESTION = "How long does Flink 1.18 keep files?"
TASK = "Write a page about how long files are kept."
PRINCIPAL_KEY = "errata-principal"
NOWHERE = "127.0.0.1:1"


class Hook:
    """A step that waits until it is let go, and says when somebody has come to it."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.release.wait()


class Fails:
    """A step that raises what `make` makes, the first `times` times."""

    def __init__(self, make: Callable[[], Exception], times: int = 1) -> None:
        self._make = make
        self.left = times

    async def __call__(self) -> None:
        if self.left > 0:
            self.left -= 1
            raise self._make()


def ask(served: Served, timeout: float = CALL_SECONDS, question: str = QUESTION, **fields: Any) -> Any:
    settings = {key: fields.pop(key) for key in list(fields) if key in trace_pb2.AnswerSettings.DESCRIPTOR.fields_by_name}
    principal = fields.pop("principal", "")
    request = pb2.AskRequest(question=question, settings=trace_pb2.AnswerSettings(**settings), **fields)
    return served.stub.Ask(request, timeout=timeout, metadata=_said_by(principal))


def compose(served: Served, timeout: float = CALL_SECONDS, task: str = TASK, **fields: Any) -> Any:
    settings = {key: fields.pop(key) for key in list(fields) if key in trace_pb2.ComposeSettings.DESCRIPTOR.fields_by_name}
    principal = fields.pop("principal", "")
    request = pb2.ComposeRequest(task=task, settings=trace_pb2.ComposeSettings(**settings), **fields)
    return served.stub.Compose(request, timeout=timeout, metadata=_said_by(principal))


def decide(served: Served, run_id: str, decision: str, principal: str = "", **fields: Any) -> Any:
    """ResumeRun. decision: APPROVE, REJECT or REVISE."""
    request = pb2.ResumeRunRequest(run_id=run_id, decision=f"APPROVAL_DECISION_{decision}", **fields)
    return served.stub.ResumeRun(request, timeout=CALL_SECONDS, metadata=_said_by(principal))


def _said_by(principal: str) -> tuple[tuple[str, str], ...]:
    return ((PRINCIPAL_KEY, principal),) if principal else ()


async def until(call: Any, kind: str) -> list[trace_pb2.TraceEvent]:
    """Read a stream up to an event of this kind; the call stays open."""
    events: list[trace_pb2.TraceEvent] = []
    async with asyncio.timeout(CALL_SECONDS):
        while not events or events[-1].WhichOneof("payload") != kind:
            reply = await call.read()
            assert reply is not grpc.aio.EOF, f"the stream ended after {steps(events)}"
            events.append(reply.event)
    return events


async def watch(served: Served, run_id: str, after: int = 0) -> list[trace_pb2.TraceEvent]:
    """Every event behind a sequence number, up to the end of the run."""
    call = served.stub.WatchRun(pb2.WatchRunRequest(run_id=run_id, after_sequence=after), timeout=CALL_SECONDS)
    return [reply.event async for reply in call]


async def listed(served: Served, **fields: Any) -> pb2.ListRunsResponse:
    return await served.stub.ListRuns(pb2.ListRunsRequest(**fields), timeout=CALL_SECONDS)  # type: ignore[no-any-return]


async def cancel_run(served: Served, run_id: str) -> pb2.Run:
    return (await served.stub.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=CALL_SECONDS)).run  # type: ignore[no-any-return]


async def trace_of(call: Any) -> list[trace_pb2.TraceEvent]:
    return checked([reply.event async for reply in call])


async def failed_trace(call: Any) -> tuple[list[trace_pb2.TraceEvent], Any]:
    failure = await failure_of(call)
    return checked([reply.event for reply in failure.received]), failure


def checked(events: list[trace_pb2.TraceEvent]) -> list[trace_pb2.TraceEvent]:
    """The trace of a whole run: no gaps, one id, one start, one end, and deltas without a number."""
    stored = [event for event in events if event.sequence]
    assert [event.sequence for event in stored] == list(range(1, len(stored) + 1))
    assert all(event.WhichOneof("payload") == "answer_delta" for event in events if not event.sequence)
    kinds = steps(events)
    assert kinds[0] == "run_started" and kinds[-1] == "run_finished"
    assert kinds.count("run_started") == kinds.count("run_finished") == 1
    [run_id] = {event.run_id for event in events}
    assert uuid.UUID(run_id).version == 7
    assert [event.create_time.ToNanoseconds() for event in stored] == sorted(
        event.create_time.ToNanoseconds() for event in stored
    )
    return events


def steps(events: list[trace_pb2.TraceEvent]) -> list[str]:
    return [str(event.WhichOneof("payload")) for event in events if event.sequence]


def payloads(events: list[trace_pb2.TraceEvent], kind: str) -> list[Any]:
    """The payloads of one kind, in order."""
    return [getattr(event, kind) for event in events if event.WhichOneof("payload") == kind]


def end(events: list[trace_pb2.TraceEvent]) -> trace_pb2.RunFinished:
    return events[-1].run_finished


def outcome(events: list[trace_pb2.TraceEvent]) -> str:
    return trace_pb2.Outcome.Name(end(events).outcome).removeprefix("OUTCOME_")


def reason(detail: errors_pb2.ErrorDetail) -> str:
    return errors_pb2.ErrorReason.Name(detail.reason).removeprefix("ERROR_REASON_")


async def get_run(served: Served, run_id: str, **fields: Any) -> pb2.GetRunResponse:
    return await served.stub.GetRun(pb2.GetRunRequest(run_id=run_id, **fields), timeout=CALL_SECONDS)  # type: ignore[no-any-return]
