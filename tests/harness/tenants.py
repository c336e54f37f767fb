"""Callers of several tenants on one retriever, each with its own identity and without any authentication around it."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from errata.corpus.v1 import filter_pb2
from errata.retriever.v1 import retriever_service_pb2 as pb2

from errata_kit.access.principals import Principal, Role
from errata_kit.calls import enter_call
from errata_kit.metrics import Metrics
from services.retriever.embedding.base import Vector
from services.retriever.index.base import PassageIndex
from services.retriever.ingest import Ingestor
from services.retriever.search import Searcher
from services.retriever.server import RetrieverServicer

T = TypeVar("T")
MODES = (filter_pb2.SEARCH_MODE_HYBRID, filter_pb2.SEARCH_MODE_DENSE, filter_pb2.SEARCH_MODE_SPARSE)
_CALL_SECONDS = 20.0


class ChecksumEmbedder:
    """Vectors of four numbers that follow from the text."""

    name: str = "checksum"
    dimensions: int = 4

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        return [[1.0 + (zlib.crc32(text.encode()) >> shift) % 7 for shift in (0, 8, 16, 24)] for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return (await self.embed_passages([text]))[0]


def servicer(index: PassageIndex, metrics: Metrics | None = None) -> RetrieverServicer:
    """The retriever's RPCs over an index."""
    embedder = ChecksumEmbedder()
    return RetrieverServicer(index, Searcher(index, embedder), Ingestor(index, embedder), metrics or Metrics())


async def in_the_name_of(tenant: str, call: Callable[[], Awaitable[T]]) -> T:
    """What a call answers to a principal of the tenant that has every role."""

    async def inside() -> T:
        enter_call("", "", _CALL_SECONDS, principal=Principal("p", tenant, frozenset(Role)))
        return await call()

    return await asyncio.create_task(inside())


class Caller:
    """A principal of one tenant. Each method is an RPC; errors are raised as the domain's."""

    def __init__(self, served: RetrieverServicer, tenant: str) -> None:
        self._served = served
        self.tenant = tenant

    async def ingest(
        self, collection: str, texts: Mapping[str, str], metadata: Mapping[str, str] | None = None
    ) -> list[pb2.IngestDocumentsResponse]:
        async def requests() -> AsyncIterator[pb2.IngestDocumentsRequest]:
            for document_id, text in texts.items():
                document = pb2.Document(document_id=document_id, text=text, metadata=metadata or {})
                yield pb2.IngestDocumentsRequest(collection=collection, document=document)

        async def call() -> list[pb2.IngestDocumentsResponse]:
            return [item async for item in self._served.IngestDocuments(requests(), _no_context())]

        return await in_the_name_of(self.tenant, call)

    async def search(self, collection: str, query: str, **fields: Any) -> pb2.SearchResponse:
        request = pb2.SearchRequest(collection=collection, query=query, **{"top_k": 100, **fields})
        return await in_the_name_of(self.tenant, lambda: self._served.Search(request, _no_context()))

    async def delete(self, collection: str, *document_ids: str) -> pb2.DeleteDocumentsResponse:
        request = pb2.DeleteDocumentsRequest(collection=collection, document_ids=document_ids)
        return await in_the_name_of(self.tenant, lambda: self._served.DeleteDocuments(request, _no_context()))

    async def documents(self, collection: str, **fields: Any) -> pb2.ListDocumentsResponse:
        request = pb2.ListDocumentsRequest(collection=collection, **fields)
        return await in_the_name_of(self.tenant, lambda: self._served.ListDocuments(request, _no_context()))

    async def collections(self, **fields: Any) -> pb2.ListCollectionsResponse:
        request = pb2.ListCollectionsRequest(**fields)
        return await in_the_name_of(self.tenant, lambda: self._served.ListCollections(request, _no_context()))

    async def delete_collection(self, collection: str) -> pb2.DeleteCollectionResponse:
        request = pb2.DeleteCollectionRequest(collection=collection)
        return await in_the_name_of(self.tenant, lambda: self._served.DeleteCollection(request, _no_context()))


def _no_context() -> Any:
    """The servicer asks its context nothing: who calls, and for how long, is in the call's own context."""
    return None


def where(field: str, **test: Any) -> filter_pb2.MetadataFilter:
    """A filter of one condition."""
    return filter_pb2.MetadataFilter(condition=filter_pb2.MetadataCondition(field=field, **test))


def none_of(*filters: filter_pb2.MetadataFilter) -> filter_pb2.MetadataFilter:
    """A filter that lets through what none of these do."""
    return filter_pb2.MetadataFilter(none_of=filter_pb2.MetadataFilterList(filters=filters))


def any_of(*filters: filter_pb2.MetadataFilter) -> filter_pb2.MetadataFilter:
    """A filter that lets through what one of these does."""
    return filter_pb2.MetadataFilter(any_of=filter_pb2.MetadataFilterList(filters=filters))


def all_of(*filters: filter_pb2.MetadataFilter) -> filter_pb2.MetadataFilter:
    """A filter that lets through what all of these do."""
    return filter_pb2.MetadataFilter(all_of=filter_pb2.MetadataFilterList(filters=filters))
