from errata.corpus.v1 import passage_pb2 as _passage_pb2
from errata.grading.v1 import grading_pb2 as _grading_pb2
from errata.usage.v1 import usage_pb2 as _usage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BroadenQueryRequest(_message.Message):
    __slots__ = ("question", "current_query", "tried_queries")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_QUERY_FIELD_NUMBER: _ClassVar[int]
    TRIED_QUERIES_FIELD_NUMBER: _ClassVar[int]
    question: str
    current_query: str
    tried_queries: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, question: _Optional[str] = ..., current_query: _Optional[str] = ..., tried_queries: _Optional[_Iterable[str]] = ...) -> None: ...

class BroadenQueryResponse(_message.Message):
    __slots__ = ("query", "exhausted", "removed_terms", "usage")
    QUERY_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TERMS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    query: str
    exhausted: bool
    removed_terms: _containers.RepeatedScalarFieldContainer[str]
    usage: _usage_pb2.Usage
    def __init__(self, query: _Optional[str] = ..., exhausted: _Optional[bool] = ..., removed_terms: _Optional[_Iterable[str]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class GenerateAnswerRequest(_message.Message):
    __slots__ = ("question", "passages")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    question: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    def __init__(self, question: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ...) -> None: ...

class GenerateAnswerResponse(_message.Message):
    __slots__ = ("delta", "answer", "usage")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    delta: str
    answer: _passage_pb2.Answer
    usage: _usage_pb2.Usage
    def __init__(self, delta: _Optional[str] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class RefineAnswerRequest(_message.Message):
    __slots__ = ("question", "answer", "passages", "failing_claims", "refinement_suggestion")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    FAILING_CLAIMS_FIELD_NUMBER: _ClassVar[int]
    REFINEMENT_SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    question: str
    answer: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    failing_claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    refinement_suggestion: str
    def __init__(self, question: _Optional[str] = ..., answer: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., failing_claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ..., refinement_suggestion: _Optional[str] = ...) -> None: ...

class RefineAnswerResponse(_message.Message):
    __slots__ = ("delta", "answer", "usage", "edits", "rejected_edits")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_EDITS_FIELD_NUMBER: _ClassVar[int]
    delta: str
    answer: _passage_pb2.Answer
    usage: _usage_pb2.Usage
    edits: _containers.RepeatedCompositeFieldContainer[_grading_pb2.AnswerEdit]
    rejected_edits: _containers.RepeatedCompositeFieldContainer[_grading_pb2.RejectedEdit]
    def __init__(self, delta: _Optional[str] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., edits: _Optional[_Iterable[_Union[_grading_pb2.AnswerEdit, _Mapping]]] = ..., rejected_edits: _Optional[_Iterable[_Union[_grading_pb2.RejectedEdit, _Mapping]]] = ...) -> None: ...

class WriteDraftRequest(_message.Message):
    __slots__ = ("task", "passages", "criteria")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    task: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    criteria: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Criterion]
    def __init__(self, task: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., criteria: _Optional[_Iterable[_Union[_grading_pb2.Criterion, _Mapping]]] = ...) -> None: ...

class WriteDraftResponse(_message.Message):
    __slots__ = ("delta", "draft", "usage")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    delta: str
    draft: _passage_pb2.Draft
    usage: _usage_pb2.Usage
    def __init__(self, delta: _Optional[str] = ..., draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class ReviseDraftRequest(_message.Message):
    __slots__ = ("task", "draft", "passages", "criteria", "issues", "suggestions", "failing_claims", "feedback")
    TASK_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILING_CLAIMS_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    task: str
    draft: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    criteria: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Criterion]
    issues: _containers.RepeatedCompositeFieldContainer[_grading_pb2.DraftIssue]
    suggestions: _containers.RepeatedScalarFieldContainer[str]
    failing_claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    feedback: str
    def __init__(self, task: _Optional[str] = ..., draft: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., criteria: _Optional[_Iterable[_Union[_grading_pb2.Criterion, _Mapping]]] = ..., issues: _Optional[_Iterable[_Union[_grading_pb2.DraftIssue, _Mapping]]] = ..., suggestions: _Optional[_Iterable[str]] = ..., failing_claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ..., feedback: _Optional[str] = ...) -> None: ...

class ReviseDraftResponse(_message.Message):
    __slots__ = ("delta", "draft", "usage")
    DELTA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    delta: str
    draft: _passage_pb2.Draft
    usage: _usage_pb2.Usage
    def __init__(self, delta: _Optional[str] = ..., draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...
