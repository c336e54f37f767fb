"""Ingestion over the embedded engine, with an embedder that counts: what is embedded, kept and deleted."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio

from errata_kit.errors import DocumentRejected, EmbeddingFailed, EmbeddingMismatch, IndexUnavailable, InvalidFields
from errata_kit.search import SearchMode
from services.retriever.documents import SourceDocument
from services.retriever.embedding.base import Vector
from services.retriever.embedding.none import NoEmbedder
from services.retriever.index.edge import EdgeIndex
from services.retriever.ingest import IngestFailure, Ingestor, IngestResult
from services.retriever.search import Searcher
from tests.harness.passages import collection

C = collection("c")
SENTENCE = "Chunk {} of the handbook explains how the scheduler picks a node for each task. "


class CountingEmbedder:
    name: str = "counting"
    dimensions: int = 4

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.requests = 0
        self.failing = False

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.requests += 1
        await asyncio.sleep(0.01)
        if self.failing:
            raise EmbeddingFailed("no model", {"embedder": self.name})
        self.texts.extend(texts)
        return [[1.0, float(len(text) % 7), 0.5, 0.1] for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return [1.0, 1.0, 1.0, 1.0]


@pytest_asyncio.fixture
async def index(tmp_path: Path) -> AsyncIterator[EdgeIndex]:
    index = await EdgeIndex.open(tmp_path)
    yield index
    await index.close()


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


def handbook(sections: int, document_id: str = "handbook", intro: str = "Intro.") -> SourceDocument:
    parts = [f"## Section {n}\n\n" + SENTENCE.format(n) * 4 for n in range(sections)]
    text = f"# Handbook\n\n{intro} {SENTENCE * 3}\n\n" + "\n\n".join(parts)
    return SourceDocument(document_id, text.encode(), source_uri=f"{document_id}.md")


async def ingest(ingestor: Ingestor, *sources: SourceDocument) -> list[IngestResult | IngestFailure]:
    async def stream() -> AsyncIterator[SourceDocument]:
        for source in sources:
            yield source

    return [result async for result in ingestor.ingest(C, stream())]


async def test_ingesting_again_embeds_nothing(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    ingestor = Ingestor(index, embedder)
    first = await ingest(ingestor, handbook(6))
    assert first == [IngestResult("handbook", 7, 7, 0, 0)]
    assert await ingest(ingestor, handbook(6)) == [IngestResult("handbook", 7, 0, 7, 0)]
    assert len(embedder.texts) == 7
    assert embedder.texts[3].startswith("Handbook\n## Section 2")


async def test_an_edit_embeds_only_what_changed_and_moves_the_rest(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    ingestor = Ingestor(index, embedder)
    await ingest(ingestor, handbook(6))
    edited = handbook(5, intro="Another intro\nof two lines.")
    assert await ingest(ingestor, edited) == [IngestResult("handbook", 6, 1, 5, 2)]
    found, _ = await Searcher(index, embedder).search(C, "section 4", SearchMode.SPARSE, 1)
    source = edited.content.decode().split("\n")
    chunk = found[0].passage.chunk
    assert chunk.text.startswith("## Section 4")
    assert source[chunk.start_line - 1] == "## Section 4"
    assert len(await index.stored_chunks(C, "handbook")) == 6


async def test_other_metadata_is_written_without_embedding(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    ingestor = Ingestor(index, embedder)
    source = handbook(3)
    await ingest(ingestor, source)
    changed = SourceDocument("handbook", source.content, metadata={"team": "infra"}, source_uri="handbook.md")
    assert await ingest(ingestor, changed) == [IngestResult("handbook", 4, 0, 4, 0)]
    page = await index.list_documents(C)
    assert page.documents[0].metadata == {"team": "infra"}


async def test_what_is_rejected_comes_back_by_name_and_the_rest_goes_in(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    bad = [SourceDocument("empty", b""), SourceDocument("binary", b"\0"), SourceDocument("latin", b"\xe9")]
    results = await ingest(Ingestor(index, embedder), bad[0], handbook(2, "a"), bad[1], bad[2], handbook(2, "b"))
    failures = {result.document_id: result.error for result in results if isinstance(result, IngestFailure)}
    assert failures.keys() == {"empty", "binary", "latin"}
    assert all(isinstance(error, DocumentRejected) for error in failures.values())
    assert [doc.document_id for doc in (await index.list_documents(C)).documents] == ["a", "b"]


async def test_a_failing_model_fails_its_documents_and_the_next_ingest_completes_them(
    index: EdgeIndex, embedder: CountingEmbedder
) -> None:
    ingestor = Ingestor(index, embedder)
    embedder.failing = True
    results = await ingest(ingestor, handbook(2, "a"), handbook(2, "b"))
    assert all(isinstance(result, IngestFailure) for result in results)
    assert len(results) == 2
    embedder.failing = False
    assert len([r for r in await ingest(ingestor, handbook(2, "a")) if isinstance(r, IngestResult)]) == 1


async def test_a_crash_before_the_deletion_leaves_nothing_after_the_next_ingest(
    index: EdgeIndex, embedder: CountingEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingestor = Ingestor(index, embedder)
    await ingest(ingestor, handbook(6))

    async def crash(*_: object) -> None:
        raise IndexUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(index, "delete_chunks", crash)
        results = await ingest(ingestor, handbook(2))
        assert isinstance(results[0], IngestFailure)
    assert len(await index.stored_chunks(C, "handbook")) == 7
    assert await ingest(ingestor, handbook(2)) == [IngestResult("handbook", 3, 0, 3, 4)]
    assert len(await index.stored_chunks(C, "handbook")) == 3


async def test_the_same_document_twice_at_once_is_embedded_once(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    results = await ingest(Ingestor(index, embedder), *[handbook(5)] * 8)
    assert sum(result.chunks_embedded for result in results if isinstance(result, IngestResult)) == 6
    assert len(embedder.texts) == 6


async def test_small_documents_share_requests_to_the_model(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    await ingest(Ingestor(index, embedder), *(handbook(1, f"d{n:03}") for n in range(200)))
    assert len(embedder.texts) == 400
    assert embedder.requests < 30


async def test_tenants_that_ingest_at_once_share_no_request_to_the_model(index: EdgeIndex) -> None:
    batches: list[str] = []

    class Recording(CountingEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
            batches.append("".join(texts))
            return await super().embed_passages(texts)

    ingestor = Ingestor(index, Recording())

    async def taken(tenant: str) -> list[IngestResult | IngestFailure]:
        async def stream() -> AsyncIterator[SourceDocument]:
            for number in range(20):
                yield SourceDocument(f"d{number}", f"Words of the {tenant}.".encode())

        return [result async for result in ingestor.ingest(collection("c", tenant), stream())]

    results = await asyncio.gather(taken("north"), taken("south"))
    assert [len(of_tenant) for of_tenant in results] == [20, 20]
    assert not [batch for batch in batches if "north" in batch and "south" in batch]


async def test_an_abandoned_stream_stops_the_work(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    async def endless() -> AsyncIterator[SourceDocument]:
        for number in range(1_000_000):
            yield handbook(1, f"d{number}")

    stream = Ingestor(index, embedder).ingest(C, endless())
    async for _ in stream:
        break
    await stream.aclose()
    before = len(embedder.texts)
    await asyncio.sleep(0.1)
    assert len(embedder.texts) <= before + 128
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_source_that_breaks_ends_the_stream_with_its_error(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    async def broken() -> AsyncIterator[SourceDocument]:
        yield handbook(1)
        raise ConnectionError("client went away")

    with pytest.raises(ConnectionError):
        async for _ in Ingestor(index, embedder).ingest(C, broken()):
            pass


async def test_another_embedder_is_a_mismatch_for_ingest_and_search(index: EdgeIndex, embedder: CountingEmbedder) -> None:
    await ingest(Ingestor(index, embedder), handbook(1))
    with pytest.raises(EmbeddingMismatch):
        await ingest(Ingestor(index, NoEmbedder()), handbook(1))
    with pytest.raises(EmbeddingMismatch):
        await Searcher(index, NoEmbedder()).search(C, "x")
    found, _ = await Searcher(index, NoEmbedder()).search(C, "scheduler", SearchMode.SPARSE)
    assert found


async def test_without_an_embedder_hybrid_search_is_sparse(index: EdgeIndex) -> None:
    await ingest(Ingestor(index, NoEmbedder()), handbook(2))
    searcher = Searcher(index, NoEmbedder())
    found, mode = await searcher.search(C, "section 1")
    assert mode is SearchMode.SPARSE
    assert found[0].passage.chunk.text.startswith("## Section 1")
    with pytest.raises(InvalidFields, match="mode"):
        await searcher.search(C, "x", SearchMode.DENSE)
