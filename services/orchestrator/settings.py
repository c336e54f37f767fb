"""Settings of the orchestrator."""

from pydantic import Field

from errata_kit.settings import ServiceSettings


class OrchestratorSettings(ServiceSettings):
    """Where the other services are, and how long a run may take."""

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
    max_finished_runs: int = Field(1000, validation_alias="ORCHESTRATOR_MAX_FINISHED_RUNS", ge=1, le=1_000_000)
    """Runs kept after they ended; they live in memory."""
