"""The Qdrant server's failures: what the caller sees, and that the driver's text stays out of it."""

import grpc
import pytest

from errata_kit.errors import CollectionNotFound, EmbeddingMismatch, IndexUnavailable
from errata_kit.search import SearchMode
from services.retriever.index.base import EmbeddingSpace, SearchQuery
from services.retriever.index.qdrant_server import QdrantServerIndex
from tests.harness.qdrant_server import QdrantTestServer

SPACE = EmbeddingSpace("m", 4)


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_a_failing_server_is_index_unavailable_without_its_text(status: grpc.StatusCode) -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection("c", SPACE)
        server.failing = status
        with pytest.raises(IndexUnavailable) as caught:
            await index.search("c", SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0)))
        assert "segment 17" not in caught.value.message
        assert status.name in caught.value.message
        server.failing = None
        assert await index.search("c", SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0))) == []
        await index.close()


async def test_a_server_that_is_not_there_is_index_unavailable() -> None:
    async with QdrantTestServer() as server:
        url = server.url
    index = QdrantServerIndex.connect(url, timeout_seconds=1)
    with pytest.raises(IndexUnavailable):
        await index.list_collections()
    await index.close()


async def test_a_search_is_one_call_once_the_collection_is_known() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection("c", SPACE)
        server.calls.clear()
        for _ in range(3):
            await index.embedding_space("c")
            await index.search("c", SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0)))
        assert server.calls == {"Query": 3}
        await index.close()


async def test_collections_of_others_are_left_out_and_left_alone() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection("ours", SPACE)
        made = server.collections["ours"].made_with
        made.metadata.clear()
        assert await index.list_collections() == []
        other = QdrantServerIndex.connect(server.url)
        with pytest.raises(CollectionNotFound):
            await other.delete_collection("ours")
        with pytest.raises(EmbeddingMismatch):
            await other.ensure_collection("ours", SPACE)
        assert "ours" in server.collections
        await other.close()
        await index.close()


async def test_payload_indexes_that_a_cut_short_creation_left_out_are_made() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection("c", SPACE)
        made = set(server.collections["c"].schema)
        server.collections["c"].schema.pop("document_id")
        await index.ensure_collection("c", SPACE)
        assert set(server.collections["c"].schema) == made
        server.calls.clear()
        await index.ensure_collection("c", SPACE)
        assert "CreateFieldIndex" not in server.calls
        await index.close()
