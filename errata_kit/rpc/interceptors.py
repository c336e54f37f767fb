"""The one interceptor that every call of every service meets: reading, context, the gate, metrics, log line, errors."""

import asyncio
import contextlib
import inspect
import re
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError
from prometheus_client import Counter

from errata_kit.bounds import invalid
from errata_kit.calls import CallBudget, enter_call
from errata_kit.errors import ErrataError, InvalidFields
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from errata_kit.rpc.context import Context, Handler
from errata_kit.rpc.gate import Gate
from errata_kit.rpc.status import STATUS_OF_REASON, from_rpc_error, to_status, trailers
from errata_kit.tracing import current_span, server_span, trace_id_of

RUN_ID_KEY: Final = "errata-run-id"
TRACE_KEY: Final = "traceparent"
COST_KEY: Final = "errata-budget-cost-micros"
TOKENS_KEY: Final = "errata-budget-tokens"
# Whoever watches a service must get through, however busy it is.
_HEALTH: Final = "/grpc.health."
_REFLECTION: Final = "/grpc.reflection."
_NO_MESSAGE: Final = "is not a message of this method, or nests too deep, or holds text that is not UTF-8"

_RUN_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

_log = get_logger("errata.rpc")
_Behaviour = Callable[..., Any]


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Wraps each handler. An ErrataError becomes its status; anything unforeseen becomes INTERNAL without its text."""

    def __init__(self, metrics: Metrics, gate: Gate) -> None:
        self._metrics = metrics
        self._gate = gate

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the method's handler, wrapped."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        # grpcio itself answers bytes that are no message with UNKNOWN and the text of its exception: so it hands us the bytes.
        coders = {"request_deserializer": None, "response_serializer": handler.response_serializer}
        kind = _kind(handler)
        if not method.startswith((_HEALTH, _REFLECTION)) and (refusal := self._gate.refusal(method)) is not None:
            # Before the request is read: under load each turn of the event loop that a refusal waits for costs milliseconds.
            return grpc.stream_stream_rpc_method_handler(self._refusing(method, kind, refusal), **coders)
        read = _reader(handler, self._counting(self._metrics.received, method, kind))
        if handler.unary_unary is not None:
            unary = self._unary(method, kind, handler.unary_unary, read)
            return grpc.unary_unary_rpc_method_handler(unary, **coders)
        if handler.unary_stream is not None:
            stream = self._stream(method, kind, handler.unary_stream, read)
            return grpc.unary_stream_rpc_method_handler(stream, **coders)
        if handler.stream_unary is not None:
            unary = self._unary(method, kind, handler.stream_unary, read)
            return grpc.stream_unary_rpc_method_handler(unary, **coders)
        stream = self._stream(method, kind, handler.stream_stream, read)
        return grpc.stream_stream_rpc_method_handler(stream, **coders)

    def _unary(self, method: str, kind: str, behaviour: _Behaviour, read: Callable[[Any], Any]) -> _Behaviour:
        sent = self._counting(self._metrics.sent, method, kind)

        async def handle(request: Any, context: Context) -> Any:
            async with self._around(method, kind, context):
                call = behaviour(read(request), context)
                # What the caller has sent is not to be held by this frame as well.
                del request
                reply = await call
                sent()
                return reply

        return handle

    def _stream(self, method: str, kind: str, behaviour: Any, read: Callable[[Any], Any]) -> _Behaviour:
        if inspect.iscoroutinefunction(behaviour):
            # It writes to the context instead of yielding, as Watch of the health service does.
            return self._unary(method, kind, behaviour, read)

        sent = self._counting(self._metrics.sent, method, kind)

        async def handle(request: Any, context: Context) -> AsyncIterator[Any]:
            async with self._around(method, kind, context):
                call = behaviour(read(request), context)
                del request
                if kind == "bidi_stream":
                    # Who sends a lot can wait for it: a client of grpcio that is refused in the middle of a large message
                    # is told INTERNAL and not why.
                    await context.send_initial_metadata(())
                async with contextlib.aclosing(call) as replies:
                    async for reply in replies:
                        sent()
                        yield reply

        return handle

    def _refusing(self, method: str, kind: str, refusal: ErrataError) -> _Behaviour:
        async def handle(requests: Any, context: Context) -> AsyncIterator[Any]:
            async with self._observed(method, kind, context, refusal):
                yield

        return handle

    def _counting(self, messages: Counter, method: str, kind: str) -> Callable[[], None]:
        return _count_nothing if method.startswith((_HEALTH, _REFLECTION)) else messages.labels(*_labels(method, kind)).inc

    def _around(self, method: str, kind: str, context: Context) -> contextlib.AbstractAsyncContextManager[None]:
        if method.startswith((_HEALTH, _REFLECTION)):
            return self._told(method, context)
        return self._observed(method, kind, context)

    @contextlib.asynccontextmanager
    async def _told(self, method: str, context: Context) -> AsyncIterator[None]:
        """Health and reflection: no admission, no metrics, no log line."""
        try:
            if method.startswith(_REFLECTION):
                await self._gate.explored(_metadata(context))
            yield
        except ErrataError as error:
            await _abort(context, error)

    @contextlib.asynccontextmanager
    async def _observed(
        self, method: str, kind: str, context: Context, refusal: ErrataError | None = None
    ) -> AsyncIterator[None]:
        labels = _labels(method, kind)
        started = time.monotonic()
        code = "OK"
        metadata = _metadata(context)
        self._metrics.started.labels(*labels).inc()
        with server_span(method, metadata, _run_id(metadata)) as span:
            try:
                if refusal is not None:
                    raise refusal
                async with self._entered(method, metadata, context):
                    yield
            except (asyncio.CancelledError, GeneratorExit):
                remaining = context.time_remaining()
                code = "DEADLINE_EXCEEDED" if remaining is not None and remaining <= 0 else "CANCELLED"
                raise
            except grpc.aio.AbortError:
                code = "ABORTED"
                raise
            except Exception as error:
                if type(error).__name__ == "ExecuteBatchError":
                    # What grpcio raises when the client has gone; its class is private.
                    code = "CANCELLED"
                    raise
                known = _known(error, method)
                code = STATUS_OF_REASON[known.why].name
                await _abort(context, known)
            finally:
                elapsed = time.monotonic() - started
                span.ended_with(code)
                self._metrics.handled.labels(*labels, code).inc()
                self._metrics.handling.labels(*labels).observe(elapsed)
                _log.info("call", method=method, code=code, seconds=round(elapsed, 4))

    @contextlib.asynccontextmanager
    async def _entered(self, method: str, metadata: Mapping[str, str], context: Context) -> AsyncIterator[None]:
        """Through the gate, and then in the context of the call."""
        with self._gate.counted(method):
            # Entered before we know who calls, so that a refusal has its trace, too.
            run_id, named, budget = _identifiers(metadata)
            # With tracing on, the log's lines bear the id of the exported spans. Without any, one is made up here.
            trace_id = enter_call(run_id, current_span().trace_id or named, context.time_remaining()).trace_id
            principal = await self._gate.identified(method, metadata)
            enter_call(run_id, trace_id, context.time_remaining(), budget, principal)
            with self._gate.admitted(method, principal):
                yield


def _metadata(context: Context) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _run_id(metadata: Mapping[str, str]) -> str:
    # It stands in every line of the log, where no other text of a caller belongs.
    given = metadata.get(RUN_ID_KEY, "")
    return given if _RUN_ID.fullmatch(given) else ""


def _identifiers(metadata: Mapping[str, str]) -> tuple[str, str, CallBudget | None]:
    cost, tokens = _bound(metadata.get(COST_KEY)), _bound(metadata.get(TOKENS_KEY))
    budget = None if cost is None and tokens is None else CallBudget(cost, tokens)
    return _run_id(metadata), trace_id_of(metadata.get(TRACE_KEY, "")), budget


def _bound(text: str | None) -> int | None:
    # What is no number bounds nothing: only our own services send it.
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 18 else None


def _known(error: Exception, method: str) -> ErrataError:
    """The error as one of ours; what is unforeseen is logged."""
    if isinstance(error, grpc.aio.AioRpcError):
        error = from_rpc_error(error, "service behind this one")
    if not isinstance(error, ErrataError):
        _log.exception("call_failed", method=method)
        return ErrataError()
    if not isinstance(error, InvalidFields) and error.detail:
        cause = error.metadata.get("cause", "")
        _log.warning("call_error", method=method, reason=error.why.value, cause=cause, detail=error.for_log())
        _log.debug("call_error_detail", method=method, detail=error.for_log(debug=True))
    return error


async def _abort(context: Context, error: ErrataError) -> None:
    from grpc_status import rpc_status

    status: Any = rpc_status.to_status(to_status(error))
    # Their variables hold the request, and grpcio's end of a call is a circle: megabytes would stay until the collector comes.
    traceback.clear_frames(error.__traceback__)
    # abort_with_status would put the status' own trailers in place of ours, and the pushback would never be sent.
    await context.abort(status.code, status.details, (*status.trailing_metadata, *trailers(error)))


def _count_nothing() -> None:
    return None


def _kind(handler: Handler) -> str:
    asked, replied = handler.request_streaming, handler.response_streaming
    if asked:
        return "bidi_stream" if replied else "client_stream"
    return "server_stream" if replied else "unary"


def _labels(method: str, kind: str) -> tuple[str, str, str]:
    _, service, name = method.split("/")
    return kind, service, name


def _reader(handler: Handler, received: Callable[[], None]) -> Callable[[Any], Any]:
    """What makes the messages of a call from its bytes. Raises InvalidFields; in a stream, when the message's turn comes."""
    parse: Callable[[bytes], Any] | None = handler.request_deserializer

    def message(encoded: bytes) -> Any:
        received()
        if parse is None:
            return encoded
        try:
            return parse(encoded)
        except DecodeError:
            raise invalid("request", _NO_MESSAGE) from None

    async def messages(stream: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for encoded in stream:
            yield message(encoded)

    return messages if handler.request_streaming else message
