"""Settings of access: authentication, TLS between services, and what one caller may take."""

import ipaddress
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class AuthMode(StrEnum):
    """How callers say who they are."""

    NONE = "none"
    API_KEY = "api-key"
    OIDC = "oidc"


class ClientAuth(StrEnum):
    """Whether TLS clients must show a certificate."""

    NONE = "none"
    REQUIRE = "require"


class HealthAccess(StrEnum):
    """Whether health is told on the main port. The suite's own channels ask for it, and can't authenticate while they do."""

    OPEN = "open"
    CLOSED = "closed"


class ReflectionAccess(StrEnum):
    """Who may use server reflection."""

    OPEN = "open"
    AUTHENTICATED = "authenticated"
    CLOSED = "closed"


class AccessSettings(BaseSettings):
    """Who may call, over which connection, and how much."""

    model_config = SettingsConfigDict(
        frozen=True, extra="ignore", populate_by_name=True, env_ignore_empty=True, use_attribute_docstrings=True
    )

    host: str = Field("127.0.0.1", validation_alias="ERRATA_HOST", min_length=1)
    """Address to listen on. Another one than loopback needs authentication."""
    auth: AuthMode = Field(AuthMode.NONE, validation_alias="ERRATA_AUTH")
    """none (on loopback only), api-key, or oidc."""
    api_keys_file: Path | None = Field(None, validation_alias="ERRATA_API_KEYS_FILE")
    """The file with the hashes of the API keys; `errata keys` writes it. Changes are seen within seconds."""
    oidc_issuer: str = Field("", validation_alias="ERRATA_OIDC_ISSUER")
    """The issuer of the tokens, exactly as in their claim iss."""
    oidc_audience: str = Field("", validation_alias="ERRATA_OIDC_AUDIENCE")
    """What the claim aud must hold."""
    oidc_jwks_url: str = Field("", validation_alias="ERRATA_OIDC_JWKS_URL")
    """Where the issuer's keys are; empty means that its discovery document says it."""
    oidc_principal_claim: str = Field("sub", validation_alias="ERRATA_OIDC_PRINCIPAL_CLAIM", min_length=1)
    """The claim that names the principal."""
    oidc_tenant_claim: str = Field("tenant", validation_alias="ERRATA_OIDC_TENANT_CLAIM", min_length=1)
    """The claim that names the tenant."""
    oidc_roles_claim: str = Field("roles", validation_alias="ERRATA_OIDC_ROLES_CLAIM", min_length=1)
    """The claim with the roles: a list, or words with spaces between. A dot leads into an object."""
    oidc_clock_skew_seconds: float = Field(30.0, validation_alias="ERRATA_OIDC_CLOCK_SKEW_SECONDS", ge=0, le=600)
    """How far the issuer's clock may be from ours."""
    oidc_keys_seconds: float = Field(300.0, validation_alias="ERRATA_OIDC_KEYS_SECONDS", ge=1, le=86_400)
    """How long the issuer's keys are kept. A token with an unknown key makes them be read again, at most every ten seconds."""
    identity_key_file: Path | None = Field(None, validation_alias="ERRATA_IDENTITY_KEY_FILE")
    """The orchestrator's: an Ed25519 private key (PEM) that signs on whose behalf it calls the other services."""
    identity_trust_file: Path | None = Field(None, validation_alias="ERRATA_IDENTITY_TRUST_FILE")
    """The other services': Ed25519 public keys or certificates (PEM, one or more) whose signature they accept."""
    tls_cert_file: Path | None = Field(None, validation_alias="ERRATA_TLS_CERT_FILE")
    """Certificate chain (PEM), shown to clients and, by the orchestrator, to the services. Read again when it changes."""
    tls_key_file: Path | None = Field(None, validation_alias="ERRATA_TLS_KEY_FILE")
    """Its private key (PEM)."""
    tls_ca_file: Path | None = Field(None, validation_alias="ERRATA_TLS_CA_FILE")
    """The authorities (PEM) that the other side's certificate must come from."""
    tls_client_auth: ClientAuth = Field(ClientAuth.REQUIRE, validation_alias="ERRATA_TLS_CLIENT_AUTH")
    """With TLS: require a client's certificate (mutual TLS), or none."""
    health_port: int | None = Field(None, validation_alias="ERRATA_HEALTH_PORT", ge=0, le=65535)
    """A further port without TLS that answers health checks and nothing else, for probes of Kubernetes. Empty means none."""
    health_access: HealthAccess = Field(HealthAccess.OPEN, validation_alias="ERRATA_HEALTH_ACCESS")
    """Health on the main port: open to everybody who connects, or closed. Closed, a client can't skip a replica that drains."""
    reflection_access: ReflectionAccess = Field(ReflectionAccess.AUTHENTICATED, validation_alias="ERRATA_REFLECTION_ACCESS")
    """Who may use server reflection: open, authenticated, or closed."""
    requests_per_minute: int = Field(0, validation_alias="ERRATA_REQUESTS_PER_MINUTE", ge=0, le=10_000_000)
    """Calls a minute that a process takes in all; 0 means no limit."""
    principal_requests_per_minute: int = Field(0, validation_alias="ERRATA_PRINCIPAL_REQUESTS_PER_MINUTE", ge=0, le=10_000_000)
    """Calls a minute that a process takes from one principal; 0 means no limit."""

    @field_validator(
        "api_keys_file", "identity_key_file", "identity_trust_file", "tls_cert_file", "tls_key_file", "tls_ca_file"
    )
    @classmethod
    def _is_there(cls, value: Path | None) -> Path | None:
        if value is not None and not value.is_file():
            raise ValueError("there is no such file")
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.auth is AuthMode.NONE and not self.on_loopback:
            raise ValueError(
                f"ERRATA_AUTH=none is for loopback only, and ERRATA_HOST is {self.host}: set ERRATA_AUTH to api-key or oidc"
            )
        if self.auth is AuthMode.API_KEY and self.api_keys_file is None:
            raise ValueError("ERRATA_AUTH=api-key needs ERRATA_API_KEYS_FILE")
        if self.auth is AuthMode.OIDC and not (self.oidc_issuer and self.oidc_audience):
            raise ValueError("ERRATA_AUTH=oidc needs ERRATA_OIDC_ISSUER and ERRATA_OIDC_AUDIENCE")
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("ERRATA_TLS_CERT_FILE and ERRATA_TLS_KEY_FILE go together")
        if self.tls_cert_file is not None and self.tls_client_auth is ClientAuth.REQUIRE and self.tls_ca_file is None:
            raise ValueError("ERRATA_TLS_CLIENT_AUTH=require needs ERRATA_TLS_CA_FILE")
        return self

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine reaches the service."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False
