"""Settings of the generator."""

from pydantic import Field

from errata_kit.llm.settings import ModelSettings
from errata_kit.settings import ServiceSettings


class GeneratorSettings(ServiceSettings, ModelSettings):
    """Which model writes."""

    port: int = Field(50054, validation_alias="GENERATOR_PORT", ge=0, le=65535)
    """gRPC port; 0 takes a free one."""
    metrics_port: int = Field(9094, validation_alias="GENERATOR_METRICS_PORT", ge=0, le=65535)
    """Prometheus port; 0 takes a free one."""
    model: str = Field("gpt-4o", validation_alias="GENERATOR_MODEL", min_length=1)
    """The model of the openai provider."""
    temperature: float = Field(0.2, validation_alias="GENERATOR_TEMPERATURE", ge=0, le=2)
    """Temperature of answers and corrections; queries are broadened at the same one."""
