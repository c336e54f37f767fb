from errata.corpus.v1 import passage_pb2 as _passage_pb2
from errata.errors.v1 import errors_pb2 as _errors_pb2
from errata.grading.v1 import grading_pb2 as _grading_pb2
from errata.usage.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GradePassagesRequest(_message.Message):
    __slots__ = ("question", "passages")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    question: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ...) -> None: ...

class GradePassagesResponse(_message.Message):
    __slots__ = ("passage_id", "grade", "error", "usage")
    PASSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    passage_id: str
    grade: _grading_pb2.PassageGrade
    error: _errors_pb2.ErrorDetail
    usage: _usage_pb2.Usage
    def __init__(self, passage_id: _Optional[str] = ..., grade: _Optional[_Union[_grading_pb2.PassageGrade, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class GradeAnswerRequest(_message.Message):
    __slots__ = ("question", "answer", "passages", "known_claims")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    KNOWN_CLAIMS_FIELD_NUMBER: _ClassVar[int]
    question: str
    answer: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    known_claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    def __init__(self, question: _Optional[str] = ..., answer: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., known_claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ...) -> None: ...

class GradeAnswerResponse(_message.Message):
    __slots__ = ("grade", "usage")
    GRADE_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    grade: _grading_pb2.AnswerGrade
    usage: _usage_pb2.Usage
    def __init__(self, grade: _Optional[_Union[_grading_pb2.AnswerGrade, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class CheckClaimsRequest(_message.Message):
    __slots__ = ("question", "segment", "passages", "preceding")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    PRECEDING_FIELD_NUMBER: _ClassVar[int]
    question: str
    segment: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    preceding: str
    def __init__(self, question: _Optional[str] = ..., segment: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., preceding: _Optional[str] = ...) -> None: ...

class CheckClaimsResponse(_message.Message):
    __slots__ = ("claims", "findings", "usage")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    findings: _containers.RepeatedCompositeFieldContainer[_grading_pb2.GuardFinding]
    usage: _usage_pb2.Usage
    def __init__(self, claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ..., findings: _Optional[_Iterable[_Union[_grading_pb2.GuardFinding, _Mapping]]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class ReviewDraftRequest(_message.Message):
    __slots__ = ("task", "draft", "criteria", "overall_threshold", "passages")
    TASK_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    OVERALL_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    task: str
    draft: str
    criteria: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Criterion]
    overall_threshold: float
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    def __init__(self, task: _Optional[str] = ..., draft: _Optional[str] = ..., criteria: _Optional[_Iterable[_Union[_grading_pb2.Criterion, _Mapping]]] = ..., overall_threshold: _Optional[float] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ...) -> None: ...

class ReviewDraftResponse(_message.Message):
    __slots__ = ("review", "usage")
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    review: _grading_pb2.DraftReview
    usage: _usage_pb2.Usage
    def __init__(self, review: _Optional[_Union[_grading_pb2.DraftReview, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...
