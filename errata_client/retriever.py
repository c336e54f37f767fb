"""The retriever: documents in, passages out."""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Sequence
from functools import partial
from typing import Final

import grpc
from errata.corpus.v1 import filter_pb2
from errata.retriever.v1 import retriever_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as pb2_grpc

from errata_client.calls import RUN_SECONDS, Caller, Deadline, all_pages
from errata_kit.rpc.channels import reading, sending

_DELETED_AT_ONCE: Final = 500


class Retriever:
    """RetrieverService. An empty collection means "default"; timeout is in seconds, None for CALL_SECONDS.

    Every method raises ErrataError, with the reason in `why`.
    """

    def __init__(self, caller: Caller, channel: grpc.aio.Channel) -> None:
        self._caller = caller
        self._stub = pb2_grpc.RetrieverServiceStub(channel)

    async def search(
        self,
        query: str,
        *,
        collection: str = "",
        top_k: int = 0,
        mode: filter_pb2.SearchMode = filter_pb2.SEARCH_MODE_UNSPECIFIED,
        filter: filter_pb2.MetadataFilter | None = None,
        timeout: float | None = None,
    ) -> pb2.SearchResponse:
        """The passages that fit a query best. top_k: 1–100; 0 means 5. filter: only passages that it selects."""
        request = pb2.SearchRequest(collection=collection, query=query, top_k=top_k, mode=mode, filter=filter)
        reply: pb2.SearchResponse = await self._caller.unary(self._stub.Search, request, timeout)
        return reply

    async def ingest_documents(
        self,
        documents: Iterable[pb2.Document] | AsyncIterable[pb2.Document],
        *,
        collection: str = "",
        timeout: float = RUN_SECONDS,
    ) -> AsyncGenerator[pb2.IngestDocumentsResponse, None]:
        """One result a document, in the order in which they are done; a rejected document is a result with an error.

        documents are taken as fast as the retriever takes them. The stream is not repeated by itself once it has begun, for
        what was taken from documents is gone: ingest again, which costs little where nothing has changed. timeout: for all.
        """

        async def requests() -> AsyncIterator[pb2.IngestDocumentsRequest]:
            async for document in _each(documents):
                yield pb2.IngestDocumentsRequest(collection=collection, document=document)

        call = await self._caller.opened(partial(sending, self._stub.IngestDocuments), requests(), Deadline(timeout))
        try:
            async with reading(call) as replies:
                async for reply in replies:
                    yield reply
        except grpc.aio.AioRpcError as error:
            raise self._caller.error_of(error) from error

    async def delete_documents(
        self, document_ids: Sequence[str], *, collection: str = "", timeout: float | None = None
    ) -> pb2.DeleteDocumentsResponse:
        """Which of the documents were there and are gone now, and which were unknown. timeout: for each 500 of them."""
        answer = pb2.DeleteDocumentsResponse()
        for start in range(0, max(1, len(document_ids)), _DELETED_AT_ONCE):
            batch = document_ids[start : start + _DELETED_AT_ONCE]
            request = pb2.DeleteDocumentsRequest(collection=collection, document_ids=batch)
            answer.MergeFrom(await self._caller.unary(self._stub.DeleteDocuments, request, timeout))
        return answer

    def list_documents(
        self, collection: str = "", *, prefix: str = "", limit: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[pb2.DocumentInfo, None]:
        """The documents whose id starts with prefix, by id; at most limit. timeout: for each page."""
        request = pb2.ListDocumentsRequest(collection=collection, document_id_prefix=prefix)
        return all_pages(self._caller, self._stub.ListDocuments, request, "documents", limit, timeout)

    def list_collections(
        self, *, limit: int | None = None, timeout: float | None = None
    ) -> AsyncGenerator[pb2.Collection, None]:
        """The collections, by name; at most limit. timeout: for each page."""
        request = pb2.ListCollectionsRequest()
        return all_pages(self._caller, self._stub.ListCollections, request, "collections", limit, timeout)

    async def delete_collection(self, collection: str, *, timeout: float | None = None) -> None:
        """Delete a collection with all its documents."""
        await self._caller.unary(self._stub.DeleteCollection, pb2.DeleteCollectionRequest(collection=collection), timeout)


async def _each(documents: Iterable[pb2.Document] | AsyncIterable[pb2.Document]) -> AsyncIterator[pb2.Document]:
    if isinstance(documents, AsyncIterable):
        async for document in documents:
            yield document
    else:
        for document in documents:
            yield document
