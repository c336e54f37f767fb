"""The one interceptor that every call of every service passes: context, admission, metrics, log line, errors."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import grpc

from errata_kit.calls import CallBudget, enter_call
from errata_kit.errors import Draining, ErrataError, InvalidFields, Overloaded
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from errata_kit.rpc.context import Context, Handler
from errata_kit.rpc.status import STATUS_OF_REASON, from_rpc_error, to_status, trailers

RUN_ID_KEY: Final = "errata-run-id"
TRACE_KEY: Final = "traceparent"
COST_KEY: Final = "errata-budget-cost-micros"
TOKENS_KEY: Final = "errata-budget-tokens"
# Whoever watches or explores a service must get through, however busy it is.
_ALWAYS_ADMITTED: Final = ("/grpc.health.", "/grpc.reflection.")
_RETRY_AFTER_SECONDS: Final = 1.0

_log = get_logger("errata.rpc")


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps each handler. An ErrataError becomes its status; anything unforeseen becomes INTERNAL without its text."""

    def __init__(self, metrics: Metrics, max_concurrent_calls: int) -> None:
        self._metrics = metrics
        self._limit = max_concurrent_calls
        self._in_flight = 0
        self.draining = False

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, wrapped."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith(_ALWAYS_ADMITTED):
            return handler
        coders = {
            "request_deserializer": handler.request_deserializer,
            "response_serializer": handler.response_serializer,
        }
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(method, "unary", handler.unary_unary), **coders)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(self._stream(method, "server_stream", handler.unary_stream), **coders)
        if handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._unary(method, "client_stream", handler.stream_unary), **coders)
        return grpc.stream_stream_rpc_method_handler(self._stream(method, "bidi_stream", handler.stream_stream), **coders)

    def _unary(self, method: str, kind: str, behaviour: Any) -> Any:
        async def handle(request: Any, context: Context) -> Any:
            async with self._observed(method, kind, context):
                return await behaviour(request, context)

        return handle

    def _stream(self, method: str, kind: str, behaviour: Any) -> Any:
        async def handle(request: Any, context: Context) -> AsyncIterator[Any]:
            async with (
                self._observed(method, kind, context),
                contextlib.aclosing(behaviour(request, context)) as replies,
            ):
                async for reply in replies:
                    yield reply

        return handle

    @contextlib.asynccontextmanager
    async def _observed(self, method: str, kind: str, context: Context) -> AsyncIterator[None]:
        _, service, name = method.split("/")
        labels = (kind, service, name)
        started = time.monotonic()
        code = "OK"
        self._metrics.started.labels(*labels).inc()
        self._in_flight += 1
        self._metrics.in_flight.set(self._in_flight)
        _enter(context)
        try:
            self._admit()
            yield
        except (asyncio.CancelledError, GeneratorExit):
            remaining = context.time_remaining()
            code = "DEADLINE_EXCEEDED" if remaining is not None and remaining <= 0 else "CANCELLED"
            raise
        except grpc.aio.AbortError:
            code = "ABORTED"
            raise
        except Exception as error:
            known = _known(error)
            if known is None:
                _log.exception("call_failed", method=method)
                known = ErrataError()
            code = STATUS_OF_REASON[known.why].name
            if not isinstance(known, InvalidFields) and known.detail:
                _log.warning("call_error", method=method, reason=known.why.value, detail=known.detail[:2000])
            status = _rpc_status(known)
            # abort_with_status would put the status' own trailers in place of ours, and the pushback would never be sent.
            await context.abort(status.code, status.details, (*status.trailing_metadata, *trailers(known)))
        finally:
            self._in_flight -= 1
            self._metrics.in_flight.set(self._in_flight)
            elapsed = time.monotonic() - started
            self._metrics.handled.labels(*labels, code).inc()
            self._metrics.handling.labels(*labels).observe(elapsed)
            _log.info("call", method=method, code=code, seconds=round(elapsed, 4))

    def _admit(self) -> None:
        if self.draining:
            raise Draining("The service is shutting down", retry_after=_RETRY_AFTER_SECONDS)
        if self._in_flight > self._limit:
            raise Overloaded("The service has more calls than it takes", retry_after=_RETRY_AFTER_SECONDS)


def _enter(context: Context) -> None:
    metadata = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    # A traceparent is version-traceid-spanid-flags (W3C Trace Context).
    parts = metadata.get(TRACE_KEY, "").split("-")
    trace_id = parts[1] if len(parts) == 4 and len(parts[1]) == 32 else ""
    cost, tokens = _bound(metadata.get(COST_KEY)), _bound(metadata.get(TOKENS_KEY))
    budget = None if cost is None and tokens is None else CallBudget(cost, tokens)
    enter_call(metadata.get(RUN_ID_KEY, "")[:64], trace_id, context.time_remaining(), budget)


def _bound(text: str | None) -> int | None:
    # What is no number bounds nothing: only our own services send it.
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


def _known(error: Exception) -> ErrataError | None:
    if isinstance(error, ErrataError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return from_rpc_error(error, "service behind this one")
    return None


def _rpc_status(error: ErrataError) -> Any:
    from grpc_status import rpc_status

    return rpc_status.to_status(to_status(error))
