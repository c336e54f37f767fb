"""Passages in a Qdrant server (1.16 or newer), over gRPC.

What a collection was made with is kept in the collection's own metadata, so any replica of the service reads
it there, and collections of others on the same server are told apart.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

from qdrant_client import AsyncQdrantClient, models

from errata_kit.errors import EmbeddingMismatch, ErrataError, IndexUnavailable
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
    not_found,
    page_of,
    unit_score,
)
from services.retriever.index.payload import (
    DENSE,
    FINGERPRINT,
    INTEGER_FIELD,
    KEYWORD_FIELDS,
    SPARSE,
    SUMMARY_FIELDS,
    field_path,
    from_payload,
    missing_indexes,
    range_path,
    summarise,
    to_payload,
)

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


class QdrantServerIndex(PassageIndex):
    """A Qdrant server behind the interface. Connects on first use."""

    def __init__(self, client: AsyncQdrantClient, url: str = "") -> None:
        self._client = client
        self._url = url
        self._spaces: dict[str, EmbeddingSpace] = {}
        self._indexed: dict[str, set[str]] = {}

    @classmethod
    def connect(cls, url: str, api_key: str | None = None, timeout_seconds: int = 10) -> "QdrantServerIndex":
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
        return cls(client, url)

    async def ensure_collection(self, name: str, embedding: EmbeddingSpace) -> CollectionInfo:
        """See `PassageIndex`."""
        check_name(name)
        if not await self._call("", self._client.collection_exists, name):
            await self._create(name, embedding)
        self._spaces.pop(name, None)
        found = await self._call(name, self._client.get_collection, name)
        made_with = _space(found)
        if made_with is None:
            message = f"the server has a collection {name!r} that was not made by this product"
            raise EmbeddingMismatch(message, {"collection": name})
        check_space(name, made_with, embedding)
        # Here and not where the collection is created: whoever created it may have died before this.
        kinds = dict.fromkeys(KEYWORD_FIELDS, "keyword") | {INTEGER_FIELD: "integer"}
        await self._create_indexes(name, {p: kind for p, kind in kinds.items() if p not in found.payload_schema})
        return await self._info(name)

    async def embedding_space(self, name: str) -> EmbeddingSpace:
        """See `PassageIndex`."""
        if name not in self._spaces:
            space = _space(await self._call(name, self._client.get_collection, name))
            if space is None:
                raise not_found(name)
            self._spaces[name] = space
        return self._spaces[name]

    async def list_collections(self) -> Sequence[CollectionInfo]:
        """See `PassageIndex`."""
        found = await self._call("", self._client.get_collections)
        infos = []
        for name in sorted(collection.name for collection in found.collections):
            space = _space(await self._call(name, self._client.get_collection, name))
            if space is not None:
                self._spaces[name] = space
                infos.append(await self._info(name))
        return infos

    async def delete_collection(self, name: str) -> None:
        """See `PassageIndex`."""
        self._forget(name)
        await self.embedding_space(name)
        await self._call(name, self._client.delete_collection, name)
        self._forget(name)

    async def stored_chunks(self, name: str, document_id: str) -> Mapping[str, str]:
        """See `PassageIndex`."""
        condition = translate(Equals("document_id", document_id))
        records = await self._scroll(name, condition, [FINGERPRINT])
        return {str(record.id): (record.payload or {})[FINGERPRINT] for record in records}

    async def upsert(self, name: str, passages: Sequence[EmbeddedPassage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._index_metadata(name, [item.passage for item in batch])
            points = [_point(item) for item in batch]
            await self._call(name, self._client.upsert, name, points, wait=True)

    async def update(self, name: str, passages: Sequence[Passage]) -> None:
        """See `PassageIndex`."""
        for batch in batches(passages):
            await self._index_metadata(name, batch)
            changes = [_overwrite(passage) for passage in batch]
            await self._call(name, self._client.batch_update_points, name, changes, wait=True)

    async def delete_chunks(self, name: str, chunk_ids: Sequence[str]) -> None:
        """See `PassageIndex`."""
        for batch in batches(chunk_ids):
            selector = models.PointIdsList(points=list(batch))
            await self._call(name, self._client.delete, name, selector, wait=True)

    async def delete_documents(self, name: str, document_ids: Sequence[str]) -> frozenset[str]:
        """See `PassageIndex`."""
        await self.embedding_space(name)
        if not document_ids:
            return frozenset()
        condition = translate(OneOf("document_id", tuple(document_ids)))
        found = frozenset(await self._document_counts(name, condition))
        selector = models.FilterSelector(filter=condition)
        await self._call(name, self._client.delete, name, selector, wait=True)
        return found

    async def list_documents(self, name: str, after: str = "", limit: int = 50, prefix: str = "") -> DocumentPage:
        """See `PassageIndex`."""
        counts = await self._document_counts(name)
        chosen, next_after = page_of(counts, after, limit, prefix)
        described: dict[str, Mapping[str, Any]] = {}
        if chosen:
            first = models.FieldCondition(key=INTEGER_FIELD, match=models.MatchValue(value=0))
            condition = models.Filter(must=[translate(OneOf("document_id", tuple(chosen))), first])
            for record in await self._scroll(name, condition, SUMMARY_FIELDS):
                described.setdefault((record.payload or {})["document_id"], record.payload or {})
        documents = tuple(summarise(item, counts[item], described.get(item, {})) for item in chosen)
        return DocumentPage(documents, next_after)

    async def search(self, name: str, query: SearchQuery) -> Sequence[ScoredPassage]:
        """See `PassageIndex`."""
        check_dense(query, await self.embedding_space(name))
        rankings = query.rankings
        if not rankings:
            return []
        condition = translate(query.filter) if query.filter else None
        limit = query.top_k + TIE_MARGIN
        request: dict[str, Any] = {"query": _vector(query, rankings[0]), "using": _NAMES[rankings[0]]}
        if len(rankings) > 1:
            prefetches = [_prefetch(query, mode, condition) for mode in rankings]
            request = {"query": models.RrfQuery(rrf=models.Rrf(k=RRF_K)), "prefetch": prefetches}
        response = await self._call(name, self._client.query_points, name, query_filter=condition, limit=limit, **request)
        found = [
            ScoredPassage(from_payload(str(point.id), point.payload or {}), unit_score(rankings, point.score))
            for point in response.points
        ]
        return best_first(found, query.top_k)

    async def close(self) -> None:
        """See `PassageIndex`."""
        await self._client.close()

    async def _call(
        self, needs: str, call: Callable[Args, Awaitable[Result]], *args: Args.args, **kwargs: Args.kwargs
    ) -> Result:
        """Make one call; `needs` is the collection it needs, if any.

        The driver's text goes to the log only.
        """
        try:
            return await call(*args, **kwargs)
        except ErrataError:
            raise
        except Exception as error:
            self._forget(needs)
            if _status(error) == "NOT_FOUND" and needs and not await self._exists(needs):
                raise not_found(needs) from error
            _LOG.exception("the Qdrant server failed")
            message = f"the Qdrant server failed or cannot be reached ({_status(error)})"
            raise IndexUnavailable(message, {"url": self._url}) from error

    async def _exists(self, name: str) -> bool:
        return await self._call("", self._client.collection_exists, name)

    def _forget(self, name: str) -> None:
        self._spaces.pop(name, None)
        self._indexed.pop(name, None)

    async def _create(self, name: str, embedding: EmbeddingSpace) -> None:
        size = embedding.dimensions
        dense = {DENSE: models.VectorParams(size=size, distance=models.Distance.COSINE)} if size else {}
        try:
            await self._call(
                "",
                self._client.create_collection,
                name,
                vectors_config=dense,
                sparse_vectors_config={SPARSE: models.SparseVectorParams(modifier=models.Modifier.IDF)},
                metadata={_EMBEDDER: embedding.embedder, _DIMENSIONS: size},
            )
        except IndexUnavailable:
            # Another replica may have been faster; then what it made is checked like any other collection.
            if not await self._exists(name):
                raise

    async def _create_indexes(self, name: str, kinds: Mapping[str, str]) -> None:
        for path, kind in kinds.items():
            schema = models.PayloadSchemaType(kind)
            await self._call(name, self._client.create_payload_index, name, path, schema, wait=True)

    async def _index_metadata(self, name: str, passages: Sequence[Passage]) -> None:
        if not any(passage.metadata for passage in passages):
            return
        if name not in self._indexed:
            info = await self._call(name, self._client.get_collection, name)
            self._indexed[name] = set(info.payload_schema)
        missing = missing_indexes(passages, self._indexed[name])
        await self._create_indexes(name, missing)
        self._indexed.setdefault(name, set()).update(missing)

    async def _info(self, name: str) -> CollectionInfo:
        counts = await self._document_counts(name)
        return CollectionInfo(name, await self.embedding_space(name), len(counts), sum(counts.values()))

    async def _document_counts(self, name: str, condition: models.Filter | None = None) -> dict[str, int]:
        response = await self._call(
            name, self._client.facet, name, "document_id", facet_filter=condition, limit=_ALL, exact=True
        )
        return {str(hit.value): hit.count for hit in response.hits if hit.count}

    async def _scroll(self, name: str, condition: models.Filter, fields: list[str]) -> list[models.Record]:
        records: list[models.Record] = []
        offset: Any = None
        while True:
            page, offset = await self._call(
                name,
                self._client.scroll,
                name,
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


def translate(filter_: Filter) -> models.Filter:
    """Return the server's filter for ours."""
    match filter_:
        case AllOf(conditions):
            return models.Filter(must=[translate(condition) for condition in conditions])
        case AnyOf(conditions):
            return models.Filter(should=[translate(condition) for condition in conditions])
        case NoneOf(conditions):
            return models.Filter(must_not=[translate(condition) for condition in conditions])
        case Exists(field, exists):
            empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=field_path(field)))
            return models.Filter(must_not=[empty]) if exists else models.Filter(must=[empty])
        case Equals(field, value):
            return _must(models.FieldCondition(key=field_path(field), match=models.MatchValue(value=value)))
        case OneOf(field, values):
            return _must(models.FieldCondition(key=field_path(field), match=models.MatchAny(any=list(values))))
        case Range():
            return _must(models.FieldCondition(key=range_path(filter_), range=_range(filter_)))


def _must(condition: models.FieldCondition) -> models.Filter:
    return models.Filter(must=[condition])


def _range(condition: Range) -> models.Range | models.DatetimeRange:
    bounds: dict[str, Any] = {side: getattr(condition, side) for side in ("gt", "gte", "lt", "lte")}
    if not condition.is_time:
        return models.Range(**bounds)
    return models.DatetimeRange(**{side: bound and in_utc(bound) for side, bound in bounds.items()})


def _point(item: EmbeddedPassage) -> models.PointStruct:
    vectors: dict[str, Any] = {DENSE: list(item.dense)} if len(item.dense) else {}
    vectors[SPARSE] = models.SparseVector(indices=list(item.sparse.indices), values=list(item.sparse.values))
    return models.PointStruct(id=item.passage.chunk.chunk_id, vector=vectors, payload=to_payload(item.passage))


def _overwrite(passage: Passage) -> models.OverwritePayloadOperation:
    change = models.SetPayload(payload=to_payload(passage), points=[passage.chunk.chunk_id])
    return models.OverwritePayloadOperation(overwrite_payload=change)


def _vector(query: SearchQuery, mode: SearchMode) -> Any:
    if mode is SearchMode.DENSE:
        return list(query.dense)
    return models.SparseVector(indices=list(query.sparse.indices), values=list(query.sparse.values))


def _prefetch(query: SearchQuery, mode: SearchMode, condition: models.Filter | None) -> models.Prefetch:
    vector = _vector(query, mode)
    return models.Prefetch(query=vector, using=_NAMES[mode], filter=condition, limit=query.prefetch)


def _space(info: models.CollectionInfo) -> EmbeddingSpace | None:
    metadata = info.config.metadata or {}
    if _EMBEDDER not in metadata:
        return None
    return EmbeddingSpace(str(metadata[_EMBEDDER]), int(metadata[_DIMENSIONS]))


def _status(error: Exception) -> str:
    """Return the name of a gRPC status, or of the error's type, without importing the transport."""
    code = getattr(error, "code", None)
    return str(getattr(code(), "name", "UNKNOWN")) if callable(code) else type(error).__name__
