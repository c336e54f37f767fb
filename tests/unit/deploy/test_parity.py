"""Manifests and code say the same: variables, required settings, ports, probes, names and times."""

import importlib.util
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from errata_kit import tracing_settings
from errata_kit.access.settings import AuthMode, ClientAuth
from errata_kit.rpc import server
from errata_kit.settings import ServiceSettings
from services.generator.settings import GeneratorSettings
from services.judge.settings import JudgeSettings
from services.orchestrator.settings import OrchestratorSettings
from services.retriever.settings import RetrieverSettings
from tests.unit.deploy.environments import read_as
from tests.unit.deploy.pods import OVERLAYS, SETTINGS, Rendered, Workload, variables

ROOT = Path(__file__).resolve().parents[3]
TARGETS = ("base", *OVERLAYS)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, rendered: dict[str, Rendered]) -> Rendered:
    return rendered[request.param]


@pytest.fixture(params=SETTINGS)
def workload(request: pytest.FixtureRequest, target: Rendered) -> Workload:
    return target.workloads[request.param]


@pytest.fixture
def settings(workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """As the container reads them; a value that can't be stops here."""
    return read_as(workload.service, workload.environment, tmp_path, monkeypatch)


def test_every_variable_is_a_setting_of_its_service(rendered: dict[str, Rendered]) -> None:
    seen = 0
    for name, target in rendered.items():
        for workload in target.ours.values():
            unknown = set(workload.environment) - variables(workload.service) - set(tracing_settings.VARIABLES)
            assert not unknown, f"{name}: {workload.name} sets {unknown}"
            seen += len(workload.environment)
    assert seen > 100


def test_each_service_runs_its_own_module(target: Rendered) -> None:
    assert {name: target.workloads[name].command for name in SETTINGS} == {
        name: ["python", "-m", f"services.{name}"] for name in SETTINGS
    }
    for name in SETTINGS:
        assert importlib.util.find_spec(f"services.{name}.__main__") is not None
        assert target.workloads[name].container["image"].startswith(f"errata/{name}:")


def test_the_migration_is_the_orchestrators(
    rendered: dict[str, Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for overlay in OVERLAYS:
        migration = rendered[overlay].workloads["migration"]
        assert migration.command == ["python", "-m", "services.orchestrator", "migrate"]
        assert migration.container["image"] == rendered[overlay].workloads["orchestrator"].container["image"]
        read = read_as("orchestrator", migration.environment, tmp_path, monkeypatch)
        assert isinstance(read, OrchestratorSettings)
        assert read.database_url is not None


def test_what_is_required_is_set(workload: Workload, settings: ServiceSettings) -> None:
    assert settings.auth is not AuthMode.NONE
    assert not settings.on_loopback
    assert settings.health_port
    match settings:
        case OrchestratorSettings():
            assert settings.database_url is not None
            assert settings.identity_key_file is not None
            assert settings.identity_trust_file is None
        case RetrieverSettings():
            assert settings.identity_trust_file is not None
            assert settings.qdrant_url, "replicas can't share the embedded index"
            assert settings.qdrant_api_key is not None
        case JudgeSettings() | GeneratorSettings():
            assert settings.identity_trust_file is not None
            assert settings.identity_key_file is None
        case _:
            pytest.fail(f"{workload.name} has settings that this test does not know")


@pytest.mark.parametrize("name", SETTINGS)
def test_production_has_certificates_and_a_model(
    name: str, rendered: dict[str, Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = read_as(name, rendered["overlay-prod"].workloads[name].environment, tmp_path, monkeypatch)
    assert read.tls_cert_file is not None
    assert read.tls_ca_file is not None
    # Other teams call the orchestrator, with keys or tokens; nobody but our own pods calls the others.
    assert read.tls_client_auth is (ClientAuth.NONE if name == "orchestrator" else ClientAuth.REQUIRE)
    if isinstance(read, RetrieverSettings | JudgeSettings | GeneratorSettings):
        assert read.api_key is not None


def test_every_file_is_mounted_and_on_the_page(target: Rendered) -> None:
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    for workload in target.ours.values():
        for name, value in workload.environment.items():
            if not value.startswith("/"):
                continue
            source = workload.source_of(value)
            assert source is not None, f"{workload.name}: nothing is mounted for {name}={value}"
            _, holder, key = source
            assert f"`{holder.replace(f'{workload.name}-tls', 'SERVICE-tls')}`" in page
            assert f"`{key}`" in page


def test_ports_are_those_of_the_settings(workload: Workload, target: Rendered, settings: ServiceSettings) -> None:
    grpc, metrics = settings.model_dump()["port"], settings.model_dump()["metrics_port"]
    assert workload.ports == {"grpc": grpc, "metrics": metrics, "health": settings.health_port}
    service = target.of("Service")[workload.name]["spec"]
    assert service["clusterIP"] == "None"
    assert {(port["name"], port["port"], port["targetPort"]) for port in service["ports"]} == {
        ("grpc", grpc, "grpc"),
        ("metrics", metrics, "metrics"),
    }


def test_probes_ask_what_the_health_port_answers(workload: Workload, settings: ServiceSettings) -> None:
    asked = {kind: workload.container[f"{kind}Probe"]["grpc"] for kind in ("startup", "liveness", "readiness")}
    assert asked == {
        "startup": {"port": settings.health_port, "service": server.LIVENESS},
        "liveness": {"port": settings.health_port, "service": server.LIVENESS},
        "readiness": {"port": settings.health_port, "service": ""},
    }


def test_a_pod_is_killed_only_after_its_drain(workload: Workload, settings: ServiceSettings) -> None:
    after = server._LAST_WORDS_SECONDS + server._LEFTOVER_SECONDS
    drain = settings.drain_pause_seconds + settings.drain_grace_seconds + after
    assert workload.pod["terminationGracePeriodSeconds"] > drain


def test_the_orchestrator_finds_the_others(target: Rendered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = read_as("orchestrator", target.workloads["orchestrator"].environment, tmp_path, monkeypatch)
    assert isinstance(read, OrchestratorSettings)
    for name in ("retriever", "judge", "generator"):
        scheme, _, address = getattr(read, f"{name}_target").partition(":///")
        host, _, port = address.partition(":")
        # A DNS name with several addresses, among which the client chooses itself.
        assert scheme == "dns"
        assert host == name
        assert int(port) in {item["port"] for item in target.of("Service")[host]["spec"]["ports"] if item["name"] == "grpc"}


def test_the_health_port_is_in_no_service_and_no_policy(rendered: dict[str, Rendered]) -> None:
    for target in rendered.values():
        for service in target.of("Service").values():
            assert "health" not in {port["targetPort"] for port in service["spec"]["ports"]}
        for policy in target.of("NetworkPolicy").values():
            rules = [*policy["spec"].get("ingress", []), *policy["spec"].get("egress", [])]
            assert 50060 not in {port["port"] for rule in rules for port in rule.get("ports", [])}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_retriever_and_qdrant_agree(
    overlay: str, rendered: dict[str, Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = rendered[overlay]
    nodes = target.of("StatefulSet")["qdrant"]["spec"]["replicas"]
    read = read_as("retriever", target.workloads["retriever"].environment, tmp_path, monkeypatch)
    assert isinstance(read, RetrieverSettings)
    host, port = read.qdrant_url.removeprefix("http://").split(":")
    service = {item["name"]: item["port"] for item in target.of("Service")[host]["spec"]["ports"]}
    assert service["http"] == int(port)
    # Its client takes this port for gRPC where the address names 6333.
    assert service["grpc"] == 6334
    assert read.qdrant_replication_factor == nodes
    # With one node away, writes must still count.
    assert read.qdrant_write_consistency <= max(1, nodes - 1)
    snapshots = [argument for argument in target.workloads["qdrant-snapshots"].command if argument.startswith("--node=")]
    assert snapshots == [f"--node=http://qdrant-{index}.qdrant-headless:{port}" for index in range(nodes)]
    node = target.workloads["qdrant"]
    configured = {name: node.environment[f"QDRANT__SERVICE__{name.upper()}_PORT"] for name in ("http", "grpc")}
    assert configured | {"p2p": node.environment["QDRANT__CLUSTER__P2P__PORT"]} == {
        name: str(number) for name, number in node.ports.items()
    }
    assert (node.environment["QDRANT__CLUSTER__ENABLED"] == "true") == (nodes > 1)


@pytest.mark.parametrize("name", ["retriever", "judge"])
def test_the_redis_component_gives_an_address(
    name: str, rendered: dict[str, Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = rendered["component-redis-local"]
    read = read_as(name, target.workloads[name].environment, tmp_path, monkeypatch)
    assert isinstance(read, RetrieverSettings | JudgeSettings)
    assert read.redis_url is not None
    address = urlsplit(read.redis_url.get_secret_value())
    (port,) = target.of("Service")[address.hostname or ""]["spec"]["ports"]
    assert address.port == port["port"]
    plain = read_as(name, rendered["overlay-prod"].workloads[name].environment, tmp_path, monkeypatch)
    assert isinstance(plain, RetrieverSettings | JudgeSettings)
    assert plain.redis_url is None


def test_prometheus_reads_the_four_services(rendered: dict[str, Rendered]) -> None:
    target = rendered["overlay-prod"]
    (monitor,) = target.of("ServiceMonitor").values()
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    chosen = {name for name, item in target.of("Service").items() if wanted <= item["metadata"].get("labels", {}).items()}
    assert chosen == set(SETTINGS)
    (endpoint,) = monitor["spec"]["endpoints"]
    for name in chosen:
        assert endpoint["port"] in {port["name"] for port in target.of("Service")[name]["spec"]["ports"]}


def test_the_tracing_component_makes_spans_leave(
    rendered: dict[str, Rendered], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SETTINGS:
        read_as(name, rendered["component-tracing"].workloads[name].environment, tmp_path, monkeypatch)
        assert tracing_settings.wanted()
        read_as(name, rendered["overlay-prod"].workloads[name].environment, tmp_path, monkeypatch)
        assert not tracing_settings.wanted()


@pytest.mark.parametrize("name", SETTINGS)
def test_certificates_fit_names_and_files(name: str, rendered: dict[str, Rendered]) -> None:
    target = rendered["overlay-prod"]
    certificate = target.of("Certificate")[name]["spec"]
    namespace = target.of("Deployment")[name]["metadata"]["namespace"]
    short = f"{name}.{namespace}"
    assert certificate["dnsNames"] == [name, short, f"{short}.svc", f"{short}.svc.cluster.local"]
    # The orchestrator shows its own as a client, too.
    assert {"server auth", "client auth"} <= set(certificate["usages"])
    workload = target.workloads[name]
    # The keys of a Secret that cert-manager writes.
    for variable, key in (("CERT", "tls.crt"), ("KEY", "tls.key"), ("CA", "ca.crt")):
        path = workload.environment[f"ERRATA_TLS_{variable}_FILE"]
        assert workload.source_of(path) == ("secret", certificate["secretName"], key)
