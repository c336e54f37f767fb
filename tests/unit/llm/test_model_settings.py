"""Which provider the environment selects, and what it may not contain."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from errata_kit.llm.settings import ModelSettings, Provider

VARIABLES = (
    "ERRATA_LLM_PROVIDER",
    "ERRATA_LLM_MODEL",
    "ERRATA_LLM_TIMEOUT_SECONDS",
    "ERRATA_LLM_MAX_ATTEMPTS",
    "ERRATA_LLM_MAX_CONCURRENCY",
    "ERRATA_LLM_MAX_OUTPUT_TOKENS",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "provider"),
    [
        ({}, Provider.OFFLINE),
        ({"OPENAI_API_KEY": ""}, Provider.OFFLINE),
        ({"OPENAI_API_KEY": "sk-x"}, Provider.OPENAI),
        ({"OPENAI_BASE_URL": "http://localhost:8080/v1/"}, Provider.OPENAI),
        ({"OPENAI_API_KEY": "sk-x", "ERRATA_LLM_PROVIDER": "offline"}, Provider.OFFLINE),
    ],
)
def test_a_key_or_an_address_selects_openai(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], provider: Provider
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    settings = ModelSettings()
    assert settings.provider is provider
    assert not settings.base_url.endswith("/") and "sk-x" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ERRATA_LLM_PROVIDER", "azure"),
        ("ERRATA_LLM_PROVIDER", "openai"),
        ("OPENAI_BASE_URL", "localhost:8080"),
        ("OPENAI_BASE_URL", "ftp://localhost"),
        ("ERRATA_LLM_TIMEOUT_SECONDS", "0"),
        ("ERRATA_LLM_TIMEOUT_SECONDS", "nan"),
        ("ERRATA_LLM_MAX_ATTEMPTS", "0"),
        ("ERRATA_LLM_MAX_CONCURRENCY", "many"),
        ("ERRATA_LLM_MAX_OUTPUT_TOKENS", "0"),
    ],
)
def test_an_impossible_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError, match=name):
        ModelSettings()


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        setattr(ModelSettings(), "model", "other")  # noqa: B010 - a plain assignment fails the type check
