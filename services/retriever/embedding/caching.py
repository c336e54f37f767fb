"""Remembers vectors, so that the same text is embedded once."""

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from errata_kit.caching.base import Cache
from errata_kit.caching.keys import cache_key
from errata_kit.caching.memo import Memo, Record, ignore
from services.retriever.embedding.base import ServedEmbedder, Vector

# Queries and passages are kept apart: some models embed the same text differently for the two.
_PASSAGE: Final = "passage"
_QUERY: Final = "query"
_SINGLE: Final = b"f"
_DOUBLE: Final = b"d"


class CachingEmbedder:
    """Asks an embedder for those vectors alone that are not known. What it returns is what the embedder returned, bit by bit.

    A vector is found by the tenant, the model's name, its size, and the text. record: gets hits and misses.
    """

    def __init__(self, inner: ServedEmbedder, cache: Cache, record: Record = ignore) -> None:
        self._inner = inner
        self._cache = cache
        self._memo: Memo[Vector] = Memo(cache, VectorCodec(inner.dimensions), record)

    @property
    def name(self) -> str:
        """See `Embedder`."""
        return self._inner.name

    @property
    def dimensions(self) -> int:
        """See `Embedder`."""
        return self._inner.dimensions

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        """See `Embedder`. A text that stands there twice is embedded once."""
        keys = [self._key(_PASSAGE, text) for text in texts]
        by_key = dict(zip(keys, texts, strict=True))

        async def embed(missing: tuple[str, ...]) -> Mapping[str, Vector]:
            vectors = await self._inner.embed_passages([by_key[key] for key in missing])
            return dict(zip(missing, vectors, strict=True))

        found = await self._memo.get(keys, embed)
        return [found[key].value for key in keys]

    async def embed_query(self, text: str) -> Vector:
        """See `Embedder`."""

        async def embed(missing: tuple[str, ...]) -> Mapping[str, Vector]:
            return {missing[0]: await self._inner.embed_query(text)}

        key = self._key(_QUERY, text)
        return (await self._memo.get([key], embed))[key].value

    async def warm_up(self) -> None:
        """See `ServedEmbedder`."""
        await self._inner.warm_up()

    async def close(self) -> None:
        """Close the embedder and the cache."""
        try:
            await self._inner.close()
        finally:
            await self._cache.close()

    def _key(self, use: str, text: str) -> str:
        return cache_key("embedding", self.name, str(self.dimensions), use, text)


class VectorCodec:
    """Stores a vector as its numbers, little-endian: with 4 bytes each where that loses nothing, else with 8."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def dump(self, value: Vector) -> bytes:
        """See `Codec`."""
        singles = array("f", value)
        exact = singles.tolist() == list(value)
        numbers = singles if exact else array("d", value)
        return (_SINGLE if exact else _DOUBLE) + _little_endian(numbers).tobytes()

    def load(self, stored: bytes) -> Vector:
        """See `Codec`. Raises ValueError for what is no vector of this size, or has numbers that are not finite."""
        kind, content = stored[:1], stored[1:]
        if kind not in (_SINGLE, _DOUBLE):
            raise ValueError("no vector")
        numbers = array("f" if kind == _SINGLE else "d")
        numbers.frombytes(content)
        vector = _little_endian(numbers).tolist()
        # The sum of numbers is finite only if each of them is.
        if len(vector) != self._dimensions or not math.isfinite(sum(vector)):
            raise ValueError("no vector of this size")
        return vector


def _little_endian(numbers: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
