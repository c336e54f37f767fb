import datetime

from errata.errors.v1 import errors_pb2 as _errors_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Usage(_message.Message):
    __slots__ = ("model_calls", "saved_calls")
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    SAVED_CALLS_FIELD_NUMBER: _ClassVar[int]
    model_calls: _containers.RepeatedCompositeFieldContainer[ModelCall]
    saved_calls: _containers.RepeatedCompositeFieldContainer[ModelCall]
    def __init__(self, model_calls: _Optional[_Iterable[_Union[ModelCall, _Mapping]]] = ..., saved_calls: _Optional[_Iterable[_Union[ModelCall, _Mapping]]] = ...) -> None: ...

class ModelCall(_message.Message):
    __slots__ = ("model", "operation", "prompt_version", "input_tokens", "cached_input_tokens", "output_tokens", "estimated", "cost_micros", "latency", "attempts", "error")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_VERSION_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    LATENCY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    model: str
    operation: str
    prompt_version: str
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    estimated: bool
    cost_micros: int
    latency: _duration_pb2.Duration
    attempts: int
    error: _errors_pb2.ErrorReason
    def __init__(self, model: _Optional[str] = ..., operation: _Optional[str] = ..., prompt_version: _Optional[str] = ..., input_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., estimated: _Optional[bool] = ..., cost_micros: _Optional[int] = ..., latency: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., attempts: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.ErrorReason, str]] = ...) -> None: ...
