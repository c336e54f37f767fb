"""Embedding models behind an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import math
import sys
from array import array
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from errata_kit.errors import EmbeddingFailed, EmbeddingMismatch
from errata_kit.llm.call import Call, CallPlan, CallRules
from errata_kit.llm.openai_connection import OpenAIConnection
from errata_kit.llm.openai_wire import EmbeddingsReply, MalformedReplyError, Vector, ask
from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings
from errata_kit.llm.usage import QueueRecorder, UsageRecorder, ignore_queue, ignore_usage
from errata_kit.usage import ModelCall

_PATH = "/embeddings"
_BATCH = 96
_MAX_RESPONSE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EmbeddingSize:
    """How long the vectors are.

    Attributes:
        dimensions: numbers in each vector.
        shortened: ask the endpoint for that size; only models that can shorten (text-embedding-3) take it.
    """

    dimensions: int
    shortened: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """One vector for each text, in the order of the texts, and the usage of each request."""

    vectors: tuple[list[float], ...]
    usages: tuple[ModelCall, ...]


class OpenAIEmbedder:
    """Turns texts into vectors over HTTP, at most 96 texts a request, several requests at a time.

    Args:
        settings: where the model is, and the bounds of a request.
        size: what the vectors must have.
        record: gets the usage of every request once.
        queue: hears of requests that wait and that are under way.
        retry: overrides the policy that the settings describe.
    """

    def __init__(
        self,
        settings: ModelSettings,
        size: EmbeddingSize,
        *,
        record: UsageRecorder = ignore_usage,
        queue: QueueRecorder = ignore_queue,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._size = size
        policy = retry or RetryPolicy(max_attempts=settings.max_attempts)
        self._rules = CallRules(policy, PriceList(settings.base_url), record)
        self._connection = OpenAIConnection(
            settings, self._rules.prices.load, max_response_bytes=_MAX_RESPONSE_BYTES, queue=queue
        )

    @property
    def name(self) -> str:
        """The model that is asked for."""
        return self._settings.model

    @property
    def dimensions(self) -> int:
        """Numbers in each vector."""
        return self._size.dimensions

    async def warm_up(self) -> None:
        """Load the libraries (1.5 to 2 s, in a thread) before the first call needs them."""
        await self._connection.warm_up()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._connection.aclose()

    async def embed(self, texts: Sequence[str], *, caller_seconds: float | None = None) -> Embedded:
        """Embed texts, none of them empty.

        Args:
            texts: any number of texts, each within the model's context.
            caller_seconds: what remains of the caller's deadline; None without one.

        Raises:
            EmbeddingFailed: the endpoint sent too few or too many vectors, two for one text, or one with NaN in it.
            EmbeddingMismatch: the vectors have another size.
            ModelError: the request itself failed; as for chat models.
        """
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        tasks = [asyncio.create_task(self._embed_batch(batch, caller_seconds)) for batch in batches]
        try:
            parts = await asyncio.gather(*tasks)
        finally:
            # One failed batch fails the call: what the others would still cost is not worth having.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        vectors = tuple(vector for rows, _ in parts for vector in rows)
        return Embedded(vectors, tuple(usage for _, usage in parts))

    async def _embed_batch(self, texts: Sequence[str], caller_seconds: float | None) -> tuple[list[list[float]], ModelCall]:
        plan = CallPlan(
            model=self._settings.model,
            operation="embed",
            prompt_version="",
            prompt_characters=sum(map(len, texts)),
            timeout_seconds=self._settings.timeout_seconds,
            caller_seconds=caller_seconds,
        )
        with Call.begin(plan, self._rules) as call:
            vectors = await call.retrying(lambda: self._embed_once(call, texts))
            return vectors, call.close()

    async def _embed_once(self, call: Call, texts: Sequence[str]) -> list[list[float]]:
        async with self._connection.slot() as client:
            call.sending()
            reply = await ask(client, _PATH, self._body(texts), EmbeddingsReply)
        call.tokens = reply.tokens
        call.served_model = reply.model or ""
        if reply.data is None:
            raise MalformedReplyError("no data")
        if len(reply.data) != len(texts):
            raise EmbeddingFailed(metadata={"cause": "count"}, detail=f"{len(reply.data)} vectors for {len(texts)} texts")
        vectors = [_numbers(vector.embedding) for vector in _in_order(reply.data)]
        self._check(vectors)
        return vectors

    def _check(self, vectors: list[list[float]]) -> None:
        for vector in vectors:
            if len(vector) != self._size.dimensions:
                sizes = {"expected": str(self._size.dimensions), "actual": str(len(vector))}
                raise EmbeddingMismatch(metadata=sizes)
            if not all(map(math.isfinite, vector)):
                raise EmbeddingFailed(metadata={"cause": "not_finite"})

    def _body(self, texts: Sequence[str]) -> dict[str, Any]:
        shortened = {"dimensions": self._size.dimensions} if self._size.shortened else {}
        return {"model": self._settings.model, "input": list(texts), "encoding_format": "base64", **shortened}


def _in_order(vectors: list[Vector]) -> list[Vector]:
    """The vectors in the order of their texts; in the order they came if none says where it belongs."""
    places = [vector.index for vector in vectors]
    if all(place is None for place in places):
        return vectors
    by_place = dict(zip(places, vectors, strict=True))
    if by_place.keys() != set(range(len(vectors))):
        raise EmbeddingFailed(metadata={"cause": "index"}, detail=f"indexes {places}")
    return [by_place[place] for place in range(len(vectors))]


def _numbers(embedding: str | list[float]) -> list[float]:
    # Servers that do not know base64 send the numbers themselves.
    if isinstance(embedding, list):
        return embedding
    numbers = array("f", b64decode(embedding, validate=True))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
