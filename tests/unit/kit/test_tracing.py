"""Spans: none without a collector, the caller's trace with one, and never a word of anybody's text."""

import asyncio
import logging
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from errata_kit import tracing, tracing_export
from errata_kit.calls import enter_call
from errata_kit.errors import ModelUnavailable, StartFailed
from errata_kit.tracing_settings import VARIABLES, wanted
from tests.harness.otlp_collector import Collector, otlp_collector
from tests.harness.spans import exported, kept_spans

METHOD = "/errata.judge.v1.JudgeService/GradeAnswer"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with otlp_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.endpoint)
        yield running


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is exported, without a network."""
    with kept_spans("judge", monkeypatch) as kept:
        yield kept


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
        {"OTEL_SERVICE_NAME": "judge", "OTEL_TRACES_SAMPLER": "always_on"},
    ],
)
def test_nothing_is_wanted_unless_a_collector_is_named(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert not wanted()
    tracing.configure_tracing("judge")()
    assert not tracing.is_tracing()


def test_without_tracing_nothing_of_opentelemetry_is_imported() -> None:
    script = (
        "import sys; from errata_kit.tracing import configure_tracing, span, server_span\n"
        "stop = configure_tracing('judge')\n"
        "with server_span('/a.B/C', {'traceparent': '"
        + TRACEPARENT
        + "'}) as s, span('x', {'errata.workflow': 'w'}): s.note({})\n"
        "stop(); print([name for name in sys.modules if 'opentelemetry' in name or name == 'grpc'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"


def test_without_tracing_a_span_costs_next_to_nothing() -> None:
    began = time.perf_counter()
    for _ in range(10_000):
        with tracing.span("step", {"errata.workflow": "answer"}) as span:
            span.note({"errata.attempts": 1})
    # A microsecond each where nothing else runs; the bound only catches another kind of cost.
    assert (time.perf_counter() - began) / 10_000 < 50e-6
    assert not tracing.current_span()
    assert tracing.current_span().headers() == {}
    assert tracing.client_span(METHOD).trace_id == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
        ("OTEL_TRACES_SAMPLER", "sometimes"),
        ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ("OTEL_TRACES_SAMPLER_ARG", "half"),
    ],
)
def test_an_impossible_value_stops_the_start_and_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv(name, value)
    with pytest.raises(StartFailed, match=f"^{name} is '{value}'"):
        tracing.configure_tracing("judge")


def test_an_exporter_that_cannot_be_made_stops_the_start_without_the_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=verysecret")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(StartFailed, match=r"OTEL_\*") as failure:
        tracing.configure_tracing("judge")
    assert "verysecret" not in str(failure.value)


def test_spans_reach_a_collector_and_the_end_flushes_them(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.namespace=mine")
    with tracing.tracing("judge"):
        assert tracing.is_tracing()
        with tracing.server_span(METHOD, {"traceparent": TRACEPARENT}, "run-1") as server:
            assert server.trace_id == TRACE
            with tracing.span("check"):
                pass
            server.ended_with("OK")
        assert collector.requests == 0
    assert not tracing.is_tracing()
    inner, outer = collector.trace(TRACE)
    assert (outer.name, outer.kind, outer.parent_id, outer.run_id) == (METHOD[1:], "server", PARENT, "run-1")
    assert (inner.name, inner.kind, inner.parent_id) == ("check", "internal", outer.span_id)
    assert outer.attributes["rpc.system.name"] == "grpc"
    assert outer.attributes["rpc.method"] == METHOD[1:]
    assert outer.attributes["rpc.response.status_code"] == "OK"
    assert outer.resource["service.name"] == "judge"
    assert outer.resource["service.namespace"] == "mine"
    assert outer.resource["deployment.environment.name"] == "test"


def test_the_environment_names_the_service_if_it_wants(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "judge-in-paris")
    with tracing.tracing("judge"), tracing.span("step"):
        pass
    assert [span.service for span in collector.spans] == ["judge-in-paris"]


class Lines:
    """Stands in for a logger, and keeps what it is told."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **values: Any) -> None:
        self.warnings.append((event, values))


def test_a_collector_that_is_away_costs_dropped_spans_and_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = Lines()
    monkeypatch.setattr(tracing_export, "_log", lines)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.05")
    with caplog.at_level(logging.WARNING), tracing.tracing("judge"):
        for _ in range(6):
            began = time.monotonic()
            with tracing.span("step"):
                pass
            assert time.monotonic() - began < 0.05
            time.sleep(0.06)
    assert lines.warnings == [("spans_dropped", {"spans": 1})]
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


def test_the_end_is_bounded_though_the_exporter_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(SpanExporter):
        def export(self, spans: object) -> SpanExportResult:
            time.sleep(2)
            return SpanExportResult.SUCCESS

    assert tracing_export._FLUSH_SECONDS + tracing_export._CLOSE_SECONDS <= 3
    monkeypatch.setattr(tracing_export, "_FLUSH_SECONDS", 0.1)
    monkeypatch.setattr(tracing_export, "_CLOSE_SECONDS", 0.1)
    exporting = tracing_export.start("judge", Hanging())
    exporting.begin("step", "internal", exporting.under(None)).end()
    began = time.monotonic()
    exporting.stop()
    assert time.monotonic() - began < 1.0


def test_a_failure_is_noted_by_its_type_and_without_its_words(spans: InMemorySpanExporter) -> None:
    with pytest.raises(ModelUnavailable), tracing.span("step"):
        raise ModelUnavailable("the secret question", detail="the secret document")
    with pytest.raises(ValueError, match="secret"), tracing.span("other"):
        raise ValueError("secret")
    found = exported(spans)
    assert found["step"].attributes["error.type"] == "MODEL_UNAVAILABLE"
    assert found["other"].attributes["error.type"] == "ValueError"
    assert "secret" not in "".join(span.to_json() for span in spans.get_finished_spans())


@pytest.mark.parametrize(
    ("code", "server_failed", "client_failed"),
    [("OK", False, False), ("NOT_FOUND", False, True), ("RESOURCE_EXHAUSTED", False, True), ("INTERNAL", True, True)],
)
def test_who_is_to_blame_for_a_status(spans: InMemorySpanExporter, code: str, server_failed: bool, client_failed: bool) -> None:
    with tracing.server_span(METHOD, {}) as server:
        client = tracing.client_span("/a.B/C")
        client.ended_with(code)
        client.end()
        server.ended_with(code)
    found = exported(spans)
    failed = {name: not span.status.is_unset for name, span in found.items()}
    assert failed == {METHOD[1:]: server_failed, "a.B/C": client_failed}


def test_headers_name_the_client_span_as_the_parent(spans: InMemorySpanExporter) -> None:
    with tracing.server_span(METHOD, {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}):
        client = tracing.client_span("/a.B/C")
        headers = client.headers()
        client.end()
    span = exported(spans)["a.B/C"]
    context = span.get_span_context()
    assert headers == {"traceparent": f"00-{TRACE}-{context.span_id:016x}-01", "tracestate": "vendor=1"}


def test_a_caller_that_is_not_sampled_is_not_exported_but_keeps_its_trace_id(spans: InMemorySpanExporter) -> None:
    with tracing.server_span(METHOD, {"traceparent": f"00-{TRACE}-{PARENT}-00"}) as server:
        assert server.trace_id == TRACE
        assert server.headers()["traceparent"].endswith("-00")
    assert exported(spans) == {}


@pytest.mark.parametrize(
    "bad", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE.upper()}"]
)
def test_a_traceparent_that_is_none_starts_a_trace_of_its_own(spans: InMemorySpanExporter, bad: str) -> None:
    assert tracing.trace_id_of(bad) == ""
    with tracing.server_span(METHOD, {"traceparent": bad}) as server:
        assert len(server.trace_id) == 32
        assert server.trace_id not in bad.lower() or not bad


def test_a_traceparent_is_read_as_the_library_reads_it(spans: InMemorySpanExporter) -> None:
    assert tracing.trace_id_of(TRACEPARENT) == TRACE
    with tracing.server_span(METHOD, {"traceparent": TRACEPARENT}) as server:
        assert server.trace_id == tracing.trace_id_of(TRACEPARENT)


async def test_every_span_of_a_run_bears_its_id(spans: InMemorySpanExporter) -> None:
    async def work() -> None:
        enter_call("run-7", "", None)
        with tracing.span("node"):
            model = tracing.begin_span("chat m", {"gen_ai.request.model": "m"})
            model.end()

    await asyncio.create_task(work())
    found = exported(spans)
    assert {span.attributes["errata.run_id"] for span in found.values()} == {"run-7"}
    assert found["chat m"].parent.span_id == found["node"].context.span_id


async def test_a_stream_that_is_closed_by_another_task_disturbs_nobody(
    spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    async def stream() -> AsyncGenerator[int, None]:
        with tracing.span("stream"):
            yield 1
            yield 2

    running = stream()

    async def begin() -> None:
        await anext(running)

    async def close() -> None:
        async with aclosing(running):
            pass

    with tracing.span("outer") as outer:
        await asyncio.create_task(begin())
        await asyncio.create_task(close())
        assert tracing.current_span() is outer
    assert set(exported(spans)) == {"stream", "outer"}
    assert not caplog.records


def test_long_texts_are_cut(spans: InMemorySpanExporter) -> None:
    with tracing.span("step", {"errata.workflow": "w" * 10_000}):
        pass
    assert len(exported(spans)["step"].attributes["errata.workflow"]) == 256
