"""serve(): the bootstrap that every service shares."""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pool
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2

from errata_kit.calls import stop_task
from errata_kit.errors import IndexUnavailable, StartFailed
from errata_kit.logs import configure_logs, get_logger
from errata_kit.metrics import Metrics, serving_metrics
from errata_kit.rpc.interceptors import CallInterceptor
from errata_kit.rpc.limits import MESSAGE_BYTES
from errata_kit.settings import ServiceSettings

_log = get_logger("errata.server")
_PARENT_CHECK_SECONDS: Final = 1.0
_LEFTOVER_SECONDS: Final = 2.0
_REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"


async def _nothing() -> None:
    return None


class PortTaken(StartFailed):
    """Another process listens on the port."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a service gives to serve(). ready() returns once every dependency has answered; drain() ends what runs."""

    name: str
    port: int
    metrics_port: int
    proto_name: str
    register: Callable[[grpc.aio.Server], None]
    metrics: Metrics
    ready: Callable[[], Awaitable[None]] = field(default=_nothing)
    drain: Callable[[float], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] = field(default=_nothing)


@dataclass(slots=True)
class RunningServer:
    """A started server: its ports, and how to shut it down."""

    port: int
    metrics_port: int
    server: grpc.aio.Server
    interceptor: CallInterceptor
    health: health.aio.HealthServicer
    announced: asyncio.Task[None]


def run_service(build: Callable[[], Awaitable[Service]], name: str, settings: ServiceSettings) -> None:
    """Run a service until SIGTERM or SIGINT. What stops the start is one sentence and exit code 1."""
    configure_logs(name, settings.log_level, settings.log_format)

    async def main() -> None:
        await serve(await build(), settings)

    try:
        with asyncio.Runner(loop_factory=_loop) as runner:
            runner.run(main())
    except (StartFailed, IndexUnavailable) as error:
        _log.error("start_failed", error=error.message)
        raise SystemExit(1) from None


def _loop() -> asyncio.AbstractEventLoop:
    # A fifth less CPU for calls and database traffic than asyncio's own loop. It does not exist for every system.
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def serve(service: Service, settings: ServiceSettings) -> None:
    """Serve until SIGTERM or SIGINT, then drain: NOT_SERVING, a pause, finish what runs within the grace, stop."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with running(service, settings) as started:
        _log.info("listening", host=settings.host, port=started.port, metrics_port=started.metrics_port)
        orphaned = asyncio.create_task(_orphaned(stop, settings.exit_with_parent)) if settings.exit_with_parent else None
        await _until_stopped(stop, started.announced)
        if orphaned is not None:
            await stop_task(orphaned)
        _log.info("draining", grace_seconds=settings.drain_grace_seconds)
        await started.health.enter_graceful_shutdown()
        await asyncio.sleep(settings.drain_pause_seconds)
        started.interceptor.draining = True
        if service.drain is not None:
            await service.drain(settings.drain_grace_seconds)
        await started.server.stop(settings.drain_grace_seconds)
    # Handlers of streams that the stop has cancelled, such as health watches, end a little later. Cut off by the end of the
    # loop, grpcio prints a traceback for each.
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
    _log.info("stopped")


@contextlib.asynccontextmanager
async def running(service: Service, settings: ServiceSettings) -> AsyncIterator[RunningServer]:
    """Start a service inside the block. Port 0 takes a free one. Healthy once service.ready() has returned."""
    interceptor = CallInterceptor(service.metrics, settings.max_concurrent_calls)
    server = grpc.aio.server(interceptors=[interceptor], options=_options(settings))
    service.register(server)
    checks = health.aio.HealthServicer()
    # A fresh servicer says SERVING for the server as a whole.
    for name in ("", service.proto_name):
        await checks.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    _add_reflection(server, (service.proto_name, health.SERVICE_NAME))
    try:
        with contextlib.ExitStack() as stack:
            port = _bind(server, service, settings)
            metrics_port = stack.enter_context(_metrics(service, settings))
            await server.start()
            announce = asyncio.create_task(_announce(service, checks))
            try:
                yield RunningServer(port, metrics_port, server, interceptor, checks, announce)
            finally:
                await stop_task(announce)
                await server.stop(0)
    finally:
        await service.close()


async def _until_stopped(stop: asyncio.Event, announced: asyncio.Task[None]) -> None:
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({stopped, announced}, return_when=asyncio.FIRST_COMPLETED)
        if announced.done() and (error := announced.exception()) is not None:
            raise StartFailed(f"The service can't become ready: {error}") from error
        await stopped
    finally:
        await stop_task(stopped)


async def _orphaned(stop: asyncio.Event, parent: int) -> None:
    while os.getppid() == parent:  # noqa: ASYNC110 - the kernel sends no event for it
        await asyncio.sleep(_PARENT_CHECK_SECONDS)
    stop.set()


async def _announce(service: Service, checks: health.aio.HealthServicer) -> None:
    await service.ready()
    for name in ("", service.proto_name):
        await checks.set(name, health_pb2.HealthCheckResponse.SERVING)
    # What was loaded so far stays for good: the collector need not walk it again in the middle of a call.
    gc.collect()
    gc.freeze()
    _log.info("serving")


def _bind(server: grpc.aio.Server, service: Service, settings: ServiceSettings) -> int:
    address = f"{settings.host}:{service.port}"
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise PortTaken(f"The {service.name} can't listen on {address}: the port is taken or the address is not ours")
    return port


@contextlib.contextmanager
def _metrics(service: Service, settings: ServiceSettings) -> Any:
    try:
        serving = serving_metrics(service.metrics, settings.host, service.metrics_port)
        port = serving.__enter__()
    except OSError:
        address = f"{settings.host}:{service.metrics_port}"
        raise PortTaken(f"The {service.name} can't serve metrics on {address}: the port is taken") from None
    try:
        yield port
    finally:
        serving.__exit__(None, None, None)


def _add_reflection(server: grpc.aio.Server, names: tuple[str, ...]) -> None:
    listed = (*names, reflection.SERVICE_NAME, _REFLECTION_V1)
    # It has the two methods of a pool that reflection calls.
    pool: Any = _MethodPool()
    reflection.enable_server_reflection(listed, server, pool=pool)
    # grpcio-reflection registers v1alpha only. Both versions have the same messages on the wire.
    servicer = reflection.aio.ReflectionServicer(service_names=listed, pool=pool)
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    methods = {"ServerReflectionInfo": handler}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_REFLECTION_V1, methods),))


class _MethodPool:
    """The generated code's descriptors. grpcio-reflection asks for a method's file by a name that the pool does not know."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 - the pool's own name
        """The file of a symbol; for a method, that of its service."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindFileContainingSymbol(symbol.rpartition(".")[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


def _options(settings: ServiceSettings) -> list[tuple[str, Any]]:
    return [
        # On by default: a second server would share the port silently.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
