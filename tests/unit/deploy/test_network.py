"""Who may connect to whom: exactly the ways that the services need, and no other."""

import itertools
from urllib.parse import urlsplit

import pytest

from tests.unit.deploy.flows import Peer, open_between, open_to_address
from tests.unit.deploy.pods import OVERLAYS, SETTINGS, Rendered

PORTS = {name: settings.model_fields["port"].default for name, settings in SETTINGS.items()}
METRICS = {name: settings.model_fields["metrics_port"].default for name, settings in SETTINGS.items()}
CLUSTER = {
    ("orchestrator", "retriever", PORTS["retriever"]),
    ("orchestrator", "judge", PORTS["judge"]),
    ("orchestrator", "generator", PORTS["generator"]),
    ("retriever", "qdrant", 6334),
    ("qdrant", "qdrant", 6335),
    ("qdrant-snapshots", "qdrant", 6333),
}
DATABASE = {("orchestrator", "postgres", 5432), ("migration", "postgres", 5432)}
OPEN = {"overlay-local": CLUSTER | DATABASE, "overlay-prod": CLUSTER}
OUTSIDE = {"errata-clients": "allowed", "kubernetes.io/metadata.name": "team"}
PROMETHEUS = Peer({"app.kubernetes.io/name": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"})


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_inside_exactly_these_ways_are_open(overlay: str, rendered: dict[str, Rendered]) -> None:
    target = rendered[overlay]
    ways = set()
    for source, to in itertools.product(target.workloads.values(), repeat=2):
        for port in to.ports.values():
            if open_between(target, Peer(source.labels), Peer(to.labels), port):
                ways.add((source.name, to.name, port))
    assert ways == OPEN[overlay]


@pytest.mark.parametrize(
    ("caller", "expected"),
    [
        (Peer({"errata-client": "true"}, OUTSIDE), {("orchestrator", PORTS["orchestrator"])}),
        (Peer({"errata-ingest": "true"}, OUTSIDE), {("retriever", PORTS["retriever"])}),
        (Peer({"errata-client": "true"}, {"kubernetes.io/metadata.name": "other"}), set()),
        (Peer({"app": "anything"}, OUTSIDE), set()),
        (PROMETHEUS, set(METRICS.items())),
        (Peer(PROMETHEUS.labels, OUTSIDE), set()),
    ],
    ids=["client", "ingest", "client-of-no-named-namespace", "no-label", "prometheus", "prometheus-elsewhere"],
)
def test_from_outside_only_named_callers_come_in(
    caller: Peer, expected: set[tuple[str, int]], rendered: dict[str, Rendered]
) -> None:
    target = rendered["overlay-prod"]
    ways = {
        (workload.name, port)
        for workload in target.workloads.values()
        for port in workload.ports.values()
        if open_between(target, caller, Peer(workload.labels), port)
    }
    assert ways == expected


def test_without_monitoring_nobody_reads_metrics(rendered: dict[str, Rendered]) -> None:
    target = rendered["overlay-local"]
    for name, port in METRICS.items():
        assert not open_between(target, PROMETHEUS, Peer(target.workloads[name].labels), port)


@pytest.mark.parametrize("name", ["retriever", "judge", "generator"])
def test_the_model_is_reached_in_production_and_nothing_inside(name: str, rendered: dict[str, Rendered]) -> None:
    source = Peer(rendered["overlay-prod"].workloads[name].labels)
    production, local = rendered["overlay-prod"], rendered["overlay-local"]
    assert open_to_address(production, source, "203.0.113.7", 443)
    assert not open_to_address(production, source, "203.0.113.7", 80)
    # Private ranges, and the cloud's metadata service.
    for address in ("10.1.2.3", "172.20.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1"):
        assert not open_to_address(production, source, address, 443)
    assert not open_to_address(local, source, "203.0.113.7", 443)


def test_only_the_orchestrator_and_the_migration_leave_for_the_database(rendered: dict[str, Rendered]) -> None:
    target = rendered["overlay-prod"]
    leaving = {
        name for name, workload in target.workloads.items() if open_to_address(target, Peer(workload.labels), "10.9.8.7", 5432)
    }
    assert leaving == {"orchestrator", "migration"}
    assert not open_to_address(target, Peer(target.workloads["orchestrator"].labels), "203.0.113.7", 443)


def test_spans_leave_for_the_collector_with_its_component_only(rendered: dict[str, Rendered]) -> None:
    collector = Peer({"app.kubernetes.io/name": "opentelemetry-collector"}, {"kubernetes.io/metadata.name": "monitoring"})
    traced, plain = rendered["component-tracing"], rendered["overlay-prod"]
    for name in SETTINGS:
        workload = traced.workloads[name]
        endpoint = urlsplit(workload.environment["OTEL_EXPORTER_OTLP_ENDPOINT"])
        assert endpoint.port is not None
        assert open_between(traced, Peer(workload.labels), collector, endpoint.port)
        assert not open_between(plain, Peer(workload.labels), collector, endpoint.port)


def test_the_cache_is_reached_by_those_who_keep_something_there_alone(rendered: dict[str, Rendered]) -> None:
    target = rendered["component-redis-local"]
    cache = target.workloads["redis"]
    assert cache.ports == {"redis": 6379}
    entering = {
        source.name
        for source in target.workloads.values()
        if open_between(target, Peer(source.labels), Peer(cache.labels), cache.ports["redis"])
    }
    assert entering == {"judge", "retriever"}
    for caller in (PROMETHEUS, Peer({"errata-client": "true", "errata-ingest": "true"}, OUTSIDE)):
        assert not open_between(target, caller, Peer(cache.labels), cache.ports["redis"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_may_ask_for_names(overlay: str, rendered: dict[str, Rendered]) -> None:
    servers = Peer({"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
    target = rendered[overlay]
    assert target.workloads
    for workload in target.workloads.values():
        assert open_between(target, Peer(workload.labels), servers, 53)
