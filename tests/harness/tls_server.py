"""A server with TLS that says who calls it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc

from errata_kit.rpc.tls import TlsFiles, server_credentials


@dataclass(slots=True)
class Served:
    """A server: when the certificates that it loaded expire, who called, and how often it says UNAVAILABLE first."""

    port: int
    checks: health.aio.HealthServicer
    expiries: list[float]
    peers: list[str]
    unavailable: int = 0


@contextlib.asynccontextmanager
async def serving(files: TlsFiles, require_client: bool = True) -> AsyncIterator[Served]:
    """Serve health checks and tls.Test inside the block."""
    served = Served(0, health.aio.HealthServicer(), [], [])
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tls.Test", _handlers(served)),))
    health_pb2_grpc.add_HealthServicer_to_server(served.checks, server)
    served.port = server.add_secure_port("127.0.0.1:0", server_credentials(files, require_client, served.expiries.append))
    await server.start()
    try:
        yield served
    finally:
        await server.stop(0)


def _handlers(served: Served) -> dict[str, Any]:
    def caller(context: Any) -> bytes:
        served.peers.append(context.peer())
        names = context.auth_context().get("x509_common_name", [b"nobody"])
        return f"{names[0].decode()} {context.peer().rpartition(':')[2]}".encode()

    async def who(request: bytes, context: Any) -> bytes:
        if served.unavailable:
            served.unavailable -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE)
        await asyncio.sleep(float(request))
        return caller(context)

    async def ticks(request: bytes, context: Any) -> AsyncIterator[bytes]:
        for _ in range(int(request)):
            yield caller(context)
            await asyncio.sleep(0.01)

    async def echo(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    async def joined(requests: AsyncIterator[bytes], context: Any) -> bytes:
        return b"".join([request async for request in requests])

    return {
        "Who": grpc.unary_unary_rpc_method_handler(who),
        "Ticks": grpc.unary_stream_rpc_method_handler(ticks),
        "Echo": grpc.stream_stream_rpc_method_handler(echo),
        "Joined": grpc.stream_unary_rpc_method_handler(joined),
    }


async def who(channel: grpc.aio.Channel, seconds: float = 0) -> tuple[str, str]:
    """The common name and the port with which the server sees the caller; it answers after so many seconds."""
    method: Any = channel.unary_unary("/tls.Test/Who")
    answer: bytes = await method(str(seconds).encode(), timeout=10)
    name, _, port = answer.decode().partition(" ")
    return name, port


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds, ten seconds at most."""
    async with asyncio.timeout(10):
        while not await holds():  # noqa: ASYNC110 - what it waits for happens inside gRPC
            await asyncio.sleep(0.02)


async def until_known_as(channel: grpc.aio.Channel, name: str) -> None:
    """Wait until the server sees the caller under this common name."""

    async def known() -> bool:
        return (await who(channel))[0] == name

    await until(known)


class HeldBack(grpc.aio.UnaryUnaryClientInterceptor):
    """Lets a call begin only when told."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.go.set()

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """Wait for the event."""
        await self.go.wait()
        return await continuation(client_call_details, request)
