"""Prometheus metrics, served on a port of their own.

The names of the gRPC metrics are those that the common gRPC dashboards expect. The product's own start with errata_.
"""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.process_collector import ProcessCollector

from errata_kit.usage import ModelCall

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


_STOP_CHECK_SECONDS: Final = 0.02


class _SilentHandler(WSGIRequestHandler):
    """Logs no line a scrape."""

    def log_message(self, format: str, *args: Any) -> None:
        return


class Metrics:
    """The metrics of one process, in a registry of its own, so that several servers fit into one test process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        method = ("grpc_type", "grpc_service", "grpc_method")
        self.started = Counter("grpc_server_started", "Calls started.", method, registry=self.registry)
        self.handled = Counter("grpc_server_handled", "Calls ended.", (*method, "grpc_code"), registry=self.registry)
        self.handling = Histogram(
            "grpc_server_handling_seconds", "From start to end.", method, registry=self.registry, buckets=_SECONDS
        )
        self.in_flight = Gauge("errata_calls_in_flight", "Calls under way.", registry=self.registry)
        self.runs = Counter("errata_runs", "Runs ended.", ("workflow", "outcome"), registry=self.registry)
        self.runs_in_flight = Gauge("errata_runs_in_flight", "Runs under way.", ("workflow",), registry=self.registry)
        self.run_seconds = Histogram(
            "errata_run_seconds", "From start to end of a run.", ("workflow",), registry=self.registry, buckets=_SECONDS
        )
        self.retrievals = Counter("errata_retrievals", "Retrievals made by runs.", registry=self.registry)
        self.refinements = Counter("errata_refinements", "Refinements made by runs.", registry=self.registry)
        self.revisions = Counter("errata_revisions", "Revisions made by runs.", registry=self.registry)
        self.lease_takeovers = Counter("errata_lease_takeovers", "Runs taken up from another replica.", registry=self.registry)
        self.passage_grades = Counter(
            "errata_passage_grades",
            "Passages graded; result is relevant, irrelevant or an error's reason.",
            ("result",),
            registry=self.registry,
        )
        self.claims = Counter("errata_claims", "Claims checked.", ("verdict",), registry=self.registry)
        self.guard_findings = Counter("errata_guard_findings", "What the guard found.", ("kind",), registry=self.registry)
        self.model_calls = Counter(
            "errata_model_calls",
            "Model calls; result is ok or an error's reason.",
            ("model", "operation", "result"),
            registry=self.registry,
        )
        self.model_tokens = Counter(
            "errata_model_tokens",
            "Tokens; kind is input (not cached), cached_input or output.",
            ("model", "operation", "kind"),
            registry=self.registry,
        )
        self.model_cost = Counter(
            "errata_model_cost_dollars",
            "Estimated cost of calls whose price is known.",
            ("model",),
            registry=self.registry,
        )
        self.documents = Counter(
            "errata_documents_ingested",
            "Documents; result is ok or an error's reason.",
            ("result",),
            registry=self.registry,
        )
        self.chunks_embedded = Counter("errata_chunks_embedded", "Chunks embedded.", registry=self.registry)

    def record_model_call(self, call: ModelCall) -> None:
        """Count one model call; a recorder for the model clients."""
        self.model_calls.labels(call.model, call.operation, "ok" if call.error is None else call.error.value).inc()
        uncached = call.input_tokens - call.cached_input_tokens
        for kind, tokens in (("input", uncached), ("cached_input", call.cached_input_tokens), ("output", call.output_tokens)):
            self.model_tokens.labels(call.model, call.operation, kind).inc(max(0, tokens))
        if call.cost_micros is not None:
            self.model_cost.labels(call.model).inc(call.cost_micros / 1e6)


@contextlib.contextmanager
def serving_metrics(metrics: Metrics, host: str, port: int) -> Iterator[int]:
    """Serve the registry over HTTP inside the block, and yield the port (a free one for 0)."""
    server = make_server(host, port, make_wsgi_app(metrics.registry), ThreadingWSGIServer, handler_class=_SilentHandler)
    # Half a second, the library's own interval, would be how long every stop blocks the event loop.
    thread = threading.Thread(target=server.serve_forever, args=(_STOP_CHECK_SECONDS,), name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
