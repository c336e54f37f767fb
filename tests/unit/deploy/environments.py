"""Settings as a container would read them: the environment of the manifests, with files in place of the mounted ones."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from errata_kit.settings import ServiceSettings, load_settings
from tests.unit.deploy.pods import SETTINGS

# What the files hold that the settings read themselves; other files need only be there.
_CONTENT: Final = {
    "ERRATA_DATABASE_URL_FILE": "postgresql://errata:password@postgres:5432/errata",
    "ERRATA_REDIS_URL_FILE": "redis://:password@redis:6379/0",
}
_PREFIXES: Final = ("ERRATA_", "ORCHESTRATOR_", "RETRIEVER_", "JUDGE_", "GENERATOR_", "OPENAI_", "QDRANT_", "OTEL_")


def read_as(service: str, environment: Mapping[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceSettings:
    """The settings of a service in exactly this environment. An absolute path is replaced by a file in `folder`.

    Fails the test where the service itself would stop: a value that can't be, or an unknown name with its prefix.
    """
    for other in [other for other in os.environ if other.startswith(_PREFIXES)]:
        monkeypatch.delenv(other)
    for name, value in environment.items():
        if value.startswith("/"):
            file = folder / value.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_CONTENT.get(name, "content"), encoding="utf-8")
            monkeypatch.setenv(name, str(file))
        else:
            monkeypatch.setenv(name, value)
    try:
        return load_settings(SETTINGS[service], f"{service.upper()}_")
    except SystemExit:
        pytest.fail(f"the {service} would not start; what it says is in the captured output")
