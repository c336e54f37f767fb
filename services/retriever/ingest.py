"""Brings documents into a collection: embeds what is new, keeps what is there, and deletes what is gone."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from errata_kit.errors import ErrataError
from services.retriever.chunking.chunker import Chunk, Chunker, embedding_text
from services.retriever.documents import Document, SourceDocument, read_document
from services.retriever.embedding.base import Embedder
from services.retriever.embedding.coalescing import CoalescingEmbedder
from services.retriever.index.base import EmbeddedPassage, EmbeddingSpace, Passage, PassageIndex
from services.retriever.index.payload import fingerprint
from services.retriever.index.sparse import SparseEncoder
from services.retriever.tenancy import CollectionRef

# Documents read ahead: enough that small ones fill a request of the embedder, few enough to hold 32 times 4
# MiB.
_IN_FLIGHT: Final = 32
# Passages embedded and stored at a time, so that a long document neither fills memory nor loses all to a
# failure.
_STORE_BATCH: Final = 128


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What became of one document. `chunks_total` = `chunks_embedded` + `chunks_unchanged`."""

    document_id: str
    chunks_total: int
    chunks_embedded: int
    chunks_unchanged: int
    chunks_deleted: int


@dataclass(frozen=True, slots=True)
class IngestFailure:
    """One document that did not go in, and why. The others are not affected."""

    document_id: str
    error: ErrataError


@dataclass(frozen=True, slots=True)
class IngestPlan:
    """What to do for one document: embed and store, rewrite without embedding, leave, delete (chunk ids)."""

    embed: tuple[Passage, ...]
    rewrite: tuple[Passage, ...]
    keep: tuple[Passage, ...]
    delete: tuple[str, ...]


def plan_ingest(passages: Sequence[Passage], stored: Mapping[str, str]) -> IngestPlan:
    """Compare a document's passages with the stored ones (fingerprint by chunk id).

    A chunk's id follows from its content, so an id that is stored has its vectors already; where only its
    place, its document's metadata or title moved, what is stored about it is rewritten and nothing is
    embedded.
    """
    embed = tuple(passage for passage in passages if passage.chunk.chunk_id not in stored)
    known = [passage for passage in passages if passage.chunk.chunk_id in stored]
    same = {p.chunk.chunk_id for p in known if stored[p.chunk.chunk_id] == fingerprint(p)}
    return IngestPlan(
        embed=embed,
        rewrite=tuple(passage for passage in known if passage.chunk.chunk_id not in same),
        keep=tuple(passage for passage in known if passage.chunk.chunk_id in same),
        delete=tuple(sorted(stored.keys() - {passage.chunk.chunk_id for passage in passages})),
    )


class Ingestor:
    """Ingests documents into the collections of one index.

    One per process: it serialises work on the same document.
    """

    def __init__(
        self,
        index: PassageIndex,
        embedder: Embedder,
        chunker: Chunker | None = None,
        sparse: SparseEncoder | None = None,
    ) -> None:
        self._index = index
        self._embedder = CoalescingEmbedder(embedder)
        self._chunker = chunker or Chunker()
        self._sparse = sparse or SparseEncoder()
        self._locks: dict[tuple[CollectionRef, str], tuple[asyncio.Lock, int]] = {}

    async def ingest(
        self, collection: CollectionRef, documents: AsyncIterable[SourceDocument | IngestFailure]
    ) -> AsyncGenerator[IngestResult | IngestFailure, None]:
        """Ingest a stream of documents; yield one result each, as they finish. The collection is created if missing.

        A failure in the stream is passed through.

        Raises:
            InvalidFields, EmbeddingMismatch, IndexUnavailable: for the collection, before any document is
            read.
        """
        space = EmbeddingSpace(self._embedder.name, self._embedder.dimensions)
        await self._index.ensure_collection(collection, space)
        results: asyncio.Queue[IngestResult | IngestFailure | None] = asyncio.Queue()
        reader = asyncio.create_task(self._read(collection, documents, results))
        try:
            while (result := await results.get()) is not None:
                yield result
            await reader
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(
        self,
        collection: CollectionRef,
        documents: AsyncIterable[SourceDocument | IngestFailure],
        results: "asyncio.Queue[IngestResult | IngestFailure | None]",
    ) -> None:
        room = asyncio.Semaphore(_IN_FLIGHT)

        async def work(source: SourceDocument) -> None:
            try:
                results.put_nowait(await self.ingest_one(collection, source))
            except ErrataError as error:
                results.put_nowait(IngestFailure(source.document_id, error))
            finally:
                room.release()

        try:
            async with asyncio.TaskGroup() as group:
                await room.acquire()
                async for source in documents:
                    if isinstance(source, IngestFailure):
                        results.put_nowait(source)
                        continue
                    group.create_task(work(source))
                    await room.acquire()
        except BaseExceptionGroup as failures:
            # Who sends the documents expects the error that broke their stream, not a group of one.
            raise failures.exceptions[0] from failures
        finally:
            results.put_nowait(None)

    async def ingest_one(self, collection: CollectionRef, source: SourceDocument) -> IngestResult:
        """Ingest one document into a collection that exists. Ingesting it again changes nothing.

        Raises:
            DocumentRejected: it is empty, binary, not UTF-8 or too large.
            CollectionNotFound, EmbeddingFailed, IndexUnavailable: as their names say. What was stored until
            then stays,
                and the next ingestion goes on from there.
        """
        passages = await asyncio.to_thread(self._passages, collection, source)
        async with self._alone(collection, source.document_id):
            stored = await self._index.stored_chunks(collection, source.document_id)
            plan = plan_ingest(passages, stored)
            for start in range(0, len(plan.embed), _STORE_BATCH):
                await self._embed(collection, plan.embed[start : start + _STORE_BATCH])
            if plan.rewrite:
                await self._index.update(collection, plan.rewrite)
            # Last: until the new passages are in, the old ones still answer.
            if plan.delete:
                await self._index.delete_chunks(collection, plan.delete)
        embedded, unchanged = len(plan.embed), len(plan.rewrite) + len(plan.keep)
        return IngestResult(source.document_id, len(passages), embedded, unchanged, len(plan.delete))

    def _passages(self, collection: CollectionRef, source: SourceDocument) -> list[Passage]:
        document = read_document(source)
        chunks = self._chunker.chunk(collection, document)
        return [_passage(document, chunk) for chunk in chunks]

    async def _embed(self, collection: CollectionRef, passages: Sequence[Passage]) -> None:
        texts = [embedding_text(item.title, item.chunk.heading_path, item.chunk.text) for item in passages]
        vectors = await self._embedder.embed_passages(collection.tenant, texts)
        embedded = [
            EmbeddedPassage(passage, vector, self._sparse.passage(text))
            for passage, vector, text in zip(passages, vectors, texts, strict=True)
        ]
        await self._index.upsert(collection, embedded)

    @asynccontextmanager
    async def _alone(self, collection: CollectionRef, document_id: str) -> AsyncIterator[None]:
        key = (collection, document_id)
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)


def _passage(document: Document, chunk: Chunk) -> Passage:
    return Passage(chunk, document.title, document.source_uri, document.metadata)
