"""Opens the index and the embedder that the settings ask for."""

import asyncio
import functools
from typing import Final

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.caching.opening import open_cache
from errata_kit.errors import IndexUnavailable
from errata_kit.llm.openai_embeddings import EmbeddingSize
from errata_kit.llm.openai_embeddings import OpenAIEmbedder as OpenAIClient
from errata_kit.logs import get_logger
from errata_kit.metrics import Metrics
from errata_kit.minilm import MiniLM
from services.retriever.embedding.base import ServedEmbedder
from services.retriever.embedding.caching import CachingEmbedder
from services.retriever.embedding.local import LocalEmbedder
from services.retriever.embedding.none import NoEmbedder
from services.retriever.embedding.openai import OpenAIEmbedder
from services.retriever.index.base import PassageIndex
from services.retriever.index.edge import EdgeIndex
from services.retriever.settings import EmbeddingProvider, RetrieverSettings

_RETRY_SECONDS: Final = 1.0
_log = get_logger("errata.retriever")


async def open_index(settings: RetrieverSettings) -> PassageIndex:
    """The Qdrant server when QDRANT_URL is set, else the embedded engine in the data folder.

    Raises IndexUnavailable when another process holds the folder, or it can't be read or written.
    """
    if not settings.qdrant_url:
        return await EdgeIndex.open(settings.data_dir / "index")
    # Its client takes a second to import, which the embedded engine need not pay.
    from services.retriever.index.qdrant_server import Layout, QdrantServerIndex

    key = settings.qdrant_api_key.get_secret_value() if settings.qdrant_api_key else None
    layout = Layout(settings.qdrant_replication_factor, settings.qdrant_write_consistency, settings.qdrant_shards)
    return QdrantServerIndex.connect(settings.qdrant_url, key, layout=layout)


def open_embedder(settings: RetrieverSettings, metrics: Metrics) -> ServedEmbedder:
    """The embedding provider that the settings name, behind the cache that they ask for.

    Connects to nothing. Raises StartFailed when the cache can't be used.
    """
    embedder = _provider(settings, metrics)
    if settings.embedding_provider is EmbeddingProvider.NONE or settings.cache_entries == 0:
        return embedder
    return CachingEmbedder(embedder, open_cache(settings), functools.partial(metrics.record_lookups, "embeddings"))


def _provider(settings: RetrieverSettings, metrics: Metrics) -> ServedEmbedder:
    match settings.embedding_provider:
        case EmbeddingProvider.NONE:
            return NoEmbedder()
        case EmbeddingProvider.LOCAL:
            return LocalEmbedder(MiniLM(threads=settings.embedding_threads))
        case EmbeddingProvider.OPENAI:
            size = EmbeddingSize(settings.embedding_dimensions)
            return OpenAIEmbedder(
                OpenAIClient(settings, size, record=metrics.record_model_call, queue=metrics.record_model_queue)
            )


async def until_answering(index: PassageIndex) -> None:
    """Return once the index has answered. Asks again as long as it takes."""
    while True:
        try:
            await index.list_collections(DEFAULT_TENANT)
        except IndexUnavailable as error:
            _log.warning("index_unavailable", error=error.message)
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
