"""An orchestrator that says what a test has written down, drops its streams where it is to, and keeps what it was asked."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from errata_client import ErrataClient, Retries, RunEvents
from errata_kit.errors import ErrataError
from errata_kit.metrics import Metrics
from errata_kit.rpc import server as rpc_server
from tests.harness.services import Served, plain_settings, serving

RUN_ID = "01a22c99-8cab-7038-8d25-e7fab977b93c"
QUICK = Retries(start_seconds=2.0, jitter=0.0)
How = ErrataError | grpc.StatusCode
_NAME = "errata.orchestrator.v1.OrchestratorService"


def event(sequence: int, run_id: str = RUN_ID, **payload: Any) -> trace_pb2.TraceEvent:
    return trace_pb2.TraceEvent(run_id=run_id, sequence=sequence, **payload)


def answer_trace(run_id: str = RUN_ID, outcome: str = "OUTCOME_ANSWERED") -> list[trace_pb2.TraceEvent]:
    """A short run: four stored events, and a delta before the third."""
    finished = trace_pb2.RunFinished(outcome=outcome, answer={"text": "For 30 days. [1]"}, faithfulness_score=1.0)
    return [
        event(1, run_id, run_started=trace_pb2.RunStarted(workflow="answer")),
        event(2, run_id, passages_retrieved=trace_pb2.PassagesRetrieved(retrieval=1)),
        event(0, run_id, answer_delta=trace_pb2.AnswerDelta(text="For 30 ")),
        event(3, run_id, answer_drafted=trace_pb2.AnswerDrafted()),
        event(4, run_id, run_finished=finished),
    ]


@dataclass(frozen=True, slots=True)
class Drop:
    """How a stream ends early: after so many of its messages, with an error of Errata, or a status that is none of its own."""

    after: int
    how: How


@dataclass
class Orchestrator(pb2_grpc.OrchestratorServiceServicer):
    """One run for everybody, or one a request_id where own is set.

    drops: how the streams end, in the order in which they are opened; those behind the last one go on to the end. before: is
    awaited before each message of a stream, with the number of those that were sent on it. refusals: what calls get before
    anything else, one each. forgets: WatchRun begins anew whatever it is told. given_up: streams that their caller has left.
    """

    trace: Sequence[trace_pb2.TraceEvent] = field(default_factory=answer_trace)
    drops: list[Drop] = field(default_factory=list)
    refusals: list[ErrataError] = field(default_factory=list)
    before: Callable[[int], Awaitable[None]] | None = None
    own: bool = False
    forgets: bool = False
    given_up: int = 0
    asked: list[Any] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    runs: int = 0

    async def Ask(self, request: pb2.AskRequest, context: Any) -> AsyncIterator[pb2.AskResponse]:  # noqa: N802
        async for item in self._stream(request, context, request.request_id if self.own else RUN_ID, 0):
            yield pb2.AskResponse(event=item)

    async def Compose(self, request: pb2.ComposeRequest, context: Any) -> AsyncIterator[pb2.ComposeResponse]:  # noqa: N802
        async for item in self._stream(request, context, RUN_ID, 0):
            yield pb2.ComposeResponse(event=item)

    async def WatchRun(self, request: pb2.WatchRunRequest, context: Any) -> AsyncIterator[pb2.WatchRunResponse]:  # noqa: N802
        after = 0 if self.forgets else request.after_sequence
        async for item in self._stream(request, context, request.run_id, after):
            yield pb2.WatchRunResponse(event=item)

    async def CancelRun(self, request: pb2.CancelRunRequest, context: Any) -> pb2.CancelRunResponse:  # noqa: N802
        self._enter(request, context)
        self.cancelled.append(request.run_id)
        return pb2.CancelRunResponse(run=pb2.Run(run_id=request.run_id))

    async def GetRun(self, request: pb2.GetRunRequest, context: Any) -> pb2.GetRunResponse:  # noqa: N802
        self._enter(request, context)
        return pb2.GetRunResponse(run=pb2.Run(run_id=request.run_id))

    async def ListRuns(self, request: pb2.ListRunsRequest, context: Any) -> pb2.ListRunsResponse:  # noqa: N802
        self._enter(request, context)
        first = int(request.page_token or 0)
        last = min(self.runs, first + (request.page_size or 50))
        token = str(last) if last < self.runs else ""
        return pb2.ListRunsResponse(runs=[pb2.Run(run_id=str(n)) for n in range(first, last)], next_page_token=token)

    def _enter(self, request: Any, context: Any) -> None:
        self.asked.append(request)
        metadata = dict(context.invocation_metadata() or ())
        self.tokens.append(str(metadata.get("authorization", "")))
        if self.refusals:
            raise self.refusals.pop(0)

    async def _stream(self, request: Any, context: Any, run_id: str, after: int) -> AsyncIterator[trace_pb2.TraceEvent]:
        self._enter(request, context)
        drop = self.drops.pop(0) if self.drops else None
        wanted = [item for item in self.trace if item.sequence > after or not item.sequence]
        for sent, item in enumerate(wanted):
            if self.before is not None:
                with self._counting():
                    await self.before(sent)
            if drop is not None and sent == drop.after:
                await _end(drop.how, context)
            named = trace_pb2.TraceEvent()
            named.CopyFrom(item)
            named.run_id = run_id
            yield named
        if drop is not None:
            await _end(drop.how, context)

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except asyncio.CancelledError:
            self.given_up += 1
            raise


async def _end(how: How, context: Any) -> None:
    if isinstance(how, ErrataError):
        raise how
    await context.abort(how, "the connection is gone")


def _service(orchestrator: pb2_grpc.OrchestratorServiceServicer) -> rpc_server.Service:
    return rpc_server.Service(
        name="orchestrator",
        port=0,
        metrics_port=0,
        proto_name=_NAME,
        register=lambda server: pb2_grpc.add_OrchestratorServiceServicer_to_server(orchestrator, server),
        metrics=Metrics(),
    )


@contextlib.asynccontextmanager
async def served(orchestrator: pb2_grpc.OrchestratorServiceServicer) -> AsyncIterator[Served]:
    """The scripted orchestrator on the wire."""
    async with serving(_service(orchestrator), plain_settings(), pb2_grpc.OrchestratorServiceStub) as running:
        yield running


@contextlib.asynccontextmanager
async def secure(orchestrator: pb2_grpc.OrchestratorServiceServicer, **settings: Any) -> AsyncIterator[str]:
    """The address of the scripted orchestrator with settings of access."""
    async with rpc_server.running(_service(orchestrator), plain_settings(**settings)) as started:
        await started.announced
        yield f"127.0.0.1:{started.port}"


@contextlib.asynccontextmanager
async def client_of(
    orchestrator: pb2_grpc.OrchestratorServiceServicer, retries: Retries = QUICK, **options: Any
) -> AsyncIterator[ErrataClient]:
    """A client of the scripted orchestrator."""
    async with served(orchestrator) as running, ErrataClient(running.target, retries=retries, **options) as errata:
        yield errata


class Cuttable:
    """A TCP relay in front of a server; cut() resets every connection."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.accepted = 0
        self.target = ""

    async def __aenter__(self) -> "Cuttable":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.target = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._closed = True
        while self._tasks:
            self.cut()
            await asyncio.wait(self._tasks, timeout=0.1)
        # Aborted transports close in the loop's next turn.
        await asyncio.sleep(0.01)

    def cut(self) -> None:
        """Reset what is open."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._track(asyncio.current_task())
        self._open.add(writer)
        there, back = await asyncio.open_connection(*self._target)
        self._open.add(back)
        if self._closed or writer.transport.is_closing():
            writer.transport.abort()
            back.transport.abort()
            return
        for source, sink in ((reader, back), (there, writer)):
            self._track(asyncio.create_task(self._relay(source, sink)))

    def _track(self, task: "asyncio.Task[None] | None") -> None:
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._open.discard(sink)


def stored(events: Sequence[trace_pb2.TraceEvent]) -> list[int]:
    """The sequence numbers of the stored events, as they came."""
    return [item.sequence for item in events if item.sequence]


def pairs(positions: range, hows: Sequence[How]) -> list[tuple[int, How]]:
    """Every position with every way to drop a stream."""
    return list(itertools.product(positions, hows))


async def read(events: RunEvents) -> list[trace_pb2.TraceEvent]:
    return [item async for item in events]


async def soon(condition: Any) -> None:
    async with asyncio.timeout(3):
        while not condition():  # noqa: ASYNC110 - the server knows no event for it
            await asyncio.sleep(0.005)


class Held:
    """Holds a stream before one of its messages."""

    def __init__(self, at: int) -> None:
        self.reached = asyncio.Event()
        self.free = asyncio.Event()
        self._at = at

    async def __call__(self, sent: int) -> None:
        if sent == self._at:
            self.reached.set()
            await self.free.wait()
