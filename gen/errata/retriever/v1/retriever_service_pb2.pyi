from errata.corpus.v1 import filter_pb2 as _filter_pb2
from errata.corpus.v1 import passage_pb2 as _passage_pb2
from errata.errors.v1 import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchRequest(_message.Message):
    __slots__ = ("collection", "query", "top_k", "mode", "filter")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    collection: str
    query: str
    top_k: int
    mode: _filter_pb2.SearchMode
    filter: _filter_pb2.MetadataFilter
    def __init__(self, collection: _Optional[str] = ..., query: _Optional[str] = ..., top_k: _Optional[int] = ..., mode: _Optional[_Union[_filter_pb2.SearchMode, str]] = ..., filter: _Optional[_Union[_filter_pb2.MetadataFilter, _Mapping]] = ...) -> None: ...

class SearchResponse(_message.Message):
    __slots__ = ("passages", "mode")
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    passages: _containers.RepeatedCompositeFieldContainer[ScoredPassage]
    mode: _filter_pb2.SearchMode
    def __init__(self, passages: _Optional[_Iterable[_Union[ScoredPassage, _Mapping]]] = ..., mode: _Optional[_Union[_filter_pb2.SearchMode, str]] = ...) -> None: ...

class ScoredPassage(_message.Message):
    __slots__ = ("passage", "score")
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    passage: _passage_pb2.Passage
    score: float
    def __init__(self, passage: _Optional[_Union[_passage_pb2.Passage, _Mapping]] = ..., score: _Optional[float] = ...) -> None: ...

class Document(_message.Message):
    __slots__ = ("document_id", "title", "source_uri", "metadata", "text", "content")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    title: str
    source_uri: str
    metadata: _containers.ScalarMap[str, str]
    text: str
    content: bytes
    def __init__(self, document_id: _Optional[str] = ..., title: _Optional[str] = ..., source_uri: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., text: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class IngestDocumentsRequest(_message.Message):
    __slots__ = ("collection", "document")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_FIELD_NUMBER: _ClassVar[int]
    collection: str
    document: Document
    def __init__(self, collection: _Optional[str] = ..., document: _Optional[_Union[Document, _Mapping]] = ...) -> None: ...

class IngestDocumentsResponse(_message.Message):
    __slots__ = ("document_id", "ingested", "error")
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    INGESTED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    ingested: IngestedDocument
    error: _errors_pb2.ErrorDetail
    def __init__(self, document_id: _Optional[str] = ..., ingested: _Optional[_Union[IngestedDocument, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class IngestedDocument(_message.Message):
    __slots__ = ("chunks", "chunks_embedded", "chunks_unchanged", "chunks_deleted")
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_EMBEDDED_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_DELETED_FIELD_NUMBER: _ClassVar[int]
    chunks: int
    chunks_embedded: int
    chunks_unchanged: int
    chunks_deleted: int
    def __init__(self, chunks: _Optional[int] = ..., chunks_embedded: _Optional[int] = ..., chunks_unchanged: _Optional[int] = ..., chunks_deleted: _Optional[int] = ...) -> None: ...

class DeleteDocumentsRequest(_message.Message):
    __slots__ = ("collection", "document_ids")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    collection: str
    document_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, collection: _Optional[str] = ..., document_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DeleteDocumentsResponse(_message.Message):
    __slots__ = ("deleted_document_ids", "unknown_document_ids")
    DELETED_DOCUMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_DOCUMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    deleted_document_ids: _containers.RepeatedScalarFieldContainer[str]
    unknown_document_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, deleted_document_ids: _Optional[_Iterable[str]] = ..., unknown_document_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListDocumentsRequest(_message.Message):
    __slots__ = ("collection", "page_size", "page_token", "document_id_prefix")
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DOCUMENT_ID_PREFIX_FIELD_NUMBER: _ClassVar[int]
    collection: str
    page_size: int
    page_token: str
    document_id_prefix: str
    def __init__(self, collection: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., document_id_prefix: _Optional[str] = ...) -> None: ...

class ListDocumentsResponse(_message.Message):
    __slots__ = ("documents", "next_page_token")
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    documents: _containers.RepeatedCompositeFieldContainer[DocumentInfo]
    next_page_token: str
    def __init__(self, documents: _Optional[_Iterable[_Union[DocumentInfo, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DocumentInfo(_message.Message):
    __slots__ = ("document_id", "title", "source_uri", "metadata", "chunks")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    DOCUMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_URI_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    document_id: str
    title: str
    source_uri: str
    metadata: _containers.ScalarMap[str, str]
    chunks: int
    def __init__(self, document_id: _Optional[str] = ..., title: _Optional[str] = ..., source_uri: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., chunks: _Optional[int] = ...) -> None: ...

class ListCollectionsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListCollectionsResponse(_message.Message):
    __slots__ = ("collections", "next_page_token")
    COLLECTIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    collections: _containers.RepeatedCompositeFieldContainer[Collection]
    next_page_token: str
    def __init__(self, collections: _Optional[_Iterable[_Union[Collection, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Collection(_message.Message):
    __slots__ = ("name", "embedding_model", "embedding_dimensions", "documents", "chunks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_MODEL_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    embedding_model: str
    embedding_dimensions: int
    documents: int
    chunks: int
    def __init__(self, name: _Optional[str] = ..., embedding_model: _Optional[str] = ..., embedding_dimensions: _Optional[int] = ..., documents: _Optional[int] = ..., chunks: _Optional[int] = ...) -> None: ...

class DeleteCollectionRequest(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: str
    def __init__(self, collection: _Optional[str] = ...) -> None: ...

class DeleteCollectionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
