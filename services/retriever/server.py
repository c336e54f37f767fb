"""RetrieverService over gRPC: one short method an RPC."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from errata.retriever.v1 import retriever_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as pb2_grpc

from errata_kit.bounds import invalid
from errata_kit.metrics import Metrics
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from services.retriever import convert
from services.retriever.index.base import PassageIndex
from services.retriever.ingest import IngestFailure, Ingestor, IngestResult
from services.retriever.opening import open_embedder, open_index, until_answering
from services.retriever.search import Searcher
from services.retriever.settings import RetrieverSettings


class RetrieverServicer(pb2_grpc.RetrieverServiceServicer):
    """Hands requests to the index, the searcher and the ingestor."""

    def __init__(self, index: PassageIndex, searcher: Searcher, ingestor: Ingestor, metrics: Metrics) -> None:
        self._index = index
        self._searcher = searcher
        self._ingestor = ingestor
        self._metrics = metrics

    async def Search(self, request: pb2.SearchRequest, context: Context) -> pb2.SearchResponse:  # noqa: N802
        """Find passages."""
        asked = convert.search_from(request)
        found, mode = await self._searcher.search(asked.ref, asked.query, asked.mode, asked.top_k, asked.filter)
        return convert.search_to(found, mode)

    async def IngestDocuments(  # noqa: N802
        self, request_iterator: AsyncIterator[pb2.IngestDocumentsRequest], context: Context
    ) -> AsyncIterator[pb2.IngestDocumentsResponse]:
        """Take documents and answer each. The first message names the collection."""
        try:
            first = await anext(aiter(request_iterator))
        except StopAsyncIteration:
            return
        ref = convert.collection_from(first.collection)
        documents = convert.documents_from(ref, first, request_iterator)
        async with contextlib.aclosing(self._ingestor.ingest(ref, documents)) as results:
            async for result in results:
                self._count(result)
                yield convert.ingest_to(result)

    async def DeleteDocuments(  # noqa: N802
        self, request: pb2.DeleteDocumentsRequest, context: Context
    ) -> pb2.DeleteDocumentsResponse:
        """Delete documents."""
        asked = convert.delete_from(request)
        deleted = await self._index.delete_documents(asked.ref, asked.document_ids)
        unknown = [document_id for document_id in asked.document_ids if document_id not in deleted]
        return pb2.DeleteDocumentsResponse(deleted_document_ids=sorted(deleted), unknown_document_ids=unknown)

    async def ListDocuments(  # noqa: N802
        self, request: pb2.ListDocumentsRequest, context: Context
    ) -> pb2.ListDocumentsResponse:
        """List documents."""
        asked = convert.documents_listing_from(request)
        page = await self._index.list_documents(asked.ref, asked.page_token, asked.page_size, asked.document_id_prefix)
        return convert.documents_to(page, asked)

    async def ListCollections(  # noqa: N802
        self, request: pb2.ListCollectionsRequest, context: Context
    ) -> pb2.ListCollectionsResponse:
        """List collections."""
        asked = convert.collections_listing_from(request)
        return convert.collections_to(await self._index.list_collections(asked.tenant), asked)

    async def DeleteCollection(  # noqa: N802
        self, request: pb2.DeleteCollectionRequest, context: Context
    ) -> pb2.DeleteCollectionResponse:
        """Delete a collection."""
        if not request.collection:
            raise invalid("collection", "must be named")
        await self._index.delete_collection(convert.collection_from(request.collection))
        return pb2.DeleteCollectionResponse()

    def _count(self, result: IngestResult | IngestFailure) -> None:
        if isinstance(result, IngestFailure):
            self._metrics.documents.labels(result.error.why.value).inc()
            return
        self._metrics.documents.labels("ok").inc()
        self._metrics.chunks_embedded.inc(result.chunks_embedded)


async def build(settings: RetrieverSettings) -> Service:
    """Put the service together. Raises IndexUnavailable when the data folder belongs to another process."""
    metrics = Metrics()
    embedder = open_embedder(settings, metrics)
    index = await open_index(settings)
    servicer = RetrieverServicer(index, Searcher(index, embedder), Ingestor(index, embedder), metrics)

    async def ready() -> None:
        await asyncio.gather(embedder.warm_up(), until_answering(index))

    async def close() -> None:
        await embedder.close()
        await index.close()

    return Service(
        name="retriever",
        port=settings.port,
        metrics_port=settings.metrics_port,
        proto_name="errata.retriever.v1.RetrieverService",
        register=lambda server: pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
        metrics=metrics,
        ready=ready,
        close=close,
    )
