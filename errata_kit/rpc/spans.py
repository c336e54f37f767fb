"""Client spans: what a channel does when spans are exported. Without tracing a channel has none of these."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc

from errata_kit.tracing import Span, client_span, is_tracing

# The client's own checks of its connections belong to no call.
_UNTRACED: Final = "/grpc."

_Continuation = Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]]


def client_interceptors() -> Sequence[grpc.aio.ClientInterceptor]:
    """What a channel needs so that each of its calls has a span, and names it to the service. Empty without tracing."""
    return (_UnarySpans(), _StreamSpans()) if is_tracing() else ()


class _UnarySpans(grpc.aio.UnaryUnaryClientInterceptor):
    async def intercept_unary_unary(
        self, continuation: _Continuation, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        """Open a span, and end it with the call."""
        return await _traced(continuation, client_call_details, request)


class _StreamSpans(grpc.aio.UnaryStreamClientInterceptor):
    async def intercept_unary_stream(
        self, continuation: _Continuation, client_call_details: grpc.aio.ClientCallDetails, request: Any
    ) -> Any:
        """Open a span, and end it with the stream."""
        return await _traced(continuation, client_call_details, request)


async def _traced(continuation: _Continuation, details: grpc.aio.ClientCallDetails, request: Any) -> Any:
    method = details.method.decode() if isinstance(details.method, bytes) else str(details.method)
    if method.startswith(_UNTRACED):
        return await continuation(details, request)
    span = client_span(method)
    try:
        call = await continuation(_named(details, span), request)
    except BaseException:
        span.ended_with("CANCELLED")
        span.end()
        raise
    call.add_done_callback(_Ending(span))
    return call


def _named(details: grpc.aio.ClientCallDetails, span: Span) -> grpc.aio.ClientCallDetails:
    """The call's details with the span's headers in place of what was said about its trace."""
    headers = span.headers()
    kept = [(key, value) for key, value in details.metadata or () if key not in headers]
    return grpc.aio.ClientCallDetails(
        details.method,
        details.timeout,
        grpc.aio.Metadata(*kept, *headers.items()),
        details.credentials,
        details.wait_for_ready,
    )


class _Ending:
    """Ends a span when its call is done. A call tells its status to coroutines only, so a task asks for it."""

    __slots__ = ("_span", "_task")

    def __init__(self, span: Span) -> None:
        self._span = span
        self._task: asyncio.Task[None] | None = None

    def __call__(self, call: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(self._end(call))

    async def _end(self, call: Any) -> None:
        try:
            self._span.ended_with((await call.code()).name)
        finally:
            self._span.end()
