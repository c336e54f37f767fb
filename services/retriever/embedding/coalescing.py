"""Joins the texts of documents that a tenant ingests at the same time, so that small documents fill whole
requests.
"""

import asyncio
import contextvars
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from errata_kit.calls import remaining_seconds
from services.retriever.embedding.base import Embedder, Vector

# One request of a tenant at a time: what arrives meanwhile waits together and becomes the next one.
_MAX_TEXTS: Final = 128


@dataclass(slots=True, eq=False)
class _Request:
    texts: Sequence[str]
    result: "asyncio.Future[list[Vector]]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    call: contextvars.Context = field(default_factory=contextvars.copy_context)

    def patience(self) -> float:
        """Seconds that its caller still waits."""
        seconds = self.call.run(remaining_seconds)
        return math.inf if seconds is None else seconds


class CoalescingEmbedder:
    """Wraps an embedder for ingestion.

    Without traffic it adds no wait; a failed request fails those in it. That is why tenants share no request:
    nobody's text, deadline or patience decides on what another tenant gets, or when. No vector is kept.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._waiting: dict[str, list[_Request]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def name(self) -> str:
        """See `Embedder`."""
        return self._inner.name

    @property
    def dimensions(self) -> int:
        """See `Embedder`."""
        return self._inner.dimensions

    async def embed_passages(self, tenant: str, texts: Sequence[str]) -> Sequence[Vector]:
        """Return one vector per text of the tenant, in order. Raises as the method of `Embedder` does.

        When the caller is cancelled, its texts are dropped unless they are on their way already.
        """
        vectors: list[Vector] = []
        for start in range(0, len(texts), _MAX_TEXTS):
            vectors.extend(await self._enqueue(tenant, texts[start : start + _MAX_TEXTS]))
        return vectors

    async def _enqueue(self, tenant: str, texts: Sequence[str]) -> Sequence[Vector]:
        request = _Request(texts)
        waiting = self._waiting.get(tenant)
        if waiting is None:
            waiting = self._waiting[tenant] = []
            task = asyncio.create_task(self._drain(tenant, waiting))
            # The loop itself holds no task for long, and a failed one has told its callers already.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        waiting.append(request)
        return await request.result

    async def _drain(self, tenant: str, waiting: list[_Request]) -> None:
        # Lets the documents that were read in the same turn of the loop join the first request.
        await asyncio.sleep(0)
        try:
            while batch := _take(waiting):
                await self._embed(batch)
        finally:
            # What comes later starts anew; who still waits, after a cancellation, waits for nothing.
            del self._waiting[tenant]
            for request in waiting:
                request.result.cancel()

    async def _embed(self, batch: Sequence[_Request]) -> None:
        texts = [text for request in batch for text in request.texts]
        # In the name of whoever can wait longest: a caller in a hurry must not fail the others.
        call = max(batch, key=_Request.patience).call
        try:
            vectors = await asyncio.create_task(self._request(texts), context=call)
        except BaseException as error:
            for request in batch:
                if not request.result.done():
                    request.result.set_exception(error) if isinstance(error, Exception) else request.result.cancel()
            if not isinstance(error, Exception):
                raise
            return
        at = 0
        for request in batch:
            if not request.result.done():
                request.result.set_result(list(vectors[at : at + len(request.texts)]))
            at += len(request.texts)

    async def _request(self, texts: Sequence[str]) -> Sequence[Vector]:
        return await self._inner.embed_passages(texts)


def _take(waiting: list[_Request]) -> list[_Request]:
    waiting[:] = [request for request in waiting if not request.result.done()]
    batch: list[_Request] = []
    room = _MAX_TEXTS
    while waiting and len(waiting[0].texts) <= room:
        batch.append(waiting.pop(0))
        room -= len(batch[-1].texts)
    return batch
