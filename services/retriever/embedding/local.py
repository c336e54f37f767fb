"""The packaged MiniLM, run in this process on threads of its own."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from errata_kit.errors import EmbeddingFailed
from errata_kit.minilm import DIMENSIONS, MODEL_NAME, MiniLM
from services.retriever.embedding.base import Vector

# A cancelled ingestion stops between batches: 16 passages take about a second on one core.
_BATCH: Final = 16


class LocalEmbedder:
    """Embeds with `errata_kit.minilm`. Queries have a thread of their own: they never wait for passages."""

    name: str = MODEL_NAME
    dimensions: int = DIMENSIONS

    def __init__(self, model: MiniLM | None = None) -> None:
        self._model = model or MiniLM()
        self._passages = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-passages")
        self._queries = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embed-queries")

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder`."""
        vectors: list[Vector] = []
        for start in range(0, len(texts), _BATCH):
            vectors.extend(await self._encode(self._passages, texts[start : start + _BATCH]))
        return vectors

    async def embed_query(self, text: str) -> Vector:
        """See `Embedder`."""
        return (await self._encode(self._queries, [text]))[0]

    async def warm_up(self) -> None:
        """See `ServedEmbedder`."""
        await self.embed_query("warm up")

    async def close(self) -> None:
        """End the threads once the batches they work on are done."""
        for worker in (self._passages, self._queries):
            worker.shutdown(wait=False, cancel_futures=True)

    async def _encode(self, worker: ThreadPoolExecutor, texts: Sequence[str]) -> list[Vector]:
        try:
            loop = asyncio.get_running_loop()
            encoded = await loop.run_in_executor(worker, self._model.encode, list(texts))
        except Exception as error:
            raise EmbeddingFailed("the local embedding model failed", {"embedder": self.name}) from error
        vectors: list[Vector] = encoded.tolist()
        return vectors
