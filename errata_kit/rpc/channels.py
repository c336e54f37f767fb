"""Channels between the services: retries, round robin and health checks live here and nowhere else."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final

import grpc
import grpc_health.v1.health_pb2  # noqa: F401 - client-side health checks need its descriptor in the pool

from errata_kit.access.authenticator import IDENTITY_KEY
from errata_kit.access.identity import IdentitySigner
from errata_kit.calls import current_call
from errata_kit.rpc.interceptors import COST_KEY, RUN_ID_KEY, TOKENS_KEY, TRACE_KEY
from errata_kit.rpc.limits import MESSAGE_BYTES
from errata_kit.rpc.reloading import ReloadingChannel
from errata_kit.rpc.spans import client_interceptors
from errata_kit.rpc.tls import TlsFiles

_SERVICE_CONFIG: Final = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
    "methodConfig": [
        {
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 4,
                "initialBackoff": "0.1s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ],
}

_LET_IN_SECONDS: Final = 5.0


def open_channel(
    target: str, tls: TlsFiles | None = None, interceptors: Sequence[grpc.aio.ClientInterceptor] = ()
) -> grpc.aio.Channel:
    """A channel to a service of the suite. tls: without, the connection is neither encrypted nor authenticated.

    target: host:port, or a name that resolves to several replicas such as dns:///judge:50053 or ipv4:10.0.0.1:1,10.0.0.2:1.
    Replicas take turns, those that are NOT_SERVING are skipped, and a call that gets UNAVAILABLE before its first message
    is tried again, at most four times in all. Call it inside a running event loop.
    Raises StartFailed for files that are no good.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", json.dumps(_SERVICE_CONFIG)),
        ("grpc.max_receive_message_length", MESSAGE_BYTES),
        ("grpc.max_send_message_length", MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.ping_timeout_ms", 10_000),
        # A restarted neighbour must be found within a second, not after the default backoff of up to two minutes.
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1_000),
    ]
    if tls is not None:
        return ReloadingChannel(target, tls, options, [*interceptors, *client_interceptors()])
    return grpc.aio.insecure_channel(target, options=options, interceptors=[*interceptors, *client_interceptors()])


def outgoing(signer: IdentitySigner | None = None) -> dict[str, Any]:
    """Keyword arguments of an outgoing call: what is left of deadline and budget, which run it belongs to, on whose behalf.

    signer: signs on whose behalf; without it, nobody is named.
    """
    call = current_call()
    metadata: list[tuple[str, str]] = []
    if signer is not None:
        metadata.append((IDENTITY_KEY, signer.sign(call.principal)))
    if call.run_id:
        metadata.append((RUN_ID_KEY, call.run_id))
    if call.trace_id:
        metadata.append((TRACE_KEY, f"00-{call.trace_id}-{call.trace_id[:16]}-01"))
    if call.budget is not None:
        for key, left in ((COST_KEY, call.budget.cost_micros), (TOKENS_KEY, call.budget.tokens)):
            if left is not None:
                metadata.append((key, str(max(0, left))))
    return {"timeout": call.remaining(), "metadata": tuple(metadata)}


def sending(method: Callable[..., Any], requests: AsyncIterator[Any], **reach: Any) -> Any:
    """Call a method that takes a stream of requests, and begin to send once the server has let the call in.

    A call that is refused while it sends a large message ends as INTERNAL in grpcio's client, whatever the server has said.
    reach: timeout, metadata and so on. Returns the call.
    """
    let_in = asyncio.Event()

    async def held() -> AsyncIterator[Any]:
        with contextlib.suppress(TimeoutError):
            # A server that says nothing before it has something to reply is not waited for.
            async with asyncio.timeout(_LET_IN_SECONDS):
                await let_in.wait()
        async for request in requests:
            yield request

    call = method(held(), **reach)
    waiting = asyncio.create_task(_until_let_in(call, let_in))
    call.add_done_callback(lambda _: waiting.cancel())
    return call


async def _until_let_in(call: Any, let_in: asyncio.Event) -> None:
    with contextlib.suppress(grpc.aio.AioRpcError):
        await call.initial_metadata()
    let_in.set()


@contextlib.asynccontextmanager
async def reading(call: Any) -> AsyncIterator[Any]:
    """Read a response stream inside the block, and cancel the call on the way out: leaving its loop alone does not."""
    try:
        yield call
    finally:
        call.cancel()
