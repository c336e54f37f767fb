"""OrchestratorService over gRPC: one short method an RPC."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from errata_kit.calls import stop_task
from errata_kit.errors import RemoteError
from errata_kit.metrics import Metrics
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from services.orchestrator.clients import GeneratorClient, JudgeClient, RetrieverClient, until_serving
from services.orchestrator.convert import history, requests
from services.orchestrator.convert.trace import event_to, finished_to
from services.orchestrator.opening import Opened, opened
from services.orchestrator.runs.engine import EngineSettings, RunEngine
from services.orchestrator.runs.events import Outcome, RunFinished
from services.orchestrator.runs.housekeeping import Retention, keep_house
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.compose.graph import ComposeWorkflow

# These outcomes end the caller's stream with the status of their reason; every other outcome is a result.
_FAILURES = frozenset({Outcome.FAILED, Outcome.DEADLINE_EXCEEDED, Outcome.CANCELLED})


class OrchestratorServicer(pb2_grpc.OrchestratorServiceServicer):
    """Turns calls into runs, and runs into streams."""

    def __init__(self, engine: RunEngine, store: RunStore) -> None:
        self._engine = engine
        self._store = store

    async def Ask(self, request: pb2.AskRequest, context: Context) -> AsyncIterator[pb2.AskResponse]:  # noqa: N802
        """Run the answer workflow."""
        asked, options = requests.ask_from(request, _principal(context), context.time_remaining())
        cancels = requests.cancels_on_disconnect(request.on_disconnect)
        run_id, _ = await self._engine.start("answer", asked, options, cancels=cancels)
        async with contextlib.aclosing(self._trace(run_id, request.on_disconnect)) as trace:
            async for event in trace:
                yield pb2.AskResponse(event=event)

    async def Compose(self, request: pb2.ComposeRequest, context: Context) -> AsyncIterator[pb2.ComposeResponse]:  # noqa: N802
        """Run the compose workflow."""
        asked, options = requests.compose_from(request, _principal(context), context.time_remaining())
        cancels = requests.cancels_on_disconnect(request.on_disconnect)
        run_id, _ = await self._engine.start("compose", asked, options, cancels=cancels)
        async with contextlib.aclosing(self._trace(run_id, request.on_disconnect)) as trace:
            async for event in trace:
                yield pb2.ComposeResponse(event=event)

    async def WatchRun(  # noqa: N802
        self, request: pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[pb2.WatchRunResponse]:
        """Replay, then go on live."""
        run_id, after = requests.run_name_from(request.run_id, request.after_sequence)
        async with contextlib.aclosing(self._engine.watch(run_id, after)) as trace:
            async for event in trace:
                yield pb2.WatchRunResponse(event=event_to(event))

    async def GetRun(self, request: pb2.GetRunRequest, context: Context) -> pb2.GetRunResponse:  # noqa: N802
        """Describe a run."""
        run_id, _ = requests.run_name_from(request.run_id)
        run = await self._store.get(run_id)
        evaluations = await self._store.evaluations(run_id)
        calls = await self._store.model_calls(run_id)
        after = run.last_sequence - 1 if request.without_trace else 0
        stored = await self._store.events(run_id, after, most=run.last_sequence + 1)
        ends = [event.payload for event in stored if isinstance(event.payload, RunFinished)]
        trace, truncated = ([], False) if request.without_trace else history.trace_to(stored)
        return pb2.GetRunResponse(
            run=history.run_to(run),
            result=finished_to(ends[0]) if ends else None,
            evaluations=map(history.evaluation_to, evaluations),
            usage=history.usage_to(calls),
            prompt_versions=history.prompt_versions_to(calls),
            trace=trace,
            trace_truncated=truncated,
        )

    async def ListRuns(self, request: pb2.ListRunsRequest, context: Context) -> pb2.ListRunsResponse:  # noqa: N802
        """List runs."""
        page = await self._store.list(requests.run_query_from(request))
        return pb2.ListRunsResponse(runs=map(history.run_to, page.runs), next_page_token=page.next_page_token)

    async def CancelRun(self, request: pb2.CancelRunRequest, context: Context) -> pb2.CancelRunResponse:  # noqa: N802
        """Stop a run."""
        run_id, _ = requests.run_name_from(request.run_id)
        return pb2.CancelRunResponse(run=history.run_to(await self._engine.cancel(run_id)))

    async def ResumeRun(self, request: pb2.ResumeRunRequest, context: Context) -> pb2.ResumeRunResponse:  # noqa: N802
        """Hand over a person's decision."""
        run_id, decided = requests.decision_from(request, _principal(context))
        return pb2.ResumeRunResponse(run=history.run_to(await self._engine.decide(run_id, decided)))

    async def _trace(self, run_id: str, on_disconnect: pb2.OnDisconnect) -> AsyncGenerator[trace_pb2.TraceEvent, None]:
        """The trace of a run for the caller that wanted it: a failure is also the status of the call."""
        finished: RunFinished | None = None
        with self._engine.attached(run_id, cancels=requests.cancels_on_disconnect(on_disconnect)):
            async with contextlib.aclosing(self._engine.watch(run_id)) as trace:
                async for event in trace:
                    if isinstance(event.payload, RunFinished):
                        finished = event.payload
                    yield event_to(event)
        if finished is not None and finished.error is not None and finished.outcome in _FAILURES:
            error = finished.error
            raise RemoteError(error.reason, error.message, metadata={**error.metadata, "run_id": run_id})


async def build(settings: OrchestratorSettings) -> Service:
    """Put the service together. Channels connect on their own, so the other services may start later."""
    stack = contextlib.AsyncExitStack()
    try:
        return await _build(settings, stack)
    except BaseException:
        await stack.aclose()
        raise


async def _build(settings: OrchestratorSettings, stack: contextlib.AsyncExitStack) -> Service:
    metrics = Metrics()
    targets = {
        "errata.retriever.v1.RetrieverService": settings.retriever_target,
        "errata.judge.v1.JudgeService": settings.judge_target,
        "errata.generator.v1.GeneratorService": settings.generator_target,
    }
    storage = await stack.enter_async_context(opened(settings, _replica()))
    channels = {name: await stack.enter_async_context(open_channel(target)) for name, target in targets.items()}
    retriever, judge, generator = channels.values()
    ports = (RetrieverClient(retriever), JudgeClient(judge), GeneratorClient(generator))
    # A workflow more is a line more.
    workflows = (AnswerWorkflow(*ports, storage.checkpoints), ComposeWorkflow(*ports, storage.checkpoints))
    engine = RunEngine(storage.store, storage.signals, workflows, metrics, _engine_settings(settings, storage))
    stack.push_async_callback(engine.aclose)
    cleaning = asyncio.create_task(keep_house(storage.database, storage.checkpoints, _retention(settings)))
    stack.push_async_callback(stop_task, cleaning)
    servicer = OrchestratorServicer(engine, storage.store)

    async def ready() -> None:
        await asyncio.gather(*(until_serving(channel, name) for name, channel in channels.items()))

    return Service(
        name="orchestrator",
        port=settings.port,
        metrics_port=settings.metrics_port,
        proto_name="errata.orchestrator.v1.OrchestratorService",
        register=lambda server: pb2_grpc.add_OrchestratorServiceServicer_to_server(servicer, server),
        metrics=metrics,
        ready=ready,
        drain=engine.drain,
        close=stack.aclose,
    )


def _replica() -> str:
    # Not only the host and the process: a container that is started again often has the same ones.
    return f"{socket.gethostname()[:32]}-{os.getpid()}-{os.urandom(4).hex()}"


def _engine_settings(settings: OrchestratorSettings, storage: Opened) -> EngineSettings:
    return EngineSettings(
        replica=storage.replica,
        timeout=settings.run_timeout_seconds,
        lease=storage.lease_seconds,
        outage=settings.outage_seconds,
        max_takeovers=settings.max_takeovers,
    )


def _retention(settings: OrchestratorSettings) -> Retention:
    return Retention(
        checkpoints=settings.checkpoint_retention_seconds,
        events=settings.event_retention_seconds,
        runs=settings.run_retention_seconds,
        interval=settings.housekeeping_seconds,
    )


def _principal(context: Context) -> str:
    metadata: Any = context.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == requests.PRINCIPAL_KEY), "")
