"""Settings of the model clients, from the environment."""

from __future__ import annotations

from enum import StrEnum
from typing import Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

OPENAI_URL = "https://api.openai.com/v1"


class Provider(StrEnum):
    """Where judgements and texts come from."""

    OPENAI = "openai"
    OFFLINE = "offline"


class ModelSettings(BaseSettings):
    """How to reach a model.

    A service subclasses this to give `model` its own variable and default. Durations are seconds.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    chosen_provider: Provider | None = Field(default=None, validation_alias="ERRATA_LLM_PROVIDER")
    """openai or offline; without it, openai when there is a key or an address, else offline."""
    api_key: SecretStr | None = Field(default=None, validation_alias="OPENAI_API_KEY")
    """The key. Not needed together with a base URL of a server that takes none."""
    base_url: str = Field(default=OPENAI_URL, validation_alias="OPENAI_BASE_URL")
    """Any OpenAI-compatible API."""
    model: str = Field(default="gpt-4o-mini", min_length=1, validation_alias="ERRATA_LLM_MODEL")
    """The model."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=3600, validation_alias="ERRATA_LLM_TIMEOUT_SECONDS")
    """Longest that one model call may take, queueing and retries included."""
    max_attempts: int = Field(default=4, ge=1, le=10, validation_alias="ERRATA_LLM_MAX_ATTEMPTS")
    """HTTP requests for one model call, at most."""
    max_concurrency: int = Field(default=16, ge=1, le=1024, validation_alias="ERRATA_LLM_MAX_CONCURRENCY")
    """Requests in flight from one process, at most."""
    max_output_tokens: int | None = Field(default=None, ge=1, le=1_000_000, validation_alias="ERRATA_LLM_MAX_OUTPUT_TOKENS")
    """Longest answer of a model, in tokens. One that is cut off there fails as MODEL_TRUNCATED. Small models need a bound: left
    alone, they write until their context is full. Without it, the endpoint's own bound holds."""

    @property
    def provider(self) -> Provider:
        """The provider to use: as chosen, else openai when there is a key or an address, else offline."""
        if self.chosen_provider is not None:
            return self.chosen_provider
        return Provider.OPENAI if self.reachable() else Provider.OFFLINE

    @field_validator("base_url")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("OPENAI_BASE_URL must be an address such as http://localhost:8080/v1")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _has_what_openai_needs(self) -> Self:
        if self.chosen_provider is Provider.OPENAI and not self.reachable():
            raise ValueError("ERRATA_LLM_PROVIDER=openai needs OPENAI_API_KEY or OPENAI_BASE_URL")
        return self

    def reachable(self) -> bool:
        """Whether there is a key or an address."""
        return self.api_key is not None or self.base_url != OPENAI_URL
