from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ErrorReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ERROR_REASON_UNSPECIFIED: _ClassVar[ErrorReason]
    ERROR_REASON_INVALID_FIELD: _ClassVar[ErrorReason]
    ERROR_REASON_UNAUTHENTICATED: _ClassVar[ErrorReason]
    ERROR_REASON_PERMISSION_DENIED: _ClassVar[ErrorReason]
    ERROR_REASON_COLLECTION_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_DOCUMENT_REJECTED: _ClassVar[ErrorReason]
    ERROR_REASON_INDEX_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_EMBEDDING_FAILED: _ClassVar[ErrorReason]
    ERROR_REASON_EMBEDDING_MISMATCH: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_RATE_LIMITED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_QUOTA_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_AUTHENTICATION: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_REFUSED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_TRUNCATED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_FILTERED: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_OUTPUT_INVALID: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_CONTEXT_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_JUDGEMENT_INCOMPLETE: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_NOT_FOUND: _ClassVar[ErrorReason]
    ERROR_REASON_RUN_NOT_WAITING: _ClassVar[ErrorReason]
    ERROR_REASON_REQUEST_ID_REUSED: _ClassVar[ErrorReason]
    ERROR_REASON_BUDGET_EXHAUSTED: _ClassVar[ErrorReason]
    ERROR_REASON_OVERLOADED: _ClassVar[ErrorReason]
    ERROR_REASON_DRAINING: _ClassVar[ErrorReason]
    ERROR_REASON_DEADLINE_EXCEEDED: _ClassVar[ErrorReason]
    ERROR_REASON_CANCELLED: _ClassVar[ErrorReason]
    ERROR_REASON_INTERNAL: _ClassVar[ErrorReason]
    ERROR_REASON_SERVICE_UNAVAILABLE: _ClassVar[ErrorReason]
    ERROR_REASON_MODEL_REQUEST_REJECTED: _ClassVar[ErrorReason]
    ERROR_REASON_RATE_LIMITED: _ClassVar[ErrorReason]
ERROR_REASON_UNSPECIFIED: ErrorReason
ERROR_REASON_INVALID_FIELD: ErrorReason
ERROR_REASON_UNAUTHENTICATED: ErrorReason
ERROR_REASON_PERMISSION_DENIED: ErrorReason
ERROR_REASON_COLLECTION_NOT_FOUND: ErrorReason
ERROR_REASON_DOCUMENT_REJECTED: ErrorReason
ERROR_REASON_INDEX_UNAVAILABLE: ErrorReason
ERROR_REASON_EMBEDDING_FAILED: ErrorReason
ERROR_REASON_EMBEDDING_MISMATCH: ErrorReason
ERROR_REASON_MODEL_UNAVAILABLE: ErrorReason
ERROR_REASON_MODEL_RATE_LIMITED: ErrorReason
ERROR_REASON_MODEL_QUOTA_EXHAUSTED: ErrorReason
ERROR_REASON_MODEL_AUTHENTICATION: ErrorReason
ERROR_REASON_MODEL_REFUSED: ErrorReason
ERROR_REASON_MODEL_TRUNCATED: ErrorReason
ERROR_REASON_MODEL_FILTERED: ErrorReason
ERROR_REASON_MODEL_OUTPUT_INVALID: ErrorReason
ERROR_REASON_MODEL_CONTEXT_EXCEEDED: ErrorReason
ERROR_REASON_JUDGEMENT_INCOMPLETE: ErrorReason
ERROR_REASON_RUN_NOT_FOUND: ErrorReason
ERROR_REASON_RUN_NOT_WAITING: ErrorReason
ERROR_REASON_REQUEST_ID_REUSED: ErrorReason
ERROR_REASON_BUDGET_EXHAUSTED: ErrorReason
ERROR_REASON_OVERLOADED: ErrorReason
ERROR_REASON_DRAINING: ErrorReason
ERROR_REASON_DEADLINE_EXCEEDED: ErrorReason
ERROR_REASON_CANCELLED: ErrorReason
ERROR_REASON_INTERNAL: ErrorReason
ERROR_REASON_SERVICE_UNAVAILABLE: ErrorReason
ERROR_REASON_MODEL_REQUEST_REJECTED: ErrorReason
ERROR_REASON_RATE_LIMITED: ErrorReason

class ErrorDetail(_message.Message):
    __slots__ = ("reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    reason: ErrorReason
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, reason: _Optional[_Union[ErrorReason, str]] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...
