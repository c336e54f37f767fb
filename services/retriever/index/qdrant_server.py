"""Passages in a Qdrant server (1.16 or newer), over gRPC.

What a collection was made with is kept in the collection's own metadata, so any replica of the service reads
it there, and collections of others on the same server are told apart.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

from qdrant_client import AsyncQdrantClient, models

from errata_kit.errors import CollectionNotFound, EmbeddingMismatch, ErrataError, IndexUnavailable
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
    not_found,
    page_of,
    unit_score,
)
from services.retriever.index.payload import (
    DENSE,
    FIELD_INDEXES,
    FINGERPRINT,
    SPARSE,
    SUMMARY_FIELDS,
    TENANT,
    from_payload,
    missing_indexes,
    summarise,
    to_payload,
)
from services.retriever.index.qdrant_filters import own, own_chunks, own_first_chunks
from services.retriever.tenancy import CollectionRef, ref_of

_LOG: Final = logging.getLogger(__name__)
_EMBEDDER: Final = "errata_embedder"
_DIMENSIONS: Final = "errata_dimensions"
_ALL: Final = 1_000_000
_SCROLL_PAGE: Final = 1000
_REST_PORT: Final = 6333
_GRPC_PORT: Final = 6334
Args = ParamSpec("Args")
Result = TypeVar("Result")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Layout:
    """How a collection that is made is spread over the nodes of a cluster. Existing ones keep theirs.

    `replication_factor`: copies of each shard, from 1. `write_consistency`: copies that must have taken a write
    before it counts, 1 to `replication_factor`. `shards`: from 1; 0 leaves it to the server, which takes one a node.
    """

    replication_factor: int = 1
    write_consistency: int = 1
    shards: int = 0


class QdrantServerIndex(PassageIndex):
    """A Qdrant server behind the interface. Connects on first use."""

    def __init__(self, client: AsyncQdrantClient, url: str = "", layout: Layout | None = None) -> None:
        self._client = client
        self._url = url
        self._layout = layout or Layout()
        self._spaces: dict[CollectionRef, EmbeddingSpace] = {}
        self._indexed: dict[CollectionRef, set[str]] = {}

    @classmethod
    def connect(
        cls, url: str, api_key: str | None = None, timeout_seconds: int = 10, layout: Layout | None = None
    ) -> "QdrantServerIndex":
        """Return an index on the server at `url`, such as `http://qdrant:6333`.

        The gRPC port is 6334 where the URL names 6333 or no port, and otherwise the URL's own.
        """
        port = urlsplit(url).port
        client = AsyncQdrantClient(
            url=url,
            api_key=api_key,
            grpc_port=_GRPC_PORT if port in (None, _REST_PORT) else port,
            prefer_grpc=True,
            timeout=timeout_seconds,
            # It asks for the version over REST, from a thread, and only warns.
            check_compatibility=False,
        )
        return cls(client, url, layout)

    async def ensure_collection(self, ref: CollectionRef, embedding: EmbeddingSpace) -> CollectionInfo:
        """See `PassageIndex`."""
        if not await self._exists(ref):
            await self._create(ref, embedding)
        self._forget(ref)
        found = await self._get(ref)
        made_with = _space(found)
        if made_with is None:
            message = f"the server has a collection {ref.name!r} that was not made by this product"
            raise EmbeddingMismatch(message, {"collection": ref.name})
        check_space(ref, made_with, embedding)
        # Here and not where the collection is created: whoever created it may have died before this.
        await self._create_indexes(ref, _missing(found, FIELD_INDEXES))
        return await self._info(ref)

    async def embedding_space(self, ref: CollectionRef) -> EmbeddingSpace:
        """See `PassageIndex`."""
        if ref not in self._spaces:
            found = await self._get(ref)
            space = _space(found)
            if space is None:
                raise not_found(ref)
            # Collections from before there were tenants lack it. Search works without, so nobody has to be able to write.
            with contextlib.suppress(IndexUnavailable):
                await self._create_indexes(ref, _missing(found, {TENANT: FIELD_INDEXES[TENANT]}))
            self._spaces[ref] = space
        return self._spaces[ref]

    async def list_collections(self, tenant: str) -> Sequence[CollectionInfo]:
        """See `PassageIndex`."""
        found = await self._call(None, self._client.get_collections)
        refs = [ref for ref in map(ref_of, (item.name for item in found.collections)) if ref and ref.tenant == tenant]
        infos = []
        for ref in sorted(refs):
            self._spaces.pop(ref, None)
            # Deleted meanwhile, or made by another product.
            with contextlib.suppress(CollectionNotFound):
                infos.append(await self._info(ref))
        return infos

    async def delete_collection(self, ref: CollectionRef) -> None:
        """See `PassageIndex`."""
        self._forget(ref)
        await self.embedding_space(ref)
        await self._call(ref, self._client.delete_collection, ref.physical)
        self._forget(ref)

    async def stored_chunks(self, ref: CollectionRef, document_id: str) -> Mapping[str, str]:
        """See `PassageIndex`."""
        records = await self._scroll(ref, own(ref, Equals("document_id", document_id)), [FINGERPRINT])
        return {str(record.id): (record.payload or {})[FINGERPRINT] for record in records}

    async def upsert(self, ref: CollectionRef, passages: Sequence[EmbeddedPassage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._index_metadata(ref, [item.passage for item in batch])
            points = [_point(ref, item) for item in batch]
            await self._call(ref, self._client.upsert, ref.physical, points, wait=True)

    async def update(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._index_metadata(ref, batch)
            changes = [_overwrite(ref, passage) for passage in batch]
            await self._call(ref, self._client.batch_update_points, ref.physical, changes, wait=True)

    async def delete_chunks(self, ref: CollectionRef, chunk_ids: Sequence[str]) -> None:
        """See `PassageIndex`."""
        for batch in batches(chunk_ids):
            await self._delete(ref, own_chunks(ref, batch))

    async def delete_documents(self, ref: CollectionRef, document_ids: Sequence[str]) -> frozenset[str]:
        """See `PassageIndex`."""
        await self.embedding_space(ref)
        if not document_ids:
            return frozenset()
        of_documents = OneOf("document_id", tuple(document_ids))
        found = frozenset(await self._document_counts(ref, of_documents))
        await self._delete(ref, own(ref, of_documents))
        return found

    async def list_documents(self, ref: CollectionRef, after: str = "", limit: int = 50, prefix: str = "") -> DocumentPage:
        """See `PassageIndex`."""
        counts = await self._document_counts(ref)
        chosen, next_after = page_of(counts, after, limit, prefix)
        described: dict[str, Mapping[str, Any]] = {}
        if chosen:
            for record in await self._scroll(ref, own_first_chunks(ref, chosen), SUMMARY_FIELDS):
                described.setdefault((record.payload or {})["document_id"], record.payload or {})
        documents = tuple(summarise(item, counts[item], described.get(item, {})) for item in chosen)
        return DocumentPage(documents, next_after)

    async def search(self, ref: CollectionRef, query: SearchQuery) -> Sequence[ScoredPassage]:
        """See `PassageIndex`."""
        check_dense(query, await self.embedding_space(ref))
        rankings = query.rankings
        if not rankings:
            return []
        condition = own(ref, query.filter) if query.filter else own(ref)
        limit = query.top_k + TIE_MARGIN
        request: dict[str, Any] = {"query": _vector(query, rankings[0]), "using": _NAMES[rankings[0]]}
        if len(rankings) > 1:
            prefetches = [_prefetch(query, mode, condition) for mode in rankings]
            request = {"query": models.RrfQuery(rrf=models.Rrf(k=RRF_K)), "prefetch": prefetches}
        response = await self._call(
            ref, self._client.query_points, ref.physical, query_filter=condition, limit=limit, **request
        )
        found = [
            ScoredPassage(from_payload(str(point.id), point.payload or {}), unit_score(rankings, point.score))
            for point in response.points
        ]
        return best_first(found, query.top_k)

    async def close(self) -> None:
        """See `PassageIndex`."""
        await self._client.close()

    async def _call(
        self, needs: CollectionRef | None, call: Callable[Args, Awaitable[Result]], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Make one call; `needs` is the collection it needs, if any.

        The driver's text goes to the log only.
        """
        try:
            return await call(*args, **kwargs)
        except ErrataError:
            raise
        except Exception as error:
            if needs is not None:
                self._forget(needs)
                if _status(error) == "NOT_FOUND" and not await self._exists(needs):
                    raise not_found(needs) from error
            _LOG.exception("the Qdrant server failed")
            message = f"the Qdrant server failed or cannot be reached ({_status(error)})"
            raise IndexUnavailable(message, {"url": self._url}) from error

    async def _exists(self, ref: CollectionRef) -> bool:
        return await self._call(None, self._client.collection_exists, ref.physical)

    async def _get(self, ref: CollectionRef) -> models.CollectionInfo:
        return await self._call(ref, self._client.get_collection, ref.physical)

    async def _delete(self, ref: CollectionRef, condition: models.Filter) -> None:
        selector = models.FilterSelector(filter=condition)
        await self._call(ref, self._client.delete, ref.physical, selector, wait=True)

    def _forget(self, ref: CollectionRef) -> None:
        self._spaces.pop(ref, None)
        self._indexed.pop(ref, None)

    async def _create(self, ref: CollectionRef, embedding: EmbeddingSpace) -> None:
        size = embedding.dimensions
        dense = {DENSE: models.VectorParams(size=size, distance=models.Distance.COSINE)} if size else {}
        try:
            await self._call(
                None,
                self._client.create_collection,
                ref.physical,
                vectors_config=dense,
                sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                shard_number=self._layout.shards or None,
                replication_factor=self._layout.replication_factor,
                write_consistency_factor=self._layout.write_consistency,
                metadata={_EMBEDDER: embedding.embedder, _DIMENSIONS: size},
            )
        except IndexUnavailable:
            # Another replica may have been faster; then what it made is checked like any other collection.
            if not await self._exists(ref):
                raise

    async def _create_indexes(self, ref: CollectionRef, kinds: Mapping[str, str]) -> None:
        for path, kind in kinds.items():
            schema = _TENANT_INDEX if kind == "tenant" else models.PayloadSchemaType(kind)
            await self._call(ref, self._client.create_payload_index, ref.physical, path, schema, wait=True)

    async def _index_metadata(self, ref: CollectionRef, passages: Sequence[Passage]) -> None:
        if not any(passage.metadata for passage in passages):
            return
        if ref not in self._indexed:
            self._indexed[ref] = set((await self._get(ref)).payload_schema)
        missing = missing_indexes(passages, self._indexed[ref])
        await self._create_indexes(ref, missing)
        self._indexed.setdefault(ref, set()).update(missing)

    async def _info(self, ref: CollectionRef) -> CollectionInfo:
        space = await self.embedding_space(ref)
        counts = await self._document_counts(ref)
        return CollectionInfo(ref.name, space, len(counts), sum(counts.values()))

    async def _document_counts(self, ref: CollectionRef, *conditions: Filter) -> dict[str, int]:
        condition = own(ref, *conditions)
        response = await self._call(
            ref, self._client.facet, ref.physical, "document_id", facet_filter=condition, limit=_ALL, exact=True
        )
        return {str(hit.value): hit.count for hit in response.hits if hit.count}

    async def _scroll(self, ref: CollectionRef, condition: models.Filter, fields: list[str]) -> list[models.Record]:
        records: list[models.Record] = []
        offset: Any = None
        while True:
            page, offset = await self._call(
                ref,
                self._client.scroll,
                ref.physical,
                condition,
                limit=_SCROLL_PAGE,
                offset=offset,
                with_payload=fields,
            )
            records.extend(page)
            if offset is None:
                return records
            await asyncio.sleep(0)


_NAMES: Final = {SearchMode.DENSE: DENSE, SearchMode.SPARSE: SPARSE}
_TENANT_INDEX: Final = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)


def _point(ref: CollectionRef, item: EmbeddedPassage) -> models.PointStruct:
    vectors: dict[str, Any] = {DENSE: list(item.dense)} if len(item.dense) else {}
    vectors[SPARSE] = models.SparseVector(indices=list(item.sparse.indices), values=list(item.sparse.values))
    payload = to_payload(item.passage, ref.tenant)
    return models.PointStruct(id=item.passage.chunk.chunk_id, vector=vectors, payload=payload)


def _overwrite(ref: CollectionRef, passage: Passage) -> models.OverwritePayloadOperation:
    condition = own_chunks(ref, [passage.chunk.chunk_id])
    change = models.SetPayload(payload=to_payload(passage, ref.tenant), filter=condition)
    return models.OverwritePayloadOperation(overwrite_payload=change)


def _vector(query: SearchQuery, mode: SearchMode) -> Any:
    if mode is SearchMode.DENSE:
        return list(query.dense)
    return models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))


def _prefetch(query: SearchQuery, mode: SearchMode, condition: models.Filter) -> models.Prefetch:
    vector = _vector(query, mode)
    return models.Prefetch(query=vector, using=_NAMES[mode], filter=condition, limit=query.prefetch)


def _missing(info: models.CollectionInfo, wanted: Mapping[str, str]) -> dict[str, str]:
    return {path: kind for path, kind in wanted.items() if path not in info.payload_schema}


def _space(info: models.CollectionInfo) -> EmbeddingSpace | None:
    metadata = info.config.metadata or {}
    if _EMBEDDER not in metadata:
        return None
    return EmbeddingSpace(str(metadata[_EMBEDDER]), int(metadata[_DIMENSIONS]))


def _status(error: Exception) -> str:
    """Return the name of a gRPC status, or of the error's type, without importing the transport."""
    code = getattr(error, "code", None)
    return str(getattr(code(), "name", "UNKNOWN")) if callable(code) else type(error).__name__
