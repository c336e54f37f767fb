"""The retriever's messages as domain values, and back. The contract's bounds are enforced here."""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from errata.retriever.v1 import retriever_service_pb2 as pb2
from pydantic import Field

from errata_kit import passages
from errata_kit.access.principals import TenantName
from errata_kit.bounds import (
    DEFAULT_COLLECTION,
    KIB,
    Bounded,
    CollectionName,
    DocumentId,
    NotBlank,
    PageSize,
    Query,
    first_entries,
    invalid,
    utf8_at_most,
    validated,
)
from errata_kit.calls import current_call
from errata_kit.errors import InvalidFields
from errata_kit.paging import after_of, page_token
from errata_kit.rpc import convert
from errata_kit.rpc.status import to_detail
from errata_kit.search import Filter, SearchMode
from services.retriever.documents import SourceDocument
from services.retriever.index.base import CollectionInfo, DocumentPage, DocumentSummary, ScoredPassage
from services.retriever.ingest import IngestFailure, IngestResult
from services.retriever.tenancy import CollectionRef

MetadataKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,63}$")]
DEFAULT_TOP_K = 5


def _tenant() -> str:
    return current_call().principal.tenant


class InTenant(Bounded):
    """A checked request for what belongs to the caller's tenant. No field of a request has a say in which that is."""

    tenant: TenantName = Field(default_factory=_tenant)


class InCollection(InTenant):
    """A checked request that names a collection."""

    collection: CollectionName = DEFAULT_COLLECTION

    @property
    def ref(self) -> CollectionRef:
        """The collection of the caller's tenant."""
        return CollectionRef(self.tenant, self.collection)


class Search(InCollection):
    """A checked SearchRequest."""

    query: Annotated[Query, NotBlank]
    top_k: Annotated[int, Field(ge=1, le=100)]
    mode: SearchMode
    filter: Filter | None


class IncomingDocument(Bounded):
    """What is checked of a document beside its body, which ingestion itself looks into."""

    document_id: DocumentId
    title: Annotated[str, utf8_at_most(KIB)]
    source_uri: Annotated[str, utf8_at_most(2 * KIB)]
    metadata: Annotated[dict[MetadataKey, Annotated[str, utf8_at_most(KIB)]], Field(max_length=64)]


class DeleteDocuments(InCollection):
    """A checked DeleteDocumentsRequest."""

    document_ids: Annotated[tuple[DocumentId, ...], Field(min_length=1, max_length=500)]


class CollectionsListing(InTenant):
    """A checked ListCollectionsRequest. page_token is read: where the page before ended."""

    page_size: PageSize
    page_token: str


class DocumentsListing(InCollection):
    """A checked ListDocumentsRequest. page_token is read: where the page before ended."""

    page_size: PageSize
    page_token: str
    document_id_prefix: Annotated[str, utf8_at_most(512)]


def search_from(message: pb2.SearchRequest) -> Search:
    """What is to be found. Raises InvalidFields."""
    return validated(
        Search,
        {
            "collection": message.collection or DEFAULT_COLLECTION,
            "query": message.query,
            "top_k": message.top_k or DEFAULT_TOP_K,
        },
        {"mode": lambda: convert.mode_from(message.mode), "filter": lambda: convert.filter_from(message.filter)},
    )


def collection_from(name: str, default: str = DEFAULT_COLLECTION) -> CollectionRef:
    """The caller's collection of this name, or the default one for an empty name. Raises InvalidFields."""
    return validated(InCollection, {"collection": name or default}).ref


def document_from(message: pb2.Document) -> SourceDocument:
    """A document to ingest. Raises InvalidFields."""
    checked = validated(
        IncomingDocument,
        {
            "document_id": message.document_id,
            "title": message.title,
            "source_uri": message.source_uri,
            "metadata": first_entries(message.metadata, 64),
        },
    )
    content = message.content if message.WhichOneof("body") == "content" else message.text.encode()
    return SourceDocument(
        document_id=checked.document_id,
        content=content,
        title=checked.title,
        metadata=checked.metadata,
        source_uri=checked.source_uri,
    )


async def documents_from(
    ref: CollectionRef, first: pb2.IngestDocumentsRequest, rest: AsyncIterator[pb2.IngestDocumentsRequest]
) -> AsyncIterator[SourceDocument | IngestFailure]:
    """The documents of a stream. One that breaks its bounds, or names another collection, is a failure of its own."""
    message = first
    while True:
        try:
            if validated(InCollection, {"collection": message.collection or ref.name}).collection != ref.name:
                raise invalid("collection", f"must be {ref.name!r}, as in the first message of the stream")
            yield document_from(message.document)
        except InvalidFields as error:
            yield IngestFailure(message.document.document_id, error)
        try:
            message = await anext(rest)
        except StopAsyncIteration:
            return


def delete_from(message: pb2.DeleteDocumentsRequest) -> DeleteDocuments:
    """Which documents are to go. Raises InvalidFields."""
    values = {
        "collection": message.collection or DEFAULT_COLLECTION,
        "document_ids": tuple(dict.fromkeys(message.document_ids)),
    }
    return validated(DeleteDocuments, values)


def documents_listing_from(message: pb2.ListDocumentsRequest) -> DocumentsListing:
    """Which page of documents. Raises InvalidFields."""
    collection = message.collection or DEFAULT_COLLECTION
    query = _documents_query(_tenant(), collection, message.document_id_prefix)
    values = {
        "collection": collection,
        "page_size": message.page_size,
        "document_id_prefix": message.document_id_prefix,
    }
    return validated(DocumentsListing, values, {"page_token": lambda: after_of(message.page_token, query)})


def collections_listing_from(message: pb2.ListCollectionsRequest) -> CollectionsListing:
    """Which page of collections. Raises InvalidFields."""
    token = {"page_token": lambda: after_of(message.page_token, _collections_query(_tenant()))}
    return validated(CollectionsListing, {"page_size": message.page_size}, token)


def search_to(found: Sequence[ScoredPassage], mode: SearchMode) -> pb2.SearchResponse:
    """The passages found."""
    scored = [pb2.ScoredPassage(passage=convert.passage_to(passage_of(item)), score=item.score) for item in found]
    return pb2.SearchResponse(passages=scored, mode=convert.mode_to(mode))


def passage_of(found: ScoredPassage) -> passages.Passage:
    """A stored passage as the other services see it."""
    chunk = found.passage.chunk
    return passages.Passage(
        passage_id=chunk.chunk_id,
        text=chunk.text,
        title=found.passage.title,
        heading_path=tuple(heading[:128] for heading in chunk.heading_path[:16]),
        document_id=chunk.document_id,
        start_line=chunk.start_line,
        end_line=chunk.end_line,
        has_code=chunk.has_code,
        source_uri=found.passage.source_uri,
        metadata=found.passage.metadata,
    )


def ingest_to(result: IngestResult | IngestFailure) -> pb2.IngestDocumentsResponse:
    """What became of one document."""
    if isinstance(result, IngestFailure):
        return pb2.IngestDocumentsResponse(document_id=result.document_id, error=to_detail(result.error))
    counts = pb2.IngestedDocument(
        chunks=result.chunks_total,
        chunks_embedded=result.chunks_embedded,
        chunks_unchanged=result.chunks_unchanged,
        chunks_deleted=result.chunks_deleted,
    )
    return pb2.IngestDocumentsResponse(document_id=result.document_id, ingested=counts)


def documents_to(page: DocumentPage, listing: DocumentsListing) -> pb2.ListDocumentsResponse:
    """A page of documents."""
    query = _documents_query(listing.tenant, listing.collection, listing.document_id_prefix)
    token = page_token(query, page.next_after) if page.next_after is not None else ""
    return pb2.ListDocumentsResponse(documents=map(_document_to, page.documents), next_page_token=token)


def collections_to(infos: Sequence[CollectionInfo], listing: CollectionsListing) -> pb2.ListCollectionsResponse:
    """A page of collections."""
    behind = [info for info in infos if info.name > listing.page_token]
    page = behind[: listing.page_size]
    token = page_token(_collections_query(listing.tenant), page[-1].name) if len(behind) > len(page) else ""
    return pb2.ListCollectionsResponse(collections=map(_collection_to, page), next_page_token=token)


def _documents_query(tenant: str, collection: str, prefix: str) -> list[str]:
    """What a page token belongs to. The tenant is part of it: a token is of no use to another one."""
    return ["documents", tenant, collection, prefix]


def _collections_query(tenant: str) -> list[str]:
    return ["collections", tenant]


def _document_to(summary: DocumentSummary) -> pb2.DocumentInfo:
    return pb2.DocumentInfo(
        document_id=summary.document_id,
        title=summary.title,
        source_uri=summary.source_uri,
        metadata=summary.metadata,
        chunks=summary.passages,
    )


def _collection_to(info: CollectionInfo) -> pb2.Collection:
    return pb2.Collection(
        name=info.name,
        embedding_model=info.embedding.embedder if info.embedding.dimensions else "",
        embedding_dimensions=info.embedding.dimensions,
        documents=info.documents,
        chunks=info.passages,
    )
