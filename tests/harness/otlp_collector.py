"""A collector of spans on a free port of this machine: it speaks OTLP over gRPC and keeps what it is sent."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came in. Ids are hexadecimal; parent_id is empty for the first span of a trace."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    events: int

    @property
    def run_id(self) -> str:
        """The run that it belongs to; empty without."""
        return str(self.attributes.get("errata.run_id", ""))


@dataclass(slots=True)
class Collector:
    """What has come in. `endpoint` is for OTEL_EXPORTER_OTLP_ENDPOINT; `requests` counts deliveries."""

    endpoint: str = ""
    requests: int = 0
    _spans: list[ReceivedSpan] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)

    @property
    def spans(self) -> tuple[ReceivedSpan, ...]:
        """Every span so far."""
        with self._news:
            return tuple(self._spans)

    def add(self, spans: list[ReceivedSpan]) -> None:
        """Keep the spans of one delivery."""
        with self._news:
            self.requests += 1
            self._spans.extend(spans)
            self._news.notify_all()

    def trace(self, trace_id: str) -> tuple[ReceivedSpan, ...]:
        """The spans of one trace."""
        return tuple(span for span in self.spans if span.trace_id == trace_id)

    def await_trace(self, names: set[str], seconds: float, trace_id: str = "") -> tuple[ReceivedSpan, ...]:
        """The spans of the first trace, or of this one, that has spans of all these names. AssertionError when time is over."""
        limit = time.monotonic() + seconds
        with self._news:
            while True:
                by_trace: dict[str, list[ReceivedSpan]] = {}
                for span in self._spans:
                    if trace_id in ("", span.trace_id):
                        by_trace.setdefault(span.trace_id, []).append(span)
                for spans in by_trace.values():
                    if names <= {span.name for span in spans}:
                        return tuple(spans)
                left = limit - time.monotonic()
                assert left > 0, f"no trace has all of {sorted(names)}; seen: {sorted({span.name for span in self._spans})}"
                self._news.wait(left)


class _TraceService(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the name of the RPC
        """Keep the spans."""
        self._collector.add(
            [
                _received(span, _values(resource.resource.attributes))
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        )
        return trace_service_pb2.ExportTraceServiceResponse()


@contextmanager
def otlp_collector() -> Iterator[Collector]:
    """A collector that runs inside the block."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    # Generated code without annotations.
    register: Any = trace_service_pb2_grpc.add_TraceServiceServicer_to_server
    register(_TraceService(collector), server)
    collector.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(0).wait(5)


def _received(span: trace_pb2.Span, resource: dict[str, Value]) -> ReceivedSpan:
    return ReceivedSpan(
        service=str(resource.get("service.name", "")),
        name=span.name,
        kind=trace_pb2.Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        failed=span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
        attributes=_values(span.attributes),
        resource=resource,
        events=len(span.events),
    )


def _values(pairs: Any) -> dict[str, Value]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: common_pb2.AnyValue) -> Value:
    kind = value.WhichOneof("value")
    found: Value = getattr(value, kind) if kind in ("string_value", "int_value", "double_value", "bool_value") else ""
    return found
