"""Settings of the judge."""

from pydantic import Field

from errata_kit.caching.settings import CacheSettings
from errata_kit.llm.settings import ModelSettings
from errata_kit.settings import ServiceSettings


class JudgeSettings(ServiceSettings, ModelSettings, CacheSettings):
    """Which model judges, and how much at a time."""

    port: int = Field(50053, validation_alias="JUDGE_PORT", ge=0, le=65535)
    """gRPC port; 0 takes a free one."""
    metrics_port: int = Field(9093, validation_alias="JUDGE_METRICS_PORT", ge=0, le=65535)
    """Prometheus port; 0 takes a free one."""
    model: str = Field("gpt-4o-mini", validation_alias="JUDGE_MODEL", min_length=1)
    """The model of the openai provider."""
    concurrency: int = Field(8, validation_alias="JUDGE_CONCURRENCY", ge=1, le=256)
    """Batches of passages of one call that are graded at the same time."""
    batch_size: int = Field(3, validation_alias="JUDGE_BATCH_SIZE", ge=1, le=20)
    """Passages that a model grades in one call, at most. More of them cost fewer tokens and take longer."""
