"""Joins the texts of documents that are ingested at the same time, so that small documents fill whole
requests.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from services.retriever.embedding.base import Embedder, Vector

# One request at a time: what arrives meanwhile waits together and becomes the next one.
_MAX_TEXTS: Final = 128


@dataclass(slots=True, eq=False)
class _Request:
    texts: Sequence[str]
    result: "asyncio.Future[list[Vector]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class CoalescingEmbedder:
    """Wraps an embedder for ingestion.

    Without traffic it adds no wait; a failed request fails those in it.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """See `Embedder`."""
        return self._inner.name

    @property
    def dimensions(self) -> int:
        """See `Embedder`."""
        return self._inner.dimensions

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder`.

        When the caller is cancelled, its texts are dropped unless they are on their way already.
        """
        if not texts:
            return []
        parts = [texts[start : start + _MAX_TEXTS] for start in range(0, len(texts), _MAX_TEXTS)]
        vectors: list[Vector] = []
        for part in parts:
            vectors.extend(await self._enqueue(part))
        return vectors

    async def embed_query(self, text: str) -> Vector:
        """See `Embedder`."""
        return await self._inner.embed_query(text)

    async def _enqueue(self, texts: Sequence[str]) -> Sequence[Vector]:
        request = _Request(texts)
        self._waiting.append(request)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await request.result

    async def _drain(self) -> None:
        # Lets the documents that were read in the same turn of the loop join the first request.
        await asyncio.sleep(0)
        while batch := self._take():
            try:
                vectors = await self._inner.embed_passages([text for request in batch for text in request.texts])
            except BaseException as error:
                for request in batch:
                    if not request.result.done():
                        request.result.set_exception(error) if isinstance(error, Exception) else request.result.cancel()
                if not isinstance(error, Exception):
                    raise
                continue
            at = 0
            for request in batch:
                if not request.result.done():
                    request.result.set_result(list(vectors[at : at + len(request.texts)]))
                at += len(request.texts)

    def _take(self) -> list[_Request]:
        self._waiting = [request for request in self._waiting if not request.result.done()]
        batch: list[_Request] = []
        room = _MAX_TEXTS
        while self._waiting and len(self._waiting[0].texts) <= room:
            batch.append(self._waiting.pop(0))
            room -= len(batch[-1].texts)
        return batch
