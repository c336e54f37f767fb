"""OrchestratorService over gRPC: one short method an RPC."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from errata_kit.access.identity import IdentitySigner
from errata_kit.access.principals import Principal, Role
from errata_kit.calls import current_call, stop_task
from errata_kit.errors import PermissionDenied, RemoteError
from errata_kit.metrics import Metrics
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from errata_kit.rpc.tls import tls_files
from services.orchestrator.clients import GeneratorClient, JudgeClient, RetrieverClient, until_serving
from services.orchestrator.convert import history, requests
from services.orchestrator.convert.trace import event_to, finished_to
from services.orchestrator.convert.withholding import withhold
from services.orchestrator.opening import Opened, opened
from services.orchestrator.runs.admission import DailyTokens, RunAdmission, RunLimits
from services.orchestrator.runs.engine import EngineSettings, RunEngine
from services.orchestrator.runs.events import AnswerDelta, Outcome, RunFinished, RunStarted
from services.orchestrator.runs.housekeeping import Retention, keep_house
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.compose.graph import ComposeWorkflow

_STARTING = frozenset(f"/errata.orchestrator.v1.OrchestratorService/{name}" for name in ("Ask", "Compose"))
# These outcomes end the caller's stream with the status of their reason; every other outcome is a result.
_FAILURES = frozenset({Outcome.FAILED, Outcome.DEADLINE_EXCEEDED, Outcome.CANCELLED})


class OrchestratorServicer(pb2_grpc.OrchestratorServiceServicer):
    """Turns calls into runs, and runs into streams."""

    def __init__(self, engine: RunEngine, store: RunStore) -> None:
        self._engine = engine
        self._store = store

    async def Ask(self, request: pb2.AskRequest, context: Context) -> AsyncIterator[pb2.AskResponse]:  # noqa: N802
        """Run the answer workflow."""
        asked, options = requests.ask_from(request, _caller(), context.time_remaining())
        cancels = requests.cancels_on_disconnect(request.on_disconnect)
        run_id, _ = await self._engine.start("answer", asked, options, cancels=cancels)
        async with contextlib.aclosing(self._trace(run_id, request.on_disconnect)) as trace:
            async for event in trace:
                yield pb2.AskResponse(event=withhold(event) if request.verified_only else event)

    async def Compose(self, request: pb2.ComposeRequest, context: Context) -> AsyncIterator[pb2.ComposeResponse]:  # noqa: N802
        """Run the compose workflow."""
        asked, options = requests.compose_from(request, _caller(), context.time_remaining())
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
        drafts = not request.verified_only or await self._holds_back(run_id)
        async with contextlib.aclosing(self._engine.watch(_tenant(), run_id, after)) as trace:
            async for event in trace:
                if drafts or not isinstance(event.payload, AnswerDelta):
                    message = event_to(event)
                    yield pb2.WatchRunResponse(event=withhold(message) if request.verified_only else message)

    async def GetRun(self, request: pb2.GetRunRequest, context: Context) -> pb2.GetRunResponse:  # noqa: N802
        """Describe a run."""
        run_id, _ = requests.run_name_from(request.run_id)
        run = await self._store.get(_tenant(), run_id)
        evaluations = await self._store.evaluations(_tenant(), run_id)
        calls = await self._store.model_calls(_tenant(), run_id)
        after = run.last_sequence - 1 if request.without_trace else 0
        stored = await self._store.events(_tenant(), run_id, after, most=run.last_sequence + 1)
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
        page = await self._store.list(requests.run_query_from(request, _tenant()))
        return pb2.ListRunsResponse(runs=map(history.run_to, page.runs), next_page_token=page.next_page_token)

    async def CancelRun(self, request: pb2.CancelRunRequest, context: Context) -> pb2.CancelRunResponse:  # noqa: N802
        """Stop a run."""
        run_id, _ = requests.run_name_from(request.run_id)
        await self._may_cancel(run_id)
        return pb2.CancelRunResponse(run=history.run_to(await self._engine.cancel(_tenant(), run_id)))

    async def ResumeRun(self, request: pb2.ResumeRunRequest, context: Context) -> pb2.ResumeRunResponse:  # noqa: N802
        """Hand over a person's decision."""
        run_id, decided = requests.decision_from(request, _caller())
        return pb2.ResumeRunResponse(run=history.run_to(await self._engine.decide(_tenant(), run_id, decided)))

    async def _holds_back(self, run_id: str) -> bool:
        """Whether the deltas of a run are verified text. Raises RunNotFound."""
        await self._store.get(_tenant(), run_id)
        first = await self._store.events(_tenant(), run_id, 0, most=1)
        return any(isinstance(event.payload, RunStarted) and event.payload.verified_only for event in first)

    async def _may_cancel(self, run_id: str) -> None:
        run, caller = await self._store.get(_tenant(), run_id), _caller()
        if run.principal != caller.name and not caller.has(Role.ADMIN):
            raise PermissionDenied("Only an admin cancels the runs of others", metadata={"role": Role.ADMIN.value})

    async def _trace(self, run_id: str, on_disconnect: pb2.OnDisconnect) -> AsyncGenerator[trace_pb2.TraceEvent, None]:
        """The trace of a run for the caller that wanted it: a failure is also the status of the call."""
        finished: RunFinished | None = None
        with self._engine.attached(run_id, cancels=requests.cancels_on_disconnect(on_disconnect)):
            async with contextlib.aclosing(self._engine.watch(_tenant(), run_id)) as trace:
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
    files, key_file = tls_files(settings), settings.identity_key_file
    signer = None if key_file is None else IdentitySigner.from_file(key_file)
    channels = {name: await stack.enter_async_context(open_channel(target, files)) for name, target in targets.items()}
    retriever, judge, generator = channels.values()
    ports = (RetrieverClient(retriever, signer), JudgeClient(judge, signer), GeneratorClient(generator, signer))
    # A workflow more is a line more.
    answering = AnswerWorkflow(*ports, storage.checkpoints, settings.segment_sentences)
    workflows = (answering, ComposeWorkflow(*ports, storage.checkpoints))
    limits = _limits(settings)
    tokens = DailyTokens(storage.store, limits)
    own = replace(_engine_settings(settings, storage), spent=tokens.spent)
    engine = RunEngine(storage.store, storage.signals, workflows, metrics, own)
    stack.push_async_callback(engine.aclose)
    if limits.count_tokens:
        stack.push_async_callback(stop_task, asyncio.create_task(tokens.keep_counting()))
    admission = RunAdmission(limits, tokens, _STARTING, engine.principals)
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
        entering=admission.entering,
        takes_identities=False,
        full=admission.full,
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


def _limits(settings: OrchestratorSettings) -> RunLimits:
    return RunLimits(
        runs=settings.max_runs,
        principal_runs=settings.principal_max_runs,
        tokens=settings.tokens_per_day,
        principal_tokens=settings.principal_tokens_per_day,
    )


def _retention(settings: OrchestratorSettings) -> Retention:
    return Retention(
        checkpoints=settings.checkpoint_retention_seconds,
        events=settings.event_retention_seconds,
        runs=settings.run_retention_seconds,
        interval=settings.housekeeping_seconds,
    )


def _caller() -> Principal:
    return current_call().principal


def _tenant() -> str:
    return _caller().tenant
