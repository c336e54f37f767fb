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

from errata_kit.access.authenticator import Authenticator, open_authenticator
from errata_kit.access.settings import ClientAuth, HealthAccess, ReflectionAccess
from errata_kit.calls import stop_task
from errata_kit.errors import ErrataError, IndexUnavailable, StartFailed
from errata_kit.logs import configure_logs, get_logger
from errata_kit.metrics import Metrics, serving_metrics
from errata_kit.rpc.gate import Entering, Full, Gate, anybody_enters, never_full
from errata_kit.rpc.interceptors import CallInterceptor
from errata_kit.rpc.limits import MESSAGE_BYTES
from errata_kit.rpc.tls import server_credentials, tls_files
from errata_kit.settings import ServiceSettings
from errata_kit.tracing import tracing

_log = get_logger("errata.server")
_PARENT_CHECK_SECONDS: Final = 1.0
_LEFTOVER_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = 1.0
_LAST_WORDS_SECONDS: Final = 1.0
_REFLECTION_V1: Final = "grpc.reflection.v1.ServerReflection"
LIVENESS: Final = "liveness"
"""Name in the health service that says SERVING from the start of a process to its end: it depends on nothing."""
_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


async def _nothing() -> None:
    return None


class PortTaken(StartFailed):
    """Another process listens on the port."""


@dataclass(frozen=True, slots=True)
class Service:
    """What a service gives to serve().

    ready() returns once every dependency has answered; drain() ends what runs; entering is the service's own condition on who
    is let in, beside those of the settings. takes_identities: whether the orchestrator may call it in somebody's name.
    full: says, before the caller is known, that there is no room for anybody.
    """

    name: str
    port: int
    metrics_port: int
    proto_name: str
    register: Callable[[grpc.aio.Server], None]
    metrics: Metrics
    ready: Callable[[], Awaitable[None]] = field(default=_nothing)
    drain: Callable[[float], Awaitable[None]] | None = None
    close: Callable[[], Awaitable[None]] = field(default=_nothing)
    entering: Entering = anybody_enters
    takes_identities: bool = True
    full: Full = never_full

    @property
    def health_names(self) -> tuple[str, str]:
        """Names under which readiness is told."""
        return "", self.proto_name


@dataclass(slots=True)
class RunningServer:
    """A started server: its ports, and how to shut it down. health_port is None without a port of its own for health."""

    port: int
    metrics_port: int
    health_port: int | None
    server: grpc.aio.Server
    gate: Gate
    health: health.aio.HealthServicer
    announced: asyncio.Task[None]


def run_service(build: Callable[[], Awaitable[Service]], name: str, settings: ServiceSettings) -> None:
    """Run a service until SIGTERM or SIGINT. What stops the start is one sentence and exit code 1."""
    configure_logs(name, settings.log_level, settings.log_format)

    async def main() -> None:
        await serve(await build(), settings)

    try:
        # Flushed when the loop has ended, so that the spans of what was drained are among them.
        with tracing(name), asyncio.Runner(loop_factory=_loop) as runner:
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
        ports = {"port": started.port, "metrics_port": started.metrics_port, "health_port": started.health_port}
        _log.info("listening", host=settings.host, auth=settings.auth.value, tls=settings.tls_cert_file is not None, **ports)
        orphaned = asyncio.create_task(_orphaned(stop, settings.exit_with_parent)) if settings.exit_with_parent else None
        await _until_stopped(stop, started.announced)
        if orphaned is not None:
            await stop_task(orphaned)
        _log.info("draining", grace_seconds=settings.drain_grace_seconds)
        await stop_task(started.announced)
        for name in service.health_names:
            # Not all of them: what lives must not be taken for dead while it finishes its work.
            await started.health.set(name, _NOT_SERVING)
        await asyncio.sleep(settings.drain_pause_seconds)
        started.gate.draining = True
        ends = asyncio.get_running_loop().time() + settings.drain_grace_seconds
        if service.drain is not None:
            await service.drain(settings.drain_grace_seconds)
        # What the drain has ended still has its last words to say, whatever time it took.
        await started.server.stop(max(_LAST_WORDS_SECONDS, ends - asyncio.get_running_loop().time()))
    # Handlers of streams that the stop has cancelled, such as health watches, end a little later. Cut off by the end of the
    # loop, grpcio prints a traceback for each.
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=_LEFTOVER_SECONDS)
    _log.info("stopped")


@contextlib.asynccontextmanager
async def running(service: Service, settings: ServiceSettings) -> AsyncIterator[RunningServer]:
    """Start a service inside the block. Port 0 takes a free one. Healthy once service.ready() has returned.

    Raises StartFailed: a port is taken, or a file of keys or certificates is no good.
    """
    try:
        async with contextlib.AsyncExitStack() as stack:
            authenticator = open_authenticator(settings, takes_identities=service.takes_identities)
            stack.push_async_callback(authenticator.aclose)
            gate = Gate(settings, service.metrics, authenticator, service.entering, service.full)
            server = grpc.aio.server(interceptors=[CallInterceptor(service.metrics, gate)], options=_options(settings))
            service.register(server)
            checks = await _health(service, server, settings)
            if settings.reflection_access is not ReflectionAccess.CLOSED:
                _add_reflection(server, (service.proto_name, health.SERVICE_NAME))
            port = _bind(server, service, settings)
            service.metrics.announce(service.name)
            metrics_port = stack.enter_context(_metrics(service, settings))
            health_port = await stack.enter_async_context(_health_port(checks, service, settings))
            await server.start()
            stack.push_async_callback(server.stop, 0)
            announce = asyncio.create_task(_announce(service, authenticator, checks))
            stack.push_async_callback(stop_task, announce)
            yield RunningServer(port, metrics_port, health_port, server, gate, checks, announce)
    finally:
        await service.close()


async def _health(service: Service, server: grpc.aio.Server, settings: ServiceSettings) -> health.aio.HealthServicer:
    checks = health.aio.HealthServicer()
    # A fresh servicer says SERVING for the server as a whole.
    for name in service.health_names:
        await checks.set(name, _NOT_SERVING)
    await checks.set(LIVENESS, _SERVING)
    if settings.health_access is HealthAccess.OPEN:
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    return checks


@contextlib.asynccontextmanager
async def _health_port(
    checks: health.aio.HealthServicer, service: Service, settings: ServiceSettings
) -> AsyncIterator[int | None]:
    """A server for health alone inside the block, without TLS: the probes of Kubernetes know none."""
    if settings.health_port is None:
        yield None
        return
    server = grpc.aio.server(options=_options(settings))
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    port = _listening(f"{settings.host}:{settings.health_port}", service.name, server.add_insecure_port)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(0)


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


async def _announce(service: Service, authenticator: Authenticator, checks: health.aio.HealthServicer) -> None:
    await asyncio.gather(service.ready(), _until_ready(authenticator))
    for name in service.health_names:
        await checks.set(name, _SERVING)
    # What was loaded so far stays for good: the collector need not walk it again in the middle of a call.
    gc.collect()
    gc.freeze()
    _log.info("serving")


async def _until_ready(authenticator: Authenticator) -> None:
    while True:
        try:
            return await authenticator.ready()
        except ErrataError as error:
            _log.warning("authentication_not_ready", error=error.message, detail=error.detail[:500])
            await asyncio.sleep(_AGAIN_SECONDS)


def _bind(server: grpc.aio.Server, service: Service, settings: ServiceSettings) -> int:
    address = f"{settings.host}:{service.port}"
    files = tls_files(settings)
    if files is None or files.cert is None:
        return _listening(address, service.name, server.add_insecure_port)
    expiry = service.metrics.certificate_expiry
    credentials = server_credentials(files, settings.tls_client_auth is ClientAuth.REQUIRE, expiry.set)
    return _listening(address, service.name, lambda at: server.add_secure_port(at, credentials))


def _listening(address: str, name: str, add_port: Callable[[str], int]) -> int:
    try:
        port = add_port(address)
    except RuntimeError:
        port = 0
    if port == 0:
        raise PortTaken(f"The {name} can't listen on {address}: the port is taken or the address is not ours")
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
        # For each connection; a client that wants more at once waits with them on its side.
        ("grpc.max_concurrent_streams", max(100, settings.max_concurrent_calls)),
        ("grpc.max_connection_age_ms", int(settings.max_connection_age_seconds * 1000)),
        ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
    ]
