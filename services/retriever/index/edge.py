"""Passages in Qdrant's embedded engine, in a folder that this process holds alone.

The engine blocks and holds the interpreter lock, so every call goes through one worker thread and batches
stay small. Segments are not optimised: below about 50,000 passages a full scan is faster than what building a
graph would cost.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from errata_kit.errors import ErrataError, IndexUnavailable
from errata_kit.search import AllOf, AnyOf, Equals, Exists, Filter, NoneOf, OneOf, Range, SearchMode, in_utc
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
    check_name,
    check_space,
    page_of,
    unit_score,
)
from services.retriever.index.edge_store import EdgeStore, schema_types
from services.retriever.index.payload import (
    DENSE,
    FINGERPRINT,
    SPARSE,
    SUMMARY_FIELDS,
    field_path,
    from_payload,
    missing_indexes,
    range_path,
    summarise,
    to_payload,
)

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

    async def ensure_collection(self, name: str, embedding: EmbeddingSpace) -> CollectionInfo:
        """See `PassageIndex`."""
        check_name(name)
        return await self._run(self._ensure, name, embedding)

    async def embedding_space(self, name: str) -> EmbeddingSpace:
        """See `PassageIndex`."""
        self._check_open()
        return self._store.space(name)

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """See `PassageIndex`."""
        return await self._run(lambda: [self._info(name) for name in self._store.names()])

    async def delete_collection(self, name: str) -> None:
        """See `PassageIndex`."""
        await self._run(self._store.delete, name)

    async def stored_chunks(self, name: str, document_id: str) -> Mapping[str, str]:
        """See `PassageIndex`."""
        return await self._run(self._stored, name, document_id)

    async def upsert(self, name: str, passages: Sequence[EmbeddedPassage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._run(self._upsert, name, batch)

    async def update(self, name: str, passages: Sequence[Passage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._run(self._update, name, batch)

    async def delete_chunks(self, name: str, chunk_ids: Sequence[str]) -> None:
        """See `PassageIndex`."""
        for batch in batches(chunk_ids):
            await self._run(self._delete_chunks, name, batch)

    async def delete_documents(self, name: str, document_ids: Sequence[str]) -> frozenset[str]:
        """See `PassageIndex`."""
        return await self._run(self._delete_documents, name, list(document_ids))

    async def list_documents(self, name: str, after: str = "", limit: int = 50, prefix: str = "") -> DocumentPage:
        """See `PassageIndex`."""
        return await self._run(self._documents, name, after, limit, prefix)

    async def search(self, name: str, query: SearchQuery) -> Sequence[ScoredPassage]:
        """See `PassageIndex`."""
        check_dense(query, await self.embedding_space(name))
        return await self._run(self._search, name, query) if query.rankings else []

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

    def _ensure(self, name: str, embedding: EmbeddingSpace) -> CollectionInfo:
        if name in self._store.names():
            check_space(name, self._store.space(name), embedding)
        else:
            self._store.create(name, embedding)
        return self._info(name)

    def _info(self, name: str) -> CollectionInfo:
        counts = self._document_counts(name)
        return CollectionInfo(name, self._store.space(name), len(counts), sum(counts.values()))

    def _stored(self, name: str, document_id: str) -> Mapping[str, str]:
        condition = translate(Equals("document_id", document_id))
        return {str(record.id): record.payload[FINGERPRINT] for record in self._scroll(name, condition, [FINGERPRINT])}

    def _scroll(self, name: str, condition: "engine.Filter", fields: list[str]) -> "Iterator[Any]":
        import qdrant_edge as engine

        offset: Any = None
        while True:
            request = engine.ScrollRequest(
                offset=offset, limit=_SCROLL_PAGE, filter=condition, with_payload=fields, with_vector=False
            )
            records, offset = self._store.shard(name).scroll(request)
            yield from records
            if offset is None:
                return

    def _upsert(self, name: str, passages: Sequence[EmbeddedPassage]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        shard = self._store.shard(name)
        self._index_metadata(name, [item.passage for item in passages])
        points = []
        for item in passages:
            sparse = engine.SparseVector(list(item.sparse.indices), list(item.sparse.values))
            vectors: dict[str, Any] = {SPARSE: sparse} | ({DENSE: list(item.dense)} if len(item.dense) else {})
            points.append(engine.Point(item.passage.chunk.chunk_id, vectors, to_payload(item.passage)))
        shard.update(engine.UpdateOperation.upsert_points(points))

    def _update(self, name: str, passages: Sequence[Passage]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        shard = self._store.shard(name)
        self._index_metadata(name, passages)
        for passage in passages:
            ids: list[Any] = [passage.chunk.chunk_id]
            shard.update(engine.UpdateOperation.overwrite_payload(ids, to_payload(passage)))

    def _index_metadata(self, name: str, passages: Sequence[Passage]) -> None:
        import qdrant_edge as engine

        if not any(passage.metadata for passage in passages):
            return
        shard = self._store.shard(name)
        for path, kind in missing_indexes(passages, shard.info().payload_schema).items():
            shard.update(engine.UpdateOperation.create_field_index(path, schema_types()[kind]))

    def _delete_chunks(self, name: str, chunk_ids: Sequence[str]) -> None:
        import qdrant_edge as engine

        self._store.require_space()
        self._store.shard(name).update(engine.UpdateOperation.delete_points(list(chunk_ids)))

    def _delete_documents(self, name: str, document_ids: Sequence[str]) -> frozenset[str]:
        import qdrant_edge as engine

        self._store.require_space()
        if not document_ids:
            self._store.shard(name)
            return frozenset()
        condition = _documents_filter(document_ids)
        found = frozenset(self._document_counts(name, condition))
        self._store.shard(name).update(engine.UpdateOperation.delete_points_by_filter(condition))
        return found

    def _document_counts(self, name: str, condition: "engine.Filter | None" = None) -> dict[str, int]:
        import qdrant_edge as engine

        request = engine.FacetRequest("document_id", limit=_ALL, exact=True, filter=condition)
        # The engine goes on naming values whose points are all gone, with a count of 0.
        return {str(hit.value): hit.count for hit in self._store.shard(name).facet(request).hits if hit.count}

    def _documents(self, name: str, after: str, limit: int, prefix: str) -> DocumentPage:
        counts = self._document_counts(name)
        chosen, next_after = page_of(counts, after, limit, prefix)
        described: dict[str, Mapping[str, Any]] = {}
        if chosen:
            for record in self._scroll(name, _first_chunks_filter(chosen), SUMMARY_FIELDS):
                described.setdefault(record.payload["document_id"], record.payload)
        documents = tuple(summarise(item, counts[item], described.get(item, {})) for item in chosen)
        return DocumentPage(documents, next_after)

    def _search(self, name: str, query: SearchQuery) -> list[ScoredPassage]:
        import qdrant_edge as engine

        condition = translate(query.filter) if query.filter else None
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
        points = self._store.shard(name).query(request)
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


def translate(filter_: Filter) -> "engine.Filter":
    """Return the engine's filter for ours."""
    import qdrant_edge as engine

    match filter_:
        case AllOf(conditions):
            return engine.Filter(must=[translate(condition) for condition in conditions])
        case AnyOf(conditions):
            return engine.Filter(should=[translate(condition) for condition in conditions])
        case NoneOf(conditions):
            return engine.Filter(must_not=[translate(condition) for condition in conditions])
        case Exists(field, exists):
            empty = engine.IsEmptyCondition(field_path(field))
            return engine.Filter(must_not=[empty]) if exists else engine.Filter(must=[empty])
        case Equals(field, value):
            return engine.Filter(must=[engine.FieldCondition(field_path(field), match=engine.MatchValue(value))])
        case OneOf(field, values):
            return engine.Filter(must=[engine.FieldCondition(field_path(field), match=engine.MatchAny(list(values)))])
        case Range():
            return engine.Filter(must=[engine.FieldCondition(range_path(filter_), range=_range(filter_))])


def _range(condition: Range) -> "engine.RangeFloat | engine.RangeDateTime":
    import qdrant_edge as engine

    bounds: dict[str, Any] = {side: getattr(condition, side) for side in ("gt", "gte", "lt", "lte")}
    if not condition.is_time:
        return engine.RangeFloat(**bounds)
    return engine.RangeDateTime(
        **{side: in_utc(bound).isoformat() for side, bound in bounds.items() if isinstance(bound, datetime)}
    )


def _documents_filter(document_ids: Sequence[str]) -> "engine.Filter":
    return translate(OneOf("document_id", tuple(document_ids)))


def _first_chunks_filter(document_ids: Sequence[str]) -> "engine.Filter":
    import qdrant_edge as engine

    first = engine.FieldCondition("position", match=engine.MatchValue(0))
    return engine.Filter(must=[_documents_filter(document_ids), first])


Item = TypeVar("Item")
