"""OrchestratorService over gRPC: one short method an RPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc

from errata_kit.errors import RemoteError
from errata_kit.metrics import Metrics
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from services.orchestrator import convert
from services.orchestrator.clients import GeneratorClient, JudgeClient, RetrieverClient, until_serving
from services.orchestrator.runs.engine import RunEngine
from services.orchestrator.runs.events import RunFinished
from services.orchestrator.runs.store import MemoryRunStore, RunStore
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.graph import AnswerWorkflow


class OrchestratorServicer(pb2_grpc.OrchestratorServiceServicer):
    """Turns calls into runs, and runs into streams."""

    def __init__(self, engine: RunEngine, store: RunStore) -> None:
        self._engine = engine
        self._store = store

    async def Ask(self, request: pb2.AskRequest, context: Context) -> AsyncIterator[pb2.AskResponse]:  # noqa: N802
        """Run the answer workflow. A caller that goes away cancels it."""
        run_id = await self._engine.start("answer", convert.ask_from(request), context.time_remaining())
        finished: RunFinished | None = None
        try:
            async with contextlib.aclosing(self._engine.watch(run_id)) as trace:
                async for event in trace:
                    if isinstance(event.payload, RunFinished):
                        finished = event.payload
                    yield pb2.AskResponse(event=convert.event_to(event))
        finally:
            if finished is None:
                await self._engine.cancel(run_id)
        if finished is not None and finished.error is not None:
            error = finished.error
            raise RemoteError(error.reason, error.message, metadata={**error.metadata, "run_id": run_id})

    async def WatchRun(  # noqa: N802
        self, request: pb2.WatchRunRequest, context: Context
    ) -> AsyncIterator[pb2.WatchRunResponse]:
        """Replay, then go on live."""
        run_id, after = convert.run_name_from(request.run_id, request.after_sequence)
        async with contextlib.aclosing(self._engine.watch(run_id, after)) as trace:
            async for event in trace:
                yield pb2.WatchRunResponse(event=convert.event_to(event))

    async def GetRun(self, request: pb2.GetRunRequest, context: Context) -> pb2.GetRunResponse:  # noqa: N802
        """Describe a run."""
        run_id, _ = convert.run_name_from(request.run_id)
        run = await self._store.get(run_id)
        result = None if run.result is None else convert.finished_to(run.result)
        return pb2.GetRunResponse(run=convert.run_to(run), result=result)

    async def ListRuns(self, request: pb2.ListRunsRequest, context: Context) -> pb2.ListRunsResponse:  # noqa: N802
        """List runs."""
        page = await self._store.list(convert.run_query_from(request))
        return pb2.ListRunsResponse(runs=map(convert.run_to, page.runs), next_page_token=page.next_page_token)

    async def CancelRun(self, request: pb2.CancelRunRequest, context: Context) -> pb2.CancelRunResponse:  # noqa: N802
        """Stop a run."""
        run_id, _ = convert.run_name_from(request.run_id)
        return pb2.CancelRunResponse(run=convert.run_to(await self._engine.cancel(run_id)))


async def build(settings: OrchestratorSettings) -> Service:
    """Put the service together. Channels connect on their own, so the other services may start later."""
    metrics = Metrics()
    targets = {
        "errata.retriever.v1.RetrieverService": settings.retriever_target,
        "errata.judge.v1.JudgeService": settings.judge_target,
        "errata.generator.v1.GeneratorService": settings.generator_target,
    }
    channels = {name: open_channel(target) for name, target in targets.items()}
    retriever, judge, generator = channels.values()
    workflow = AnswerWorkflow(RetrieverClient(retriever), JudgeClient(judge), GeneratorClient(generator))
    store = MemoryRunStore(settings.max_finished_runs)
    engine = RunEngine(store, (workflow,), metrics, settings.run_timeout_seconds)
    servicer = OrchestratorServicer(engine, store)

    async def ready() -> None:
        await asyncio.gather(*(until_serving(channel, name) for name, channel in channels.items()))

    async def close() -> None:
        await engine.drain(0)
        await asyncio.gather(*(channel.close() for channel in channels.values()))

    return Service(
        name="orchestrator",
        port=settings.port,
        metrics_port=settings.metrics_port,
        proto_name="errata.orchestrator.v1.OrchestratorService",
        register=lambda server: pb2_grpc.add_OrchestratorServiceServicer_to_server(servicer, server),
        metrics=metrics,
        ready=ready,
        drain=engine.drain,
        close=close,
    )
