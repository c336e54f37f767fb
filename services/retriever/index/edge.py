"""Passages in Qdrant's embedded engine, in a folder that this process holds alone.

The engine blocks and holds the interpreter lock, so every call goes through one worker thread and batches
stay small. Segments are not optimised: below about 50,000 passages a full scan is faster than what building a
graph would cost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from errata_kit.errors import ErrataError, IndexUnavailable
from errata_kit.search import Equals, Filter, OneOf, SearchMode
from services.retriever.index.base import (
    RRF_K,
    TIE_MARGIN,
    CollectionInfo,
    DocumentPage,
    EmbeddedPassage,
    EmbeddingSpace,
    Passage,
    PassageIndex,
    ScoredPassage,
    SearchQuery,
    batches,
    best_first,
    check_dense,
    check_space,
    page_of,
    unit_score,
)
from services.retriever.index.edge_filters import own, own_chunks, own_first_chunks
from services.retriever.index.edge_store import EdgeStore, schema_types
from services.retriever.index.payload import (
    DENSE,
    FINGERPRINT,
    SPARSE,
    SUMMARY_FIELDS,
    from_payload,
    missing_indexes,
    summarise,
    to_payload,
)
from services.retriever.tenancy import CollectionRef

if TYPE_CHECKING:
    import qdrant_edge as engine

_LOG: Final = logging.getLogger(__name__)
_ALL: Final = 1_000_000
_SCROLL_PAGE: Final = 1000
Args = ParamSpec("Args")
Result = TypeVar("Result")


class EdgeIndex(PassageIndex):
    """The embedded engine behind the interface. Make it with `open`."""

    def __init__(self, store: EdgeStore) -> None:
        self._store = store
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="edge-index")
        self._closed = False

    @classmethod
    async def open(cls, folder: Path) -> "EdgeIndex":
        """Open a data folder and load its collections.

        Raises:
            FolderLocked: another process uses the folder.
            IndexUnavailable: the folder cannot be written, or what is in it cannot be read.
        """
        index = cls(EdgeStore(folder))
        try:
            await index._run(index._store.open)
        except BaseException:
            index._worker.shutdown(wait=False)
            raise
        return index

    async def ensure_collection(self, ref: CollectionRef, embedding: EmbeddingSpace) -> CollectionInfo:
        """See `PassageIndex`."""
        return await self._run(self._ensure, ref, embedding)

    async def embedding_space(self, ref: CollectionRef) -> EmbeddingSpace:
        """See `PassageIndex`."""
        self._check_open()
        return self._store.space(ref)

    async def list_collections(self, tenant: str) -> Sequence[CollectionInfo]:
        """See `PassageIndex`."""
        return await self._run(lambda: [self._info(ref) for ref in self._store.of(tenant)])

    async def delete_collection(self, ref: CollectionRef) -> None:
        """See `PassageIndex`."""
        await self._run(self._store.delete, ref)

    async def stored_chunks(self, ref: CollectionRef, document_id: str) -> Mapping[str, str]:
        """See `PassageIndex`."""
        return await self._run(self._stored, ref, document_id)

    async def upsert(self, ref: CollectionRef, passages: Sequence[EmbeddedPassage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._run(self._upsert, ref, batch)

    async def update(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._run(self._update, ref, batch)

    async def delete_chunks(self, ref: CollectionRef, chunk_ids: Sequence[str]) -> None:
        """See `PassageIndex`."""
        for batch in batches(chunk_ids):
            await self._run(self._delete_chunks, ref, batch)

    async def delete_documents(self, ref: CollectionRef, document_ids: Sequence[str]) -> frozenset[str]:
        """See `PassageIndex`."""
        return await self._run(self._delete_documents, ref, list(document_ids))

    async def list_documents(self, ref: CollectionRef, after: str = "", limit: int = 50, prefix: str = "") -> DocumentPage:
        """See `PassageIndex`."""
        return await self._run(self._documents, ref, after, limit, prefix)

    async def search(self, ref: CollectionRef, query: SearchQuery) -> Sequence[ScoredPassage]:
        """See `PassageIndex`."""
        check_dense(query, await self.embedding_space(ref))
        return await self._run(self._search, ref, query) if query.rankings else []

    async def close(self) -> None:
        """See `PassageIndex`."""
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._worker, self._store.close)
            self._worker.shutdown(wait=False)

    async def _run(self, call: Callable[Args, Result], *args: Args.args, **kwargs: Args.kwargs) -> Result:
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._worker, lambda: call(*args, **kwargs))
        except ErrataError:
            raise
        except Exception as error:
            # The engine raises plain Exception with text about its internals.
            _LOG.exception("the embedded engine failed")
            message = f"the embedded index in {self._store.folder} failed"
            raise IndexUnavailable(message, {"folder": str(self._store.folder)}) from error

    def _check_open(self) -> None:
        if self._closed:
            raise IndexUnavailable("the index is closed", {"folder": str(self._store.folder)})

    def _ensure(self, ref: CollectionRef, embedding: EmbeddingSpace) -> CollectionInfo:
        if self._store.has(ref):
            check_space(ref, self._store.space(ref), embedding)
        else:
            self._store.create(ref, embedding)
        return self._info(ref)

    def _info(self, ref: CollectionRef) -> CollectionInfo:
        counts = self._document_counts(ref)
        return CollectionInfo(ref.name, self._store.space(ref), len(counts), sum(counts.values()))

    def _stored(self, ref: CollectionRef, document_id: str) -> Mapping[str, str]:
        condition = own(ref, Equals("document_id", document_id))
        return {str(record.id): record.payload[FINGERPRINT] for record in self._scroll(ref, condition, [FINGERPRINT])}

    def _scroll(self, ref: CollectionRef, condition: "engine.Filter", fields: list[str]) -> "Iterator[Any]":
        import qdrant_edge as engine

        offset: Any = None
        while True:
            request = engine.ScrollRequest(
                offset=offset, limit=_SCROLL_PAGE, filter=condition, with_payload=fields, with_vector=False
            )
            records, offset = self._store.shard(ref).scroll(request)
            yield from records
            if offset is None:
                return

    def _upsert(self, ref: CollectionRef, passages: Sequence[EmbeddedPassage]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        shard = self._store.shard(ref)
        self._index_metadata(ref, [item.passage for item in passages])
        points = []
        for item in passages:
            sparse = engine.SparseVector(list(item.sparse.indices), list(item.sparse.values))
            vectors: dict[str, Any] = {SPARSE: sparse} | ({DENSE: list(item.dense)} if len(item.dense) else {})
            payload = to_payload(item.passage, ref.tenant)
            points.append(engine.Point(item.passage.chunk.chunk_id, vectors, payload))
        shard.update(engine.UpdateOperation.upsert_points(points))

    def _update(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        shard = self._store.shard(ref)
        self._index_metadata(ref, passages)
        for passage in passages:
            condition = own_chunks(ref, [passage.chunk.chunk_id])
            shard.update(engine.UpdateOperation.overwrite_payload_by_filter(condition, to_payload(passage, ref.tenant)))

    def _index_metadata(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        import qdrant_edge as engine

        if not any(passage.metadata for passage in passages):
            return
        shard = self._store.shard(ref)
        for path, kind in missing_indexes(passages, shard.info().payload_schema).items():
            shard.update(engine.UpdateOperation.create_field_index(path, schema_types()[kind]))

    def _delete_chunks(self, ref: CollectionRef, chunk_ids: Sequence[str]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        shard = self._store.shard(ref)
        shard.update(engine.UpdateOperation.delete_points_by_filter(own_chunks(ref, chunk_ids)))

    def _delete_documents(self, ref: CollectionRef, document_ids: Sequence[str]) -> frozenset[str]:
        import qdrant_edge as engine

        self._store.require_space()
        if not document_ids:
            self._store.shard(ref)
            return frozenset()
        of_documents = OneOf("document_id", tuple(document_ids))
        condition = own(ref, of_documents)
        found = frozenset(self._document_counts(ref, of_documents))
        self._store.shard(ref).update(engine.UpdateOperation.delete_points_by_filter(condition))
        return found

    def _document_counts(self, ref: CollectionRef, *conditions: Filter) -> dict[str, int]:
        import qdrant_edge as engine

        request = engine.FacetRequest("document_id", limit=_ALL, exact=True, filter=own(ref, *conditions))
        # The engine goes on naming values whose points are all gone, with a count of 0.
        return {str(hit.value): hit.count for hit in self._store.shard(ref).facet(request).hits if hit.count}

    def _documents(self, ref: CollectionRef, after: str, limit: int, prefix: str) -> DocumentPage:
        counts = self._document_counts(ref)
        chosen, next_after = page_of(counts, after, limit, prefix)
        described: dict[str, Mapping[str, Any]] = {}
        if chosen:
            for record in self._scroll(ref, own_first_chunks(ref, chosen), SUMMARY_FIELDS):
                described.setdefault(record.payload["document_id"], record.payload)
        documents = tuple(summarise(item, counts[item], described.get(item, {})) for item in chosen)
        return DocumentPage(documents, next_after)

    def _search(self, ref: CollectionRef, query: SearchQuery) -> list[ScoredPassage]:
        import qdrant_edge as engine

        condition = own(ref, query.filter) if query.filter else own(ref)
        nearest = {SearchMode.DENSE: self._dense(query), SearchMode.SPARSE: self._sparse(query)}
        rankings = query.rankings
        prefetches = []
        root: Any = nearest[rankings[0]]
        if len(rankings) > 1:
            prefetches = [engine.Prefetch(query.prefetch, nearest[mode], filter=condition) for mode in rankings]
            root = engine.Fusion.Rrf(RRF_K)
        request = engine.QueryRequest(
            limit=query.top_k + TIE_MARGIN,
            query=root,
            prefetches=prefetches,
            filter=condition,
            with_payload=True,
            with_vector=False,
        )
        points = self._store.shard(ref).query(request)
        found = [
            ScoredPassage(from_payload(str(point.id), point.payload or {}), unit_score(rankings, point.score))
            for point in points
        ]
        return best_first(found, query.top_k)

    def _dense(self, query: SearchQuery) -> "engine.Query":
        import qdrant_edge as engine

        return engine.Query.Nearest(list(query.dense), using=DENSE)

    def _sparse(self, query: SearchQuery) -> "engine.Query":
        import qdrant_edge as engine

        vector = engine.SparseVector(list(query.sparse.indices), list(query.sparse.values))
        return engine.Query.Nearest(vector, using=SPARSE)
