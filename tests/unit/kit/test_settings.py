"""Settings: what the environment may say, and the one sentence when it may not."""

from pathlib import Path

import pytest
from pydantic import Field, SecretStr, ValidationError

from errata_kit.settings import ServiceSettings, load_settings
from services.generator.settings import GeneratorSettings
from services.judge.settings import JudgeSettings
from services.orchestrator.settings import OrchestratorSettings
from services.retriever.settings import RetrieverSettings

ALL: list[tuple[type[ServiceSettings], str, int]] = [
    (OrchestratorSettings, "ORCHESTRATOR_", 50051),
    (RetrieverSettings, "RETRIEVER_", 50052),
    (JudgeSettings, "JUDGE_", 50053),
    (GeneratorSettings, "GENERATOR_", 50054),
]
EVERY = pytest.mark.parametrize(("settings", "prefix", "port"), ALL, ids=[prefix for _, prefix, _ in ALL])


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("ERRATA_", "OPENAI_", "QDRANT_", *(prefix for _, prefix, _ in ALL))):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def stopped(settings: type[ServiceSettings], prefix: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The sentences with which the start ends."""
    with pytest.raises(SystemExit) as caught:
        load_settings(settings, prefix)
    assert caught.value.code == 2
    return capsys.readouterr().err.splitlines()


@EVERY
def test_an_empty_environment_is_enough(settings: type[ServiceSettings], prefix: str, port: int) -> None:
    loaded = load_settings(settings, prefix)
    values = loaded.model_dump()
    assert values["port"] == port and values["metrics_port"] == 9091 + port - 50051
    assert loaded.host == "127.0.0.1" and loaded.max_concurrent_calls == 256


@EVERY
def test_settings_are_frozen(settings: type[ServiceSettings], prefix: str, port: int) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings(settings, prefix).host = "0.0.0.0"


@EVERY
def test_an_impossible_value_stops_the_start_and_names_the_variable(
    settings: type[ServiceSettings], prefix: str, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"{prefix}PORT", "70000")
    monkeypatch.setenv("ERRATA_MAX_CONCURRENT_CALLS", "none")
    lines = stopped(settings, prefix, capsys)
    assert len(lines) == 2
    for line in lines:
        assert line.startswith("errata: ") and line.endswith(".")
    assert any(f"{prefix}PORT" in line and "70000" in line for line in lines)
    assert any("ERRATA_MAX_CONCURRENT_CALLS" in line and "'none'" in line for line in lines)


@EVERY
def test_an_unknown_variable_with_the_prefix_stops_the_start_and_names_those_that_are(
    settings: type[ServiceSettings], prefix: str, port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(f"{prefix}PROT", "1")
    [line] = stopped(settings, prefix, capsys)
    assert f"{prefix}PROT is not a setting" in line and f"{prefix}PORT" in line and f"{prefix}METRICS_PORT" in line


@EVERY
def test_the_variables_that_kubernetes_sets_for_services_are_none_of_ours(
    settings: type[ServiceSettings], prefix: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_GRPC", "PORT_50053_TCP", "PORT_50053_TCP_ADDR"):
        monkeypatch.setenv(f"{prefix}{name}", "10.0.0.1")
    assert load_settings(settings, prefix).host == "127.0.0.1"


@EVERY
def test_the_link_that_kubernetes_sets_for_a_service_does_not_take_the_place_of_the_port(
    settings: type[ServiceSettings], prefix: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{prefix}PORT", f"tcp://10.0.0.1:{port}")
    assert load_settings(settings, prefix).model_dump()["port"] == port


@EVERY
def test_an_empty_variable_counts_as_unset(
    settings: type[ServiceSettings], prefix: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERRATA_MAX_CONCURRENT_CALLS", "")
    monkeypatch.setenv(f"{prefix}PORT", "")
    assert load_settings(settings, prefix).max_concurrent_calls == 256


def test_an_address_that_holds_a_password_is_never_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ERRATA_REDIS_URL", "http://:hunter2@redis")
    [line] = stopped(JudgeSettings, "JUDGE_", capsys)
    assert "ERRATA_REDIS_URL" in line and "hunter2" not in line


def test_a_secret_is_never_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("JUDGE_CONCURRENCY", "0")
    [line] = stopped(JudgeSettings, "JUDGE_", capsys)
    assert "JUDGE_CONCURRENCY" in line and "sk-secret" not in line
    monkeypatch.delenv("JUDGE_CONCURRENCY")
    assert "sk-secret" not in repr(load_settings(JudgeSettings, "JUDGE_"))


@pytest.mark.parametrize(
    ("settings", "prefix", "name", "value", "needs"),
    [
        (JudgeSettings, "JUDGE_", "ERRATA_LLM_PROVIDER", "openai", "OPENAI_API_KEY or OPENAI_BASE_URL"),
        (GeneratorSettings, "GENERATOR_", "ERRATA_LLM_PROVIDER", "openai", "OPENAI_API_KEY or OPENAI_BASE_URL"),
        (RetrieverSettings, "RETRIEVER_", "RETRIEVER_EMBEDDING_PROVIDER", "openai", "OPENAI_API_KEY or OPENAI_BASE_URL"),
        (JudgeSettings, "JUDGE_", "OPENAI_BASE_URL", "localhost:8080", "OPENAI_BASE_URL"),
        (JudgeSettings, "JUDGE_", "ERRATA_LLM_PROVIDER", "chance", "ERRATA_LLM_PROVIDER"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(
    settings: type[ServiceSettings],
    prefix: str,
    name: str,
    value: str,
    needs: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(name, value)
    [line] = stopped(settings, prefix, capsys)
    assert name in line and needs in line


class _WithSecret(ServiceSettings):
    secret: SecretStr | None = Field(None, validation_alias="ERRATA_TEST_SECRET")
    plain: str = Field("", validation_alias="ERRATA_TEST_PLAIN")


def test_a_secret_comes_from_the_file_that_its_variable_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    monkeypatch.setenv("ERRATA_TEST_SECRET_FILE", str(file))
    monkeypatch.setenv("ERRATA_TEST_PLAIN_FILE", str(file))
    loaded = load_settings(_WithSecret, "NOTHING_")
    assert loaded.secret is not None and loaded.secret.get_secret_value() == "s3cret"
    assert loaded.plain == "", "only secrets come from files"


@pytest.mark.parametrize("both", [True, False])
def test_a_secret_file_that_does_not_serve_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], both: bool
) -> None:
    monkeypatch.setenv("ERRATA_TEST_SECRET_FILE", str(tmp_path / "missing"))
    if both:
        monkeypatch.setenv("ERRATA_TEST_SECRET", "hunter2")
    with pytest.raises(SystemExit) as stopped:
        load_settings(_WithSecret, "NOTHING_")
    complaint = capsys.readouterr().err
    assert stopped.value.code == 2 and "ERRATA_TEST_SECRET_FILE" in complaint and "hunter2" not in complaint


@pytest.mark.parametrize(
    ("host", "values", "complaint"),
    [
        ("0.0.0.0", {}, "ERRATA_AUTH=none is for loopback only"),
        ("example.org", {}, "ERRATA_AUTH=none is for loopback only"),
        ("127.0.0.1", {"ERRATA_AUTH": "api-key"}, "needs ERRATA_API_KEYS_FILE"),
        ("127.0.0.1", {"ERRATA_AUTH": "oidc", "ERRATA_OIDC_ISSUER": "https://issuer"}, "needs ERRATA_OIDC_ISSUER and"),
        ("127.0.0.1", {"ERRATA_AUTH": "basic"}, "ERRATA_AUTH"),
        ("127.0.0.1", {"ERRATA_TLS_KEY_FILE": __file__}, "go together"),
        ("127.0.0.1", {"ERRATA_TLS_KEY_FILE": __file__, "ERRATA_TLS_CERT_FILE": __file__}, "needs ERRATA_TLS_CA_FILE"),
        ("127.0.0.1", {"ERRATA_IDENTITY_TRUST_FILE": "/nowhere/at-all"}, "there is no such file"),
    ],
)
def test_access_that_does_not_fit_together_stops_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], host: str, values: dict[str, str], complaint: str
) -> None:
    monkeypatch.setenv("ERRATA_HOST", host)
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        load_settings(ServiceSettings, "NOTHING_")
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True), ("::", False)]
)
def test_loopback_is_told_from_the_rest(host: str, loopback: bool) -> None:
    if loopback:
        assert ServiceSettings.model_validate({"host": host}).on_loopback
    else:
        with pytest.raises(ValidationError, match="loopback"):
            ServiceSettings.model_validate({"host": host})
