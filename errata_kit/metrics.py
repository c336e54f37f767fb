"""Prometheus metrics, served on a port of their own.

The names of the gRPC metrics are those that the common gRPC dashboards expect. The product's own start with errata_. Labels
take values from closed sets and from the configuration, never from what a caller sends: no tenant, principal, collection,
question or run id.
"""

import contextlib
import itertools
import platform
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.process_collector import ProcessCollector

from errata_kit.errors import ErrataError, Reason
from errata_kit.usage import ModelCall

LABELS: Final = frozenset(
    {
        "cache",
        "cause",
        "grpc_code",
        "grpc_method",
        "grpc_service",
        "grpc_type",
        "kind",
        "limit",
        "model",
        "operation",
        "outcome",
        "python",
        "reason",
        "result",
        "scope",
        "service",
        "verdict",
        "version",
        "workflow",
    }
)
"""Every label that a metric may have. What is not here could name a person, a text or a run."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SCORES: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_ROUNDS: Final = (0, 1, 2, 3, 4, 5, 7, 10, 20)
_METHOD: Final = ("grpc_type", "grpc_service", "grpc_method")
_STOP_CHECK_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended: its outcome, how long it took from its start, and how often it went round."""

    workflow: str
    outcome: str
    seconds: float
    retrievals: int = 0
    refinements: int = 0
    revisions: int = 0


class Metrics:
    """The metrics of one process, in a registry of its own, so that several servers fit into one test process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls()
        self._runs()
        self._judgements()
        self._models()
        self._documents()
        self.build_info = self._gauge("errata_build_info", "Always 1.", "service", "version", "python")

    def _calls(self) -> None:
        self.started = self._counter("grpc_server_started", "Calls started.", *_METHOD)
        self.handled = self._counter("grpc_server_handled", "Calls ended.", *_METHOD, "grpc_code")
        self.received = self._counter("grpc_server_msg_received", "Messages received.", *_METHOD)
        self.sent = self._counter("grpc_server_msg_sent", "Messages sent.", *_METHOD)
        self.handling = self._histogram("grpc_server_handling_seconds", "From start to end.", _SECONDS, *_METHOD)
        self.in_flight = self._gauge("errata_calls_in_flight", "Calls under way.")
        self.rejected_calls = self._counter(
            "errata_rejected_calls", "Calls turned away by a limit, of one principal or of all.", "limit", "scope"
        )
        self.authentication_failures = self._counter(
            "errata_authentication_failures", "Callers who could not prove who they are.", "cause"
        )
        self.certificate_expiry = self._gauge(
            "errata_certificate_expiry_seconds", "When the server's certificate ends, in seconds since 1970; 0 without TLS."
        )

    def _runs(self) -> None:
        self.runs = self._counter("errata_runs", "Runs ended.", "workflow", "outcome")
        self.runs_in_flight = self._gauge("errata_runs_in_flight", "Runs under way.", "workflow")
        self.run_seconds = self._histogram("errata_run_seconds", "From start to end of a run.", _SECONDS, "workflow")
        self.run_retrievals = self._histogram("errata_run_retrievals", "Retrievals that a run made.", _ROUNDS, "workflow")
        self.run_corrections = self._histogram(
            "errata_run_corrections", "Refinements or revisions that a run made.", _ROUNDS, "workflow"
        )
        self.retrievals = self._counter("errata_retrievals", "Retrievals made by runs.")
        self.refinements = self._counter("errata_refinements", "Refinements made by runs.")
        self.revisions = self._counter("errata_revisions", "Revisions made by runs.")
        self.lease_takeovers = self._counter("errata_lease_takeovers", "Runs taken up from another replica.")

    def _judgements(self) -> None:
        self.passage_grades = self._counter(
            "errata_passage_grades", "Passages graded; result is relevant, irrelevant or an error's reason.", "result"
        )
        self.passage_score = self._histogram("errata_passage_score", "Scores of passages, 0 to 1.", _SCORES)
        self.faithfulness_score = self._histogram("errata_faithfulness_score", "Scores of answers, 0 to 1.", _SCORES)
        self.draft_score = self._histogram("errata_draft_score", "Overall scores of drafts, 0 to 1.", _SCORES)
        self.claims = self._counter("errata_claims", "Claims checked.", "verdict")
        self.guard_findings = self._counter("errata_guard_findings", "What the guard found.", "kind")
        self.injections = self._counter("errata_injections", "Graded passages with text that is meant for a model.", "kind")
        self.judgements = self._counter("errata_judgements", "Judgements asked for, failed ones too.", "operation")
        self.judge_failures = self._counter("errata_judge_failures", "Judgements that failed.", "operation", "reason")

    def _models(self) -> None:
        self.model_calls = self._counter(
            "errata_model_calls", "Model calls; result is ok or an error's reason.", "model", "operation", "result"
        )
        self.model_retries = self._counter(
            "errata_model_retries", "Requests beyond the first of their call.", "model", "operation"
        )
        self.model_seconds = self._histogram(
            "errata_model_call_seconds", "From start to end of a call, retries included.", _SECONDS, "model", "operation"
        )
        self.model_tokens = self._counter(
            "errata_model_tokens",
            "Tokens; kind is input (not cached), cached_input or output.",
            *("model", "operation", "kind"),
        )
        self.model_cost = self._counter(
            "errata_model_cost_dollars", "Estimated cost of calls whose price is known.", "model", "operation"
        )
        self.model_waiting = self._gauge("errata_model_requests_waiting", "Requests that wait for a slot.", "model")
        self.model_in_flight = self._gauge("errata_model_requests_in_flight", "Requests under way.", "model")
        self.cache_requests = self._counter(
            "errata_cache_requests", "Look-ups in a cache; result is hit or miss.", "cache", "result"
        )

    def _documents(self) -> None:
        self.documents = self._counter("errata_documents_ingested", "Documents; result is ok or an error's reason.", "result")
        self.chunks_embedded = self._counter("errata_chunks_embedded", "Chunks embedded.")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=buckets)

    def announce(self, service: str) -> None:
        """Say which service this process is, and in which version."""
        self.build_info.labels(service, _version(), platform.python_version()).set(1)

    def record_run(self, end: RunEnd) -> None:
        """Count a run that has ended."""
        self.runs.labels(end.workflow, end.outcome).inc()
        self.run_seconds.labels(end.workflow).observe(end.seconds)
        self.run_retrievals.labels(end.workflow).observe(end.retrievals)
        self.run_corrections.labels(end.workflow).observe(end.refinements + end.revisions)
        self.retrievals.inc(end.retrievals)
        self.refinements.inc(end.refinements)
        self.revisions.inc(end.revisions)

    @contextlib.contextmanager
    def judging(self, operation: str) -> Iterator[None]:
        """Count a judgement, and how it failed if it does. A caller who has left is no failure."""
        self.judgements.labels(operation).inc()
        try:
            yield
        except ErrataError as error:
            self.judge_failures.labels(operation, error.why.value).inc()
            raise
        except Exception:
            self.judge_failures.labels(operation, Reason.INTERNAL.value).inc()
            raise

    def record_model_call(self, call: ModelCall) -> None:
        """Count one model call; a recorder for the model clients."""
        of = (call.model, call.operation)
        self.model_calls.labels(*of, "ok" if call.error is None else call.error.value).inc()
        self.model_retries.labels(*of).inc(max(0, call.attempts - 1))
        self.model_seconds.labels(*of).observe(call.latency_seconds)
        uncached = call.input_tokens - call.cached_input_tokens
        for kind, tokens in (("input", uncached), ("cached_input", call.cached_input_tokens), ("output", call.output_tokens)):
            self.model_tokens.labels(*of, kind).inc(max(0, tokens))
        if call.cost_micros is not None:
            self.model_cost.labels(*of).inc(call.cost_micros / 1e6)

    def record_model_queue(self, model: str, waiting: int, in_flight: int) -> None:
        """Note how many requests more, or less, wait for a slot and are under way."""
        self.model_waiting.labels(model).inc(waiting)
        self.model_in_flight.labels(model).inc(in_flight)

    def record_lookups(self, cache: str, hits: int, misses: int) -> None:
        """Count look-ups in a cache."""
        self.cache_requests.labels(cache, "hit").inc(hits)
        self.cache_requests.labels(cache, "miss").inc(misses)


def at_zero(metric: Counter | Gauge | Histogram, *values: Iterable[str]) -> None:
    """Show each combination of label values from the start on.

    A counter that appears with its first event never rises in Prometheus' eyes, so that a first failure would go unseen.
    """
    for combination in itertools.product(*values):
        metric.labels(*combination)


def _version() -> str:
    try:
        return version("errata")
    except PackageNotFoundError:
        return "unknown"


class _SilentHandler(WSGIRequestHandler):
    """Logs no line a scrape."""

    def log_message(self, format: str, *args: Any) -> None:
        return


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
