"""Settings of the retriever."""

from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, model_validator

from errata_kit.caching.settings import CacheSettings
from errata_kit.llm.settings import ModelSettings
from errata_kit.settings import ServiceSettings, default_data_dir


class EmbeddingProvider(StrEnum):
    """What makes dense vectors."""

    LOCAL = "local"
    OPENAI = "openai"
    NONE = "none"


class RetrieverSettings(ServiceSettings, ModelSettings, CacheSettings):
    """Where the index is, what embeds, and where vectors are remembered."""

    port: int = Field(50052, validation_alias="RETRIEVER_PORT", ge=0, le=65535)
    """gRPC port; 0 takes a free one."""
    metrics_port: int = Field(9092, validation_alias="RETRIEVER_METRICS_PORT", ge=0, le=65535)
    """Prometheus port; 0 takes a free one."""
    data_dir: Path = Field(default_factory=default_data_dir, validation_alias="ERRATA_DATA_DIR")
    """Where the embedded index keeps its data."""
    qdrant_url: str = Field("", validation_alias="QDRANT_URL")
    """A Qdrant server, such as http://qdrant:6333; empty means the embedded engine."""
    qdrant_api_key: SecretStr | None = Field(None, validation_alias="QDRANT_API_KEY")
    """The server's key."""
    qdrant_replication_factor: int = Field(1, validation_alias="RETRIEVER_QDRANT_REPLICATION_FACTOR", ge=1, le=32)
    """Copies that a Qdrant cluster keeps of each shard of a collection that is made; existing ones keep theirs."""
    qdrant_write_consistency: int = Field(1, validation_alias="RETRIEVER_QDRANT_WRITE_CONSISTENCY", ge=1, le=32)
    """Copies that must have taken a write before it counts; at most as many as there are."""
    qdrant_shards: int = Field(0, validation_alias="RETRIEVER_QDRANT_SHARDS", ge=0, le=256)
    """Shards of a collection that is made; 0 leaves it to the server, which takes one a node."""
    embedding_provider: EmbeddingProvider = Field(EmbeddingProvider.LOCAL, validation_alias="RETRIEVER_EMBEDDING_PROVIDER")
    """local: the packaged encoder, no network. openai: an OpenAI-compatible API. none: sparse search only."""
    model: str = Field("text-embedding-3-small", validation_alias="RETRIEVER_EMBEDDING_MODEL", min_length=1)
    """The embedding model of the openai provider."""
    embedding_dimensions: int = Field(1536, validation_alias="RETRIEVER_EMBEDDING_DIMENSIONS", ge=1, le=8192)
    """Size of its vectors."""
    embedding_threads: int = Field(2, validation_alias="RETRIEVER_EMBEDDING_THREADS", ge=1, le=64)
    """CPU threads of the local provider."""

    @model_validator(mode="after")
    def _can_write(self) -> Self:
        if self.qdrant_write_consistency > self.qdrant_replication_factor:
            raise ValueError("RETRIEVER_QDRANT_WRITE_CONSISTENCY must be at most RETRIEVER_QDRANT_REPLICATION_FACTOR")
        return self

    @model_validator(mode="after")
    def _can_embed(self) -> Self:
        if self.embedding_provider is EmbeddingProvider.OPENAI and not self.reachable():
            raise ValueError("RETRIEVER_EMBEDDING_PROVIDER=openai needs OPENAI_API_KEY or OPENAI_BASE_URL")
        return self
