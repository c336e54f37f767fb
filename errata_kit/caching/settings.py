"""Settings of the cache, from the environment."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB: Final = 1024 * 1024
_DAY: Final = 24 * 3600.0
_SCHEMES: Final = ("redis", "rediss", "unix")


class CacheSettings(BaseSettings):
    """Where results are remembered, how many, and for how long."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    redis_url: SecretStr | None = Field(default=None, validation_alias="ERRATA_REDIS_URL")
    """Shared cache: redis://, rediss:// (TLS) or unix://. Without it each process keeps its own."""
    cache_entries: int = Field(default=20_000, ge=0, le=10_000_000, validation_alias="ERRATA_CACHE_ENTRIES")
    """Results that the cache of a process holds. 0 means no cache at all, in the process or in Redis."""
    cache_bytes: int = Field(default=64 * MIB, ge=1, le=64 * 1024 * MIB, validation_alias="ERRATA_CACHE_BYTES")
    """Memory that the cache of a process takes, about."""
    cache_ttl_seconds: float = Field(default=7 * _DAY, ge=0.001, le=366 * _DAY, validation_alias="ERRATA_CACHE_TTL_SECONDS")
    """How long a result is kept, in the process or in Redis."""

    @field_validator("redis_url")
    @classmethod
    def _is_a_redis_address(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value.get_secret_value())
            # Looked at because a port that is no number raises only then.
            place = parts.path if parts.scheme == "unix" else parts.hostname
            usable = parts.scheme in _SCHEMES and bool(place) and (parts.port is None or parts.port > 0)
        except ValueError:
            usable = False
        if not usable:
            # The address is not repeated: it may hold a password.
            raise ValueError("ERRATA_REDIS_URL must be an address such as redis://redis:6379/0")
        return value
