"""A run engine over SQLite in a folder, with workflows that a test brings: without the services around it, or served."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc

from errata_kit.metrics import Metrics
from errata_kit.rpc.server import Service
from services.orchestrator.opening import Opened, opened
from services.orchestrator.runs.engine import EngineSettings, RunEngine
from services.orchestrator.runs.workflow import Workflow
from services.orchestrator.server import OrchestratorServicer
from services.orchestrator.settings import OrchestratorSettings
from tests.harness.services import Served, plain_settings, serving

Workflows = Callable[[Opened], tuple[Workflow, ...]]


@dataclass(frozen=True, slots=True)
class Driven:
    """An engine and what it stands on."""

    engine: RunEngine
    storage: Opened
    metrics: Metrics


@contextlib.asynccontextmanager
async def driving(folder: Path, workflows: Workflows, replica: str = "first", outage: float = 0.0) -> AsyncIterator[Driven]:
    """An engine inside the block; on the way out it lets its runs go. outage: seconds that a service may be away."""
    chosen: dict[str, Any] = {"data_dir": folder, "database_url": None, "lease_seconds": 2.0}
    settings = OrchestratorSettings(**chosen)
    async with opened(settings, replica) as storage:
        metrics = Metrics()
        limits = EngineSettings(replica, timeout=30.0, lease=storage.lease_seconds, outage=outage)
        engine = RunEngine(storage.store, storage.signals, workflows(storage), metrics, limits)
        try:
            yield Driven(engine, storage, metrics)
        finally:
            await engine.aclose()


@contextlib.asynccontextmanager
async def served(driven: Driven) -> AsyncIterator[Served]:
    """The orchestrator's RPCs over an engine."""
    servicer = OrchestratorServicer(driven.engine, driven.storage.store)
    service = Service(
        name="orchestrator",
        port=0,
        metrics_port=0,
        proto_name="errata.orchestrator.v1.OrchestratorService",
        register=lambda server: orchestrator_grpc.add_OrchestratorServiceServicer_to_server(servicer, server),
        metrics=driven.metrics,
    )
    async with serving(service, plain_settings(), orchestrator_grpc.OrchestratorServiceStub) as started:
        yield started
