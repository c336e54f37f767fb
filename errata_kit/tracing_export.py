"""The part of tracing that needs OpenTelemetry's SDK. Only tracing.py imports it, and only when spans are to be exported."""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from errata_kit.errors import StartFailed
from errata_kit.logs import get_logger
from errata_kit.tracing_settings import value

_KINDS: Final = {"internal": SpanKind.INTERNAL, "server": SpanKind.SERVER, "client": SpanKind.CLIENT}
_FLUSH_SECONDS: Final = 2.5
_CLOSE_SECONDS: Final = 0.5
_COMPLAINT_SECONDS: Final = 300.0
_NOWHERE: Final = Context()

_log = get_logger("errata.tracing")


class ComplainingSeldom(SpanExporter):
    """Exports with another exporter. Spans that can't be delivered are dropped, and said so at most every five minutes."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._dropped = 0
        self._silent_until = 0.0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Try once; the inner exporter has its own retries. Never raises."""
        try:
            result = self._inner.export(spans)
        except Exception as error:
            _log.debug("span_export_broke", error=type(error).__name__)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            self._complain(len(spans))
        return result

    def shutdown(self, timeout_millis: float = 0) -> None:
        """Give up what is under way."""
        self._inner.shutdown()

    def _complain(self, dropped: int) -> None:
        self._dropped += dropped
        now = time.monotonic()
        if now >= self._silent_until:
            _log.warning("spans_dropped", spans=self._dropped)
            self._dropped, self._silent_until = 0, now + _COMPLAINT_SECONDS


class Exporting:
    """A tracer and the exporter behind it."""

    def __init__(self, provider: TracerProvider, exporter: SpanExporter) -> None:
        self._provider = provider
        self._exporter = exporter
        self._tracer: Tracer = provider.get_tracer("errata", _version())
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, kind: str, parent: Context) -> Span:
        """Start a span."""
        return self._tracer.start_span(name, context=parent, kind=_KINDS[kind], record_exception=False)

    def parent_in(self, metadata: Mapping[str, str]) -> Context:
        """The caller's span, as its metadata name it; nothing when they name none."""
        return self._propagator.extract(metadata, _NOWHERE)

    def under(self, parent: Span | None) -> Context:
        """A span of this process as the parent."""
        return _NOWHERE if parent is None else set_span_in_context(parent, _NOWHERE)

    def headers(self, span: Span) -> dict[str, str]:
        """What names the span to a callee."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span, _NOWHERE))
        return carrier

    def mark_failed(self, span: Span) -> None:
        """Give the span the status of an error, without words."""
        span.set_status(Status(StatusCode.ERROR))

    def stop(self) -> None:
        """Flush, for three seconds at most, and close the connection."""
        flushing = threading.Thread(target=self._provider.shutdown, name="flush-spans", daemon=True)
        flushing.start()
        flushing.join(_FLUSH_SECONDS)
        if flushing.is_alive():
            # A collector that is away: its exporter would wait for ten seconds and more.
            self._exporter.shutdown()
            flushing.join(_CLOSE_SECONDS)


def start(service: str, exporter: SpanExporter | None = None) -> Exporting:
    """Start exporting as the environment says. exporter: instead of the one for OTLP over gRPC.

    Raises:
        StartFailed: the environment describes no exporter that can be made.
    """
    # It warns of every attempt that fails, several times a minute for as long as the collector is away.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    try:
        exporter = exporter or OTLPSpanExporter()
        # Not OpenTelemetry's global provider: libraries that look for one would export what they see, prompts included.
        provider = TracerProvider(resource=_resource(service), shutdown_on_exit=False)
        seldom = ComplainingSeldom(exporter)
        provider.add_span_processor(BatchSpanProcessor(seldom))
    except Exception as error:
        raise StartFailed(f"The variables OTEL_* describe no exporter of spans ({type(error).__name__})") from error
    return Exporting(provider, seldom)


def _resource(service: str) -> Resource:
    # The environment's own values win, which is the other way round in Resource.create.
    ours: dict[str, Any] = {"service.name": service, "service.namespace": "errata", "service.version": _version()}
    named = {pair.partition("=")[0].strip() for pair in value("OTEL_RESOURCE_ATTRIBUTES").split(",")}
    if value("OTEL_SERVICE_NAME"):
        named.add("service.name")
    return Resource.create({name: text for name, text in ours.items() if name not in named})


def _version() -> str:
    try:
        return version("errata")
    except PackageNotFoundError:
        return "unknown"
