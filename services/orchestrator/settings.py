"""Settings of the orchestrator."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from errata_kit.settings import ServiceSettings, default_data_dir

_DAY = 24 * 3600.0


class OrchestratorSettings(ServiceSettings):
    """Where the other services are, where runs are kept, and how long things may take."""

    port: int = Field(50051, validation_alias="ORCHESTRATOR_PORT", ge=0, le=65535)
    """gRPC port; 0 takes a free one."""
    metrics_port: int = Field(9091, validation_alias="ORCHESTRATOR_METRICS_PORT", ge=0, le=65535)
    """Prometheus port; 0 takes a free one."""
    retriever_target: str = Field("127.0.0.1:50052", validation_alias="ORCHESTRATOR_RETRIEVER_TARGET", min_length=1)
    """The retriever: host:port, or a name that resolves to several replicas."""
    judge_target: str = Field("127.0.0.1:50053", validation_alias="ORCHESTRATOR_JUDGE_TARGET", min_length=1)
    """The judge."""
    generator_target: str = Field("127.0.0.1:50054", validation_alias="ORCHESTRATOR_GENERATOR_TARGET", min_length=1)
    """The generator."""
    run_timeout_seconds: float = Field(120.0, validation_alias="ORCHESTRATOR_RUN_TIMEOUT_SECONDS", gt=0, le=3600)
    """Longest run. A shorter deadline of the caller holds as well."""
    data_dir: Path = Field(default_factory=default_data_dir, validation_alias="ERRATA_DATA_DIR")
    """Folder of the SQLite files, when runs are not kept in PostgreSQL."""
    database_url: SecretStr | None = Field(None, validation_alias="ERRATA_DATABASE_URL")
    """PostgreSQL for runs and checkpoints: postgresql://user:password@host:5432/errata. Without it, SQLite files are used."""
    max_runs: int = Field(64, validation_alias="ORCHESTRATOR_MAX_RUNS", ge=0, le=100_000)
    """Runs that a replica works on at once; more are refused as RATE_LIMITED. 0 means no limit."""
    principal_max_runs: int = Field(0, validation_alias="ORCHESTRATOR_PRINCIPAL_MAX_RUNS", ge=0, le=100_000)
    """The same for each principal."""
    tokens_per_day: int = Field(0, validation_alias="ORCHESTRATOR_TOKENS_PER_DAY", ge=0)
    """Tokens of input and output that all runs may use from midnight to midnight UTC, in all replicas. 0 means no limit."""
    principal_tokens_per_day: int = Field(0, validation_alias="ORCHESTRATOR_PRINCIPAL_TOKENS_PER_DAY", ge=0)
    """The same for each principal."""
    segment_sentences: int = Field(4, validation_alias="ORCHESTRATOR_SEGMENT_SENTENCES", ge=0, le=100)
    """Sentences of an answer that are checked together while the rest is written. 0 checks the whole once it is written."""
    lease_seconds: float = Field(10.0, validation_alias="ORCHESTRATOR_LEASE_SECONDS", ge=0.5, le=600)
    """How long a replica that has died keeps its runs: then another one takes them up."""
    max_takeovers: int = Field(10, validation_alias="ORCHESTRATOR_MAX_TAKEOVERS", ge=0, le=1000)
    """A run that has changed hands more often is ended as FAILED: it may be what kills its replicas."""
    outage_seconds: float = Field(30.0, validation_alias="ORCHESTRATOR_OUTAGE_SECONDS", ge=0, le=3600)
    """How long a run waits for a service that can't be reached, before it ends as FAILED. Its deadline holds as well."""
    checkpoint_retention_seconds: float = Field(3600.0, validation_alias="ORCHESTRATOR_CHECKPOINT_RETENTION_SECONDS", ge=0)
    """How long checkpoints are kept after the end of a run. Nobody needs them any more by then."""
    event_retention_seconds: float = Field(90 * _DAY, validation_alias="ORCHESTRATOR_EVENT_RETENTION_SECONDS", ge=0)
    """How long the trace of a run is kept after its end. Its last event is kept as long as the run."""
    run_retention_seconds: float = Field(365 * _DAY, validation_alias="ORCHESTRATOR_RUN_RETENTION_SECONDS", ge=0)
    """How long a run is kept after its end, with its grades and model calls."""
    housekeeping_seconds: float = Field(60.0, validation_alias="ORCHESTRATOR_HOUSEKEEPING_SECONDS", gt=0, le=86_400)
    """Between two rounds of deleting what was kept long enough."""

    @field_validator("database_url")
    @classmethod
    def _is_postgresql(cls, value: SecretStr | None) -> SecretStr | None:
        # The address is not shown when it is wrong: it may hold a password.
        if value is not None and not value.get_secret_value().startswith(("postgresql://", "postgres://")):
            raise ValueError("must be an address such as postgresql://user:password@host:5432/errata")
        return value
