import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SearchMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SEARCH_MODE_UNSPECIFIED: _ClassVar[SearchMode]
    SEARCH_MODE_HYBRID: _ClassVar[SearchMode]
    SEARCH_MODE_DENSE: _ClassVar[SearchMode]
    SEARCH_MODE_SPARSE: _ClassVar[SearchMode]
SEARCH_MODE_UNSPECIFIED: SearchMode
SEARCH_MODE_HYBRID: SearchMode
SEARCH_MODE_DENSE: SearchMode
SEARCH_MODE_SPARSE: SearchMode

class MetadataFilter(_message.Message):
    __slots__ = ("all_of", "any_of", "none_of", "condition")
    ALL_OF_FIELD_NUMBER: _ClassVar[int]
    ANY_OF_FIELD_NUMBER: _ClassVar[int]
    NONE_OF_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    all_of: MetadataFilterList
    any_of: MetadataFilterList
    none_of: MetadataFilterList
    condition: MetadataCondition
    def __init__(self, all_of: _Optional[_Union[MetadataFilterList, _Mapping]] = ..., any_of: _Optional[_Union[MetadataFilterList, _Mapping]] = ..., none_of: _Optional[_Union[MetadataFilterList, _Mapping]] = ..., condition: _Optional[_Union[MetadataCondition, _Mapping]] = ...) -> None: ...

class MetadataFilterList(_message.Message):
    __slots__ = ("filters",)
    FILTERS_FIELD_NUMBER: _ClassVar[int]
    filters: _containers.RepeatedCompositeFieldContainer[MetadataFilter]
    def __init__(self, filters: _Optional[_Iterable[_Union[MetadataFilter, _Mapping]]] = ...) -> None: ...

class MetadataCondition(_message.Message):
    __slots__ = ("field", "equals", "one_of", "number_range", "time_range", "exists")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EQUALS_FIELD_NUMBER: _ClassVar[int]
    ONE_OF_FIELD_NUMBER: _ClassVar[int]
    NUMBER_RANGE_FIELD_NUMBER: _ClassVar[int]
    TIME_RANGE_FIELD_NUMBER: _ClassVar[int]
    EXISTS_FIELD_NUMBER: _ClassVar[int]
    field: str
    equals: str
    one_of: StringList
    number_range: NumberRange
    time_range: TimeRange
    exists: bool
    def __init__(self, field: _Optional[str] = ..., equals: _Optional[str] = ..., one_of: _Optional[_Union[StringList, _Mapping]] = ..., number_range: _Optional[_Union[NumberRange, _Mapping]] = ..., time_range: _Optional[_Union[TimeRange, _Mapping]] = ..., exists: _Optional[bool] = ...) -> None: ...

class StringList(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, values: _Optional[_Iterable[str]] = ...) -> None: ...

class NumberRange(_message.Message):
    __slots__ = ("minimum", "maximum")
    MINIMUM_FIELD_NUMBER: _ClassVar[int]
    MAXIMUM_FIELD_NUMBER: _ClassVar[int]
    minimum: float
    maximum: float
    def __init__(self, minimum: _Optional[float] = ..., maximum: _Optional[float] = ...) -> None: ...

class TimeRange(_message.Message):
    __slots__ = ("earliest", "latest")
    EARLIEST_FIELD_NUMBER: _ClassVar[int]
    LATEST_FIELD_NUMBER: _ClassVar[int]
    earliest: _timestamp_pb2.Timestamp
    latest: _timestamp_pb2.Timestamp
    def __init__(self, earliest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., latest: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
