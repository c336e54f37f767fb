"""The Qdrant server's failures: what the caller sees, and that the driver's text stays out of it."""

from typing import Any

import grpc
import pytest

from errata_kit.errors import CollectionNotFound, EmbeddingMismatch, IndexUnavailable
from errata_kit.search import SearchMode
from services.retriever.index.base import EmbeddingSpace, SearchQuery
from services.retriever.index.qdrant_server import Layout, QdrantServerIndex
from services.retriever.settings import RetrieverSettings
from tests.harness.passages import collection
from tests.harness.qdrant_server import QdrantTestServer

C = collection("c")
OURS = collection("ours")
SPACE = EmbeddingSpace("m", 4)


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
async def test_a_failing_server_is_index_unavailable_without_its_text(status: grpc.StatusCode) -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection(C, SPACE)
        server.failing = status
        with pytest.raises(IndexUnavailable) as caught:
            await index.search(C, SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0)))
        assert "segment 17" not in caught.value.message
        assert status.name in caught.value.message
        server.failing = None
        assert await index.search(C, SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0))) == []
        await index.close()


async def test_a_server_that_is_not_there_is_index_unavailable() -> None:
    async with QdrantTestServer() as server:
        url = server.url
    index = QdrantServerIndex.connect(url, timeout_seconds=1)
    with pytest.raises(IndexUnavailable):
        await index.list_collections("default")
    await index.close()


async def test_a_search_is_one_call_once_the_collection_is_known() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection(C, SPACE)
        server.calls.clear()
        for _ in range(3):
            await index.embedding_space(C)
            await index.search(C, SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0)))
        assert server.calls == {"Query": 3}
        await index.close()


async def test_collections_of_others_are_left_out_and_left_alone() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection(OURS, SPACE)
        made = server.collections["ours"].made_with
        made.metadata.clear()
        assert await index.list_collections("default") == []
        other = QdrantServerIndex.connect(server.url)
        with pytest.raises(CollectionNotFound):
            await other.delete_collection(OURS)
        with pytest.raises(EmbeddingMismatch):
            await other.ensure_collection(OURS, SPACE)
        assert "ours" in server.collections
        await other.close()
        await index.close()


async def test_payload_indexes_that_a_cut_short_creation_left_out_are_made() -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection(C, SPACE)
        made = set(server.collections["c"].schema)
        server.collections["c"].schema.pop("document_id")
        await index.ensure_collection(C, SPACE)
        assert set(server.collections["c"].schema) == made
        server.calls.clear()
        await index.ensure_collection(C, SPACE)
        assert "CreateFieldIndex" not in server.calls
        await index.close()


async def test_a_collection_is_made_with_the_copies_and_shards_that_are_asked_for() -> None:
    async with QdrantTestServer() as server:
        for layout in (None, Layout(replication_factor=3, write_consistency=2, shards=6)):
            index = QdrantServerIndex.connect(server.url, layout=layout)
            await index.ensure_collection(collection("plain" if layout is None else "spread"), SPACE)
            await index.close()
        plain, spread = (server.collections[name].made_with for name in ("plain", "spread"))
    assert (spread.replication_factor, spread.write_consistency_factor, spread.shard_number) == (3, 2, 6)
    # How many shards, the server decides where nobody does.
    assert (plain.replication_factor, plain.write_consistency_factor, plain.HasField("shard_number")) == (1, 1, False)


async def test_a_collection_that_goes_while_collections_are_listed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        for name in ("a", "b"):
            await index.ensure_collection(collection(name), SPACE)
        listed = index._client.get_collections

        async def then_one_goes() -> object:
            found = await listed()
            server.collections.pop("a").shard.close()
            return found

        monkeypatch.setattr(index._client, "get_collections", then_one_goes)
        assert [info.name for info in await index.list_collections("default")] == ["b"]
        await index.close()


async def test_a_server_that_lets_nobody_make_an_index_is_searched_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with QdrantTestServer() as server:
        index = QdrantServerIndex.connect(server.url)
        await index.ensure_collection(C, SPACE)
        server.collections["c"].schema.pop("tenant")
        reader = QdrantServerIndex.connect(server.url)

        async def forbidden(*_: object, **__: object) -> None:
            raise PermissionError("read only")

        monkeypatch.setattr(reader._client, "create_payload_index", forbidden)
        assert await reader.search(C, SearchQuery(SearchMode.DENSE, 5, (1.0, 0.0, 0.0, 0.0))) == []
        await reader.close()
        await index.close()


def test_more_copies_to_write_than_there_are_stop_the_start() -> None:
    copies: dict[str, Any] = {"qdrant_replication_factor": 2}
    with pytest.raises(ValueError, match="RETRIEVER_QDRANT_WRITE_CONSISTENCY must be at most"):
        RetrieverSettings(**copies, qdrant_write_consistency=3)
    assert RetrieverSettings(**copies, qdrant_write_consistency=2).qdrant_shards == 0
