"""Vectors that are remembered: the same text is embedded once, and what comes back is what the model gave."""

import asyncio
import math
import struct
from array import array
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.access.principals import Principal
from errata_kit.caching.keys import cache_key
from errata_kit.caching.local import LocalBounds, LocalCache
from errata_kit.calls import enter_call
from errata_kit.errors import EmbeddingFailed
from errata_kit.metrics import Metrics
from services.retriever.documents import SourceDocument
from services.retriever.embedding.base import Vector
from services.retriever.embedding.caching import CachingEmbedder, VectorCodec
from services.retriever.embedding.local import LocalEmbedder
from services.retriever.embedding.none import NoEmbedder
from services.retriever.index.edge import EdgeIndex
from services.retriever.ingest import IngestFailure, Ingestor, IngestResult
from services.retriever.opening import open_embedder
from services.retriever.settings import RetrieverSettings
from tests.harness.passages import collection


class CountingEmbedder:
    dimensions: int = 3

    def __init__(self, name: str = "counting") -> None:
        self.name = name
        self.requests: list[list[str]] = []
        self.failing = False
        self.warmed = self.closed = 0

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.requests.append(list(texts))
        await asyncio.sleep(0.001)
        if self.failing:
            raise EmbeddingFailed("no model", {"embedder": self.name})
        return [[float(len(text)), 0.5, 0.1] for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return [-number for number in (await self.embed_passages([text]))[0]]

    async def warm_up(self) -> None:
        self.warmed += 1

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def inner() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def cache() -> LocalCache:
    return LocalCache(LocalBounds(1000, 10_000_000, 60.0))


@pytest.fixture
def embedder(inner: CountingEmbedder, cache: LocalCache) -> CachingEmbedder:
    return CachingEmbedder(inner, cache)


async def test_only_what_is_new_is_embedded_and_each_text_once(embedder: CachingEmbedder, inner: CountingEmbedder) -> None:
    first = await embedder.embed_passages(["a", "bb", "a"])
    assert first == [[1.0, 0.5, 0.1], [2.0, 0.5, 0.1], [1.0, 0.5, 0.1]]
    assert await embedder.embed_passages(["bb", "ccc", "a"]) == [first[1], [3.0, 0.5, 0.1], first[0]]
    assert await embedder.embed_passages(["a", "bb"]) == first[:2]
    assert await embedder.embed_passages([]) == []
    assert inner.requests == [["a", "bb"], ["ccc"]]


async def test_a_query_and_a_passage_of_the_same_text_are_two_things(
    embedder: CachingEmbedder, inner: CountingEmbedder
) -> None:
    for _ in range(3):
        assert await embedder.embed_query("a") == [-1.0, -0.5, -0.1]
        assert await embedder.embed_passages(["a"]) == [[1.0, 0.5, 0.1]]
    assert inner.requests == [["a"], ["a"]]


async def test_equal_queries_at_the_same_moment_are_embedded_once(embedder: CachingEmbedder, inner: CountingEmbedder) -> None:
    assert await asyncio.gather(*(embedder.embed_query("a") for _ in range(20))) == [[-1.0, -0.5, -0.1]] * 20
    assert inner.requests == [["a"]]


async def test_tenants_and_models_share_nothing(embedder: CachingEmbedder, inner: CountingEmbedder, cache: LocalCache) -> None:
    async def ask(tenant: str, asked: CachingEmbedder) -> None:
        enter_call("", "", None, principal=Principal("somebody", tenant))
        await asked.embed_query("a")

    other = CachingEmbedder(CountingEmbedder("other"), cache)
    for tenant, asked in (("acme", embedder), ("globex", embedder), ("acme", other), ("acme", embedder)):
        await asyncio.create_task(ask(tenant, asked))
    assert inner.requests == [["a"], ["a"]]


async def test_a_failure_is_not_remembered(embedder: CachingEmbedder, inner: CountingEmbedder) -> None:
    inner.failing = True
    for _ in range(2):
        with pytest.raises(EmbeddingFailed):
            await embedder.embed_passages(["a", "bb"])
    inner.failing = False
    assert len(await embedder.embed_passages(["a", "bb"])) == 2
    assert len(inner.requests) == 3


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"f",
        b"f" + bytes(11),
        b"f" + bytes(16),
        b"d" + bytes(12),
        b"x" + bytes(12),
        b"f" + struct.pack("<3f", 1.0, math.nan, 1.0),
        b"f" + struct.pack("<3f", 1.0, math.inf, -math.inf),
        b"[1,2,3]",
    ],
)
async def test_what_is_no_vector_of_this_model_is_embedded_again(
    embedder: CachingEmbedder, inner: CountingEmbedder, cache: LocalCache, stored: bytes
) -> None:
    await cache.put_many({cache_key("embedding", "counting", "3", "passage", "a"): stored})
    assert await embedder.embed_passages(["a"]) == await embedder.embed_passages(["a"]) == [[1.0, 0.5, 0.1]]
    assert inner.requests == [["a"]]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=8))
def test_single_precision_comes_back_bit_by_bit_in_four_bytes(vector: list[float]) -> None:
    stored = VectorCodec(len(vector)).dump(vector)
    assert len(stored) == 1 + 4 * len(vector)
    assert array("d", VectorCodec(len(vector)).load(stored)).tobytes() == array("d", vector).tobytes()


@given(st.lists(st.floats(min_value=-1e300, max_value=1e300), min_size=1, max_size=8))
def test_double_precision_comes_back_bit_by_bit(vector: list[float]) -> None:
    codec = VectorCodec(len(vector))
    assert array("d", codec.load(codec.dump(vector))).tobytes() == array("d", vector).tobytes()


async def test_the_packaged_model_gives_what_fits_into_single_precision(cache: LocalCache) -> None:
    embedder = CachingEmbedder(LocalEmbedder(), cache)
    try:
        made = await embedder.embed_query("How long are backups kept?")
        assert await embedder.embed_query("How long are backups kept?") == made
        assert len(VectorCodec(len(made)).dump(made)) == 1 + 4 * len(made)
    finally:
        await embedder.close()


async def test_warming_up_and_closing_reach_the_model(embedder: CachingEmbedder, inner: CountingEmbedder) -> None:
    await embedder.warm_up()
    await embedder.close()
    assert (inner.warmed, inner.closed, embedder.name, embedder.dimensions) == (1, 1, "counting", 3)


async def test_a_document_that_comes_to_another_collection_is_not_embedded_again(
    embedder: CachingEmbedder, inner: CountingEmbedder, tmp_path: Path
) -> None:
    index = await EdgeIndex.open(tmp_path)
    text = "# Handbook\n\n" + "\n\n".join(f"## Section {n}\n\n" + f"Chunk {n} explains the scheduler. " * 8 for n in range(6))

    async def documents() -> AsyncIterator[SourceDocument | IngestFailure]:
        yield SourceDocument("handbook", text.encode(), source_uri="handbook.md")

    try:
        for name in ("first", "second"):
            [result] = [each async for each in Ingestor(index, embedder).ingest(collection(name), documents())]
            assert isinstance(result, IngestResult) and result.chunks_embedded > 3
    finally:
        await index.close()
    assert len(inner.requests) == 1


def lookups(metrics: Metrics) -> tuple[float, float]:
    counter = metrics.cache_requests
    return counter.labels("embeddings", "hit")._value.get(), counter.labels("embeddings", "miss")._value.get()


async def test_what_the_settings_open() -> None:
    metrics = Metrics()
    default = open_embedder(RetrieverSettings.model_validate({}), metrics)
    try:
        assert isinstance(default, CachingEmbedder)
        for _ in range(3):
            await default.embed_query("a")
        await default.embed_passages(["a", "b"])
        assert lookups(metrics) == (2, 3)
    finally:
        await default.close()
    off = open_embedder(RetrieverSettings.model_validate({"ERRATA_CACHE_ENTRIES": 0}), Metrics())
    assert isinstance(off, LocalEmbedder)
    await off.close()
    sparse = RetrieverSettings.model_validate({"RETRIEVER_EMBEDDING_PROVIDER": "none"})
    assert isinstance(open_embedder(sparse, Metrics()), NoEmbedder)
