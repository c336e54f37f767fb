"""Spans that are kept in this process instead of being exported."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from errata_kit import tracing, tracing_export


@contextlib.contextmanager
def kept_spans(service: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """Tracing is on inside the block, and reaches no network."""
    kept = InMemorySpanExporter()
    exporting = tracing_export.start(service, kept)
    monkeypatch.setattr(tracing, "_exporting", exporting)
    try:
        yield kept
    finally:
        exporting.stop()


def exported(spans: InMemorySpanExporter) -> dict[str, Any]:
    """The spans that have ended, by name."""
    exporting = tracing._exporting
    assert exporting is not None
    exporting._provider.force_flush()
    return {span.name: span for span in spans.get_finished_spans()}
