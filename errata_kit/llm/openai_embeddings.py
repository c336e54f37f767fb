"""Embedding models behind an OpenAI-compatible API, through langchain-openai."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from errata_kit.errors import EmbeddingFailed, EmbeddingMismatch
from errata_kit.llm.call import Call, CallPlan, CallRules
from errata_kit.llm.openai_connection import Endpoint, OpenAIConnection
from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings
from errata_kit.llm.usage import UsageRecorder, ignore_usage
from errata_kit.usage import ModelCall

if TYPE_CHECKING:
    from langchain_openai import OpenAIEmbeddings

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

    The library does not pass the endpoint's usage on, so the tokens are estimates. It also takes the vectors
    in the order they come, as every server known sends them in the order of the texts.

    Args:
        settings: where the model is, and the bounds of a request.
        size: what the vectors must have.
        record: gets the usage of every request once.
        retry: overrides the policy that the settings describe.
    """

    def __init__(
        self,
        settings: ModelSettings,
        size: EmbeddingSize,
        *,
        record: UsageRecorder = ignore_usage,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._size = size
        policy = retry or RetryPolicy(max_attempts=settings.max_attempts)
        self._rules = CallRules(policy, PriceList(settings.base_url), record)
        self._connection: OpenAIConnection[OpenAIEmbeddings] = OpenAIConnection(
            settings, self._build, max_response_bytes=_MAX_RESPONSE_BYTES
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
            EmbeddingFailed: the endpoint sent too few or too many vectors, or one with NaN in it.
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
            vectors = await client.aembed_documents(list(texts), chunk_size=len(texts))
        self._check(vectors, len(texts))
        return vectors

    def _check(self, vectors: list[list[float]], wanted: int) -> None:
        if len(vectors) != wanted:
            raise EmbeddingFailed(metadata={"cause": "count"}, detail=f"{len(vectors)} vectors for {wanted} texts")
        for vector in vectors:
            if len(vector) != self._size.dimensions:
                sizes = {"expected": str(self._size.dimensions), "actual": str(len(vector))}
                raise EmbeddingMismatch(metadata=sizes)
            if not all(map(math.isfinite, vector)):
                raise EmbeddingFailed(metadata={"cause": "not_finite"})

    def _build(self, endpoint: Endpoint) -> OpenAIEmbeddings:
        # This runs in a thread: whatever is slow the first time is done here, not in the event loop.
        from langchain_openai import OpenAIEmbeddings

        self._rules.prices.load()
        return OpenAIEmbeddings(
            model=self._settings.model,
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            http_async_client=endpoint.http,
            timeout=endpoint.timeout,
            dimensions=self._size.dimensions if self._size.shortened else None,
            max_retries=0,
            check_embedding_ctx_length=False,
            openai_proxy=None,
        )
