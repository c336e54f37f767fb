"""Starts the real services on free loopback ports of the test process, and scripted ones to put below the orchestrator.

Each helper is an async context manager that yields a `Served`: a stub on a channel of its own, without retries, so that a
test sees the first status that the service sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from errata_kit.metrics import Metrics
from errata_kit.rpc import server as rpc_server
from errata_kit.rpc.limits import MESSAGE_BYTES
from errata_kit.settings import ServiceSettings
from services.generator import server as generator_server
from services.generator.settings import GeneratorSettings
from services.judge import server as judge_server
from services.judge.settings import JudgeSettings
from services.orchestrator import server as orchestrator_server
from services.orchestrator.settings import OrchestratorSettings
from services.retriever import server as retriever_server
from services.retriever.settings import RetrieverSettings
from tests.harness.model_server import ModelServer

# The scripted services are imported from here, too.
from tests.harness.scripted import Below as Below
from tests.harness.scripted import FakeGenerator as FakeGenerator
from tests.harness.scripted import FakeJudge as FakeJudge
from tests.harness.scripted import FakeRetriever as FakeRetriever
from tests.harness.scripted import faithful as faithful
from tests.harness.scripted import go_on as go_on
from tests.harness.scripted import passage as passage
from tests.harness.scripted import unfaithful as unfaithful

CALL_SECONDS = 20.0
"""Longest call of a test, so that none hangs."""
_FREE_PORTS: dict[str, Any] = {"port": 0, "metrics_port": 0}
_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]


@dataclass(frozen=True, slots=True)
class Served:
    """A service under test. `target` is its address, `stub` its client."""

    target: str
    stub: Any
    channel: grpc.aio.Channel
    running: rpc_server.RunningServer
    service: rpc_server.Service


# --- the real services ------------------------------------------------------------------------------------------------


def judge(model: ModelServer | None = None, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The judge, with the openai provider when there is a model server, else offline. It remembers nothing unless told to."""
    chosen = JudgeSettings(**_provider(model, {"cache_entries": 0, **settings}))
    return _built(lambda: judge_server.build(chosen), chosen, judge_grpc.JudgeServiceStub)


def generator(model: ModelServer | None = None, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The generator, with the openai provider when there is a model server, else offline."""
    chosen = GeneratorSettings(**_provider(model, settings))
    return _built(lambda: generator_server.build(chosen), chosen, generator_grpc.GeneratorServiceStub)


def retriever(folder: Path, embedding: str = "none", **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The retriever on the embedded engine in a folder."""
    chosen = RetrieverSettings(
        **{**_FREE_PORTS, "data_dir": folder, "embedding_provider": embedding, "qdrant_url": "", **settings}
    )
    return _built(lambda: retriever_server.build(chosen), chosen, retriever_grpc.RetrieverServiceStub)


@contextlib.asynccontextmanager
async def orchestrator(retriever: str, judge: str, generator: str, **settings: Any) -> AsyncIterator[Served]:
    """The orchestrator over three addresses. It is ready once all of them serve, unless `wait` is False.

    Without a `data_dir` its runs live in a folder that goes with the block, and an outage is told after a second.
    """
    wait = bool(settings.pop("wait", True))
    targets = {"retriever_target": retriever, "judge_target": judge, "generator_target": generator}
    with tempfile.TemporaryDirectory(prefix="errata-runs-") as folder:
        own = {"data_dir": Path(folder), "database_url": None, "outage_seconds": 1.0}
        chosen = OrchestratorSettings(**{**_FREE_PORTS, **targets, **own, **settings})
        stub = orchestrator_grpc.OrchestratorServiceStub
        async with _built(lambda: orchestrator_server.build(chosen), chosen, stub, wait=wait) as served:
            yield served


@contextlib.asynccontextmanager
async def serving(
    service: rpc_server.Service, settings: ServiceSettings, stub: Callable[[grpc.aio.Channel], Any], *, wait: bool = True
) -> AsyncIterator[Served]:
    """Any service inside the block; with `wait`, once it says SERVING."""
    async with rpc_server.running(service, settings) as started:
        target = f"127.0.0.1:{started.port}"
        async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
            if wait:
                await until_serving(channel, service.proto_name)
            yield Served(target, stub(channel), channel, started, service)


def plain_settings(**settings: Any) -> ServiceSettings:
    """What all services have in common, with its defaults."""
    return ServiceSettings(**settings)


async def health_of(channel: grpc.aio.Channel, name: str = "") -> int:
    """The health status that a server tells of a service."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    return int(reply.status)


async def until_serving(channel: grpc.aio.Channel, name: str = "") -> None:
    """Wait until a service says SERVING.

    Raises:
        TimeoutError: when it does not within 30 seconds.
    """
    async with asyncio.timeout(30):
        while await health_of(channel, name) != health_pb2.HealthCheckResponse.SERVING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _built(
    build: Callable[[], Awaitable[rpc_server.Service]], settings: ServiceSettings, stub: Any, *, wait: bool = True
) -> AsyncIterator[Served]:
    async with serving(await build(), settings, stub, wait=wait) as served:
        yield served


def _provider(model: ModelServer | None, settings: dict[str, Any]) -> dict[str, Any]:
    if model is None:
        return {**_FREE_PORTS, "chosen_provider": "offline", **settings}
    reach = {"chosen_provider": "openai", "base_url": model.base_url, "max_attempts": 1, "timeout_seconds": 5.0}
    return {**_FREE_PORTS, **reach, **settings}


# --- what a call came to ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call with its details unpacked. `violations` maps the paths of BadRequest to what must hold."""

    code: grpc.StatusCode
    message: str
    reason: str
    domain: str
    metadata: dict[str, str]
    violations: dict[str, str]
    retry_after: float | None
    resource: tuple[str, str] | None
    trailers: dict[str, str]
    received: tuple[Any, ...]


async def failure_of(call: Any) -> Failure:
    """Read a call to its end, which must be a failure. `received` holds the messages that came before."""
    received: list[Any] = []
    try:
        if hasattr(call, "__aiter__"):
            async for message in call:
                received.append(message)
        else:
            received.append(await call)
    except grpc.aio.AioRpcError as error:
        return read_failure(error, received)
    raise AssertionError(f"the call succeeded with {received!r}"[:2000])


def read_failure(error: grpc.aio.AioRpcError, received: Sequence[Any] = ()) -> Failure:
    """Unpack the details of a failed call."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError has all that is read of a Call
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry: error_details_pb2.RetryInfo | None = None
    resource: error_details_pb2.ResourceInfo | None = None
    for packed in status.details if status is not None else ():
        if packed.Is(info.DESCRIPTOR):
            packed.Unpack(info)
        elif packed.Is(bad.DESCRIPTOR):
            packed.Unpack(bad)
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            packed.Unpack(retry)
        elif packed.Is(error_details_pb2.ResourceInfo.DESCRIPTOR):
            resource = error_details_pb2.ResourceInfo()
            packed.Unpack(resource)
    return Failure(
        code=error.code(),
        message=error.details() or "",
        reason=info.reason,
        domain=info.domain,
        metadata=dict(info.metadata),
        violations={item.field: item.description for item in bad.field_violations},
        retry_after=None if retry is None else retry.retry_delay.ToNanoseconds() / 1e9,
        resource=None if resource is None else (resource.resource_type, resource.resource_name),
        trailers={key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)},
        received=tuple(received),
    )


async def collected(call: Any) -> list[Any]:
    """Every message of a stream that ends well."""
    return [message async for message in call]


# --- an orchestrator over scripted services ---------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def fakes(below: Below) -> AsyncIterator[dict[str, str]]:
    """The addresses of the scripted services, which serve inside the block."""
    async with contextlib.AsyncExitStack() as stack:
        targets: dict[str, str] = {}
        for name, register, servicer in (
            ("retriever", retriever_grpc.add_RetrieverServiceServicer_to_server, below.retriever),
            ("judge", judge_grpc.add_JudgeServiceServicer_to_server, below.judge),
            ("generator", generator_grpc.add_GeneratorServiceServicer_to_server, below.generator),
        ):
            targets[name] = await stack.enter_async_context(fake(name, register, servicer))
        yield targets


@contextlib.asynccontextmanager
async def scripted(below: Below, **settings: Any) -> AsyncIterator[Served]:
    """A real orchestrator over scripted services, everything on the wire. `settings` may give a target of its own."""
    async with fakes(below) as targets:
        own = {name: settings.pop(name, target) for name, target in targets.items()}
        async with orchestrator(**own, **settings) as served:
            yield served


@contextlib.asynccontextmanager
async def fake(name: str, register: Any, servicer: Any) -> AsyncIterator[str]:
    """The address of one scripted service, which serves inside the block."""
    service = rpc_server.Service(
        name=name,
        port=0,
        metrics_port=0,
        proto_name=f"errata.{name}.v1.{name.capitalize()}Service",
        register=lambda server: register(servicer, server),
        metrics=Metrics(),
    )
    async with rpc_server.running(service, plain_settings()) as started:
        yield f"127.0.0.1:{started.port}"
