"""deploy/compose.yaml sets what the settings know, and its health check asks what the services answer."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from errata_kit.access.api_keys import ApiKeys
from errata_kit.access.identity import IdentitySigner, IdentityVerifier
from errata_kit.access.principals import Role
from errata_kit.access.settings import AuthMode
from errata_kit.rpc import server
from services.judge.settings import JudgeSettings
from services.orchestrator.settings import OrchestratorSettings
from services.retriever.settings import RetrieverSettings
from tests.unit.deploy.environments import read_as
from tests.unit.deploy.pods import SETTINGS, Rendered, variables

ROOT = Path(__file__).resolve().parents[3]
STATUS = health_pb2.HealthCheckResponse


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text(encoding="utf-8"))
    return parsed


@pytest.mark.parametrize("name", SETTINGS)
def test_a_service_starts_with_what_is_set(
    name: str, compose: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = compose["services"][name]
    assert not set(service["environment"]) - variables(name)
    read = read_as(name, service["environment"], tmp_path, monkeypatch)
    assert read.auth is AuthMode.API_KEY
    assert not read.on_loopback
    stop = int(service["stop_grace_period"].removesuffix("s"))
    assert stop > read.drain_pause_seconds + read.drain_grace_seconds + server._LAST_WORDS_SECONDS + server._LEFTOVER_SECONDS
    if isinstance(read, OrchestratorSettings):
        assert read.database_url is not None
        assert read.identity_key_file is not None
        for other in ("retriever", "judge", "generator"):
            assert getattr(read, f"{other}_target") == f"dns:///{other}:{SETTINGS[other].model_fields['port'].default}"
    else:
        assert read.identity_trust_file is not None
    if isinstance(read, RetrieverSettings):
        assert read.qdrant_url == "http://qdrant:6333"
        assert read.qdrant_api_key is not None
    if isinstance(read, RetrieverSettings | JudgeSettings):
        assert read.redis_url is not None
        # A cache that is away is no reason not to start.
        assert "redis" not in service.get("depends_on", {})


def test_secrets_are_files_that_the_script_makes(compose: dict[str, Any]) -> None:
    script = (ROOT / "deploy/make-secrets.sh").read_text(encoding="utf-8")
    declared = compose["secrets"]
    for name, service in compose["services"].items():
        given = {item["source"] if isinstance(item, dict) else item for item in service.get("secrets", [])}
        assert given <= set(declared), name
        mounted = {value for value in service.get("environment", {}).values() if value.startswith("/run/secrets/")}
        assert {Path(path).name for path in mounted} <= given, name
    for name, secret in declared.items():
        assert secret["file"] == f"secrets/{name}"
        assert name in script


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
def test_the_script_makes_keys_that_the_services_take(compose: dict[str, Any], tmp_path: Path) -> None:
    errata = Path(sys.executable).parent / "errata"
    command = [str(ROOT / "deploy/make-secrets.sh"), str(tmp_path / "secrets")]
    environment = {"PATH": os.environ["PATH"], "ERRATA": str(errata)}
    kept: dict[str, bytes] = {}
    for _ in range(2):
        subprocess.run(command, env=environment, cwd=ROOT, timeout=60, capture_output=True, check=True)
        made = {file.name: file.read_bytes() for file in (tmp_path / "secrets").iterdir()}
        # The second time, everything is kept.
        assert not kept or kept == made
        kept = made
    assert set(compose["secrets"]) <= set(kept)
    caller = ApiKeys(tmp_path / "secrets/api-keys.json").principal_of(kept["trial.key"].decode().strip())
    assert caller.roles == {Role.ASK, Role.INGEST}
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    token = IdentitySigner.from_file(tmp_path / "secrets/signing-key.pem").sign(caller)
    verified = IdentityVerifier.from_file(tmp_path / "secrets/trusted.pem").principal_of(token)
    assert (verified.name, verified.tenant, verified.roles) == (caller.name, caller.tenant, caller.roles)
    password = kept["postgres-password"].decode().strip()
    assert kept["database-url"].decode().strip() == f"postgresql://errata:{password}@postgres:5432/errata"
    assert yaml.safe_load(kept["qdrant-local.yaml"]) == {"service": {"api_key": kept["qdrant-api-key"].decode().strip()}}
    password = kept["redis-password"].decode().strip()
    assert kept["redis-url"].decode().strip() == f"redis://:{password}@redis:6379/0"
    lines = kept["redis.conf"].decode().splitlines()
    # It makes room by itself: a cache that refuses what is new is soon of no use.
    assert {f"requirepass {password}", "maxmemory-policy allkeys-lru"} <= set(lines)


def test_a_mounted_port_is_one_that_the_settings_have(compose: dict[str, Any]) -> None:
    for name, settings in SETTINGS.items():
        known = {settings.model_fields[field].default for field in ("port", "metrics_port")}
        for port in compose["services"][name]["ports"]:
            address, outside, inside = port.split(":")
            # Never on an address that others reach.
            assert address == "127.0.0.1"
            assert outside == inside
            assert int(inside) in known


def test_images_are_those_of_the_manifests(compose: dict[str, Any], rendered: dict[str, Rendered]) -> None:
    local = {item.container["image"] for item in rendered["overlay-local"].workloads.values()}
    local |= {item.container["image"] for item in rendered["component-redis-local"].workloads.values()}
    assert {service["image"] for service in compose["services"].values()} <= local
    for name in SETTINGS:
        build = compose["services"][name]["build"]
        assert build["args"]["SERVICE"] == name
        assert (ROOT / "deploy" / build["context"] / build["dockerfile"]).samefile(ROOT / "deploy/Dockerfile")


def test_the_database_is_migrated_first(compose: dict[str, Any]) -> None:
    migration, orchestrator = compose["services"]["migration"], compose["services"]["orchestrator"]
    assert migration["command"] == ["python", "-m", "services.orchestrator", "migrate"]
    assert set(migration["environment"]) <= variables("orchestrator")
    assert orchestrator["depends_on"] == {"migration": {"condition": "service_completed_successfully"}}
    assert migration["depends_on"] == {"postgres": {"condition": "service_healthy"}}


@pytest.mark.parametrize(("status", "code"), [(STATUS.SERVING, 0), (STATUS.NOT_SERVING, 1)])
def test_the_health_check_asks_for_readiness(status: int, code: int, compose: dict[str, Any]) -> None:
    checks = health.HealthServicer()
    checks.set("", status)
    serving = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
    health_pb2_grpc.add_HealthServicer_to_server(checks, serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    try:
        for name in SETTINGS:
            service = compose["services"][name]
            kind, python, *arguments = service["healthcheck"]["test"]
            assert (kind, python) == ("CMD", "python")
            assert f'"127.0.0.1:{service["environment"]["ERRATA_HEALTH_PORT"]}"' in arguments[-1]
        arguments[-1] = arguments[-1].replace("50060", str(port))
        ran = subprocess.run([sys.executable, *arguments], timeout=30, capture_output=True, check=False)
        assert ran.returncode == code, ran.stderr
    finally:
        serving.stop(0).wait()
