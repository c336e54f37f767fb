import datetime

from errata.corpus.v1 import filter_pb2 as _filter_pb2
from errata.corpus.v1 import passage_pb2 as _passage_pb2
from errata.errors.v1 import errors_pb2 as _errors_pb2
from errata.grading.v1 import grading_pb2 as _grading_pb2
from errata.usage.v1 import usage_pb2 as _usage_pb2
from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_ANSWERED: _ClassVar[Outcome]
    OUTCOME_ANSWERED_AFTER_REFINEMENT: _ClassVar[Outcome]
    OUTCOME_REFUSED_NO_EVIDENCE: _ClassVar[Outcome]
    OUTCOME_REFUSED_UNFAITHFUL: _ClassVar[Outcome]
    OUTCOME_DEADLINE_EXCEEDED: _ClassVar[Outcome]
    OUTCOME_CANCELLED: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ANSWERED: Outcome
OUTCOME_ANSWERED_AFTER_REFINEMENT: Outcome
OUTCOME_REFUSED_NO_EVIDENCE: Outcome
OUTCOME_REFUSED_UNFAITHFUL: Outcome
OUTCOME_DEADLINE_EXCEEDED: Outcome
OUTCOME_CANCELLED: Outcome
OUTCOME_FAILED: Outcome

class AnswerSettings(_message.Message):
    __slots__ = ("top_k", "relevance_threshold", "min_relevant", "max_retrievals", "faithfulness_threshold", "max_refinements", "search_mode")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    RELEVANCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MIN_RELEVANT_FIELD_NUMBER: _ClassVar[int]
    MAX_RETRIEVALS_FIELD_NUMBER: _ClassVar[int]
    FAITHFULNESS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MAX_REFINEMENTS_FIELD_NUMBER: _ClassVar[int]
    SEARCH_MODE_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    relevance_threshold: float
    min_relevant: int
    max_retrievals: int
    faithfulness_threshold: float
    max_refinements: int
    search_mode: _filter_pb2.SearchMode
    def __init__(self, top_k: _Optional[int] = ..., relevance_threshold: _Optional[float] = ..., min_relevant: _Optional[int] = ..., max_retrievals: _Optional[int] = ..., faithfulness_threshold: _Optional[float] = ..., max_refinements: _Optional[int] = ..., search_mode: _Optional[_Union[_filter_pb2.SearchMode, str]] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("run_id", "sequence", "create_time", "run_started", "passages_retrieved", "passage_graded", "query_broadened", "answer_delta", "answer_drafted", "answer_graded", "answer_refined", "run_finished")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    RUN_STARTED_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_RETRIEVED_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_GRADED_FIELD_NUMBER: _ClassVar[int]
    QUERY_BROADENED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_DELTA_FIELD_NUMBER: _ClassVar[int]
    ANSWER_DRAFTED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_GRADED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_REFINED_FIELD_NUMBER: _ClassVar[int]
    RUN_FINISHED_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    sequence: int
    create_time: _timestamp_pb2.Timestamp
    run_started: RunStarted
    passages_retrieved: PassagesRetrieved
    passage_graded: PassageGraded
    query_broadened: QueryBroadened
    answer_delta: AnswerDelta
    answer_drafted: AnswerDrafted
    answer_graded: AnswerGraded
    answer_refined: AnswerRefined
    run_finished: RunFinished
    def __init__(self, run_id: _Optional[str] = ..., sequence: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run_started: _Optional[_Union[RunStarted, _Mapping]] = ..., passages_retrieved: _Optional[_Union[PassagesRetrieved, _Mapping]] = ..., passage_graded: _Optional[_Union[PassageGraded, _Mapping]] = ..., query_broadened: _Optional[_Union[QueryBroadened, _Mapping]] = ..., answer_delta: _Optional[_Union[AnswerDelta, _Mapping]] = ..., answer_drafted: _Optional[_Union[AnswerDrafted, _Mapping]] = ..., answer_graded: _Optional[_Union[AnswerGraded, _Mapping]] = ..., answer_refined: _Optional[_Union[AnswerRefined, _Mapping]] = ..., run_finished: _Optional[_Union[RunFinished, _Mapping]] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("workflow", "question", "collection", "settings", "draft_supplied")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SUPPLIED_FIELD_NUMBER: _ClassVar[int]
    workflow: str
    question: str
    collection: str
    settings: AnswerSettings
    draft_supplied: bool
    def __init__(self, workflow: _Optional[str] = ..., question: _Optional[str] = ..., collection: _Optional[str] = ..., settings: _Optional[_Union[AnswerSettings, _Mapping]] = ..., draft_supplied: _Optional[bool] = ...) -> None: ...

class PassagesRetrieved(_message.Message):
    __slots__ = ("retrieval", "query", "passages", "new_passage_ids")
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    PASSAGES_FIELD_NUMBER: _ClassVar[int]
    NEW_PASSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    retrieval: int
    query: str
    passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    new_passage_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, retrieval: _Optional[int] = ..., query: _Optional[str] = ..., passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., new_passage_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PassageGraded(_message.Message):
    __slots__ = ("retrieval", "passage_id", "used", "grade", "error")
    RETRIEVAL_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    retrieval: int
    passage_id: str
    used: bool
    grade: _grading_pb2.PassageGrade
    error: _errors_pb2.ErrorDetail
    def __init__(self, retrieval: _Optional[int] = ..., passage_id: _Optional[str] = ..., used: _Optional[bool] = ..., grade: _Optional[_Union[_grading_pb2.PassageGrade, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ...) -> None: ...

class QueryBroadened(_message.Message):
    __slots__ = ("broadening", "previous_query", "query", "removed_terms")
    BROADENING_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_QUERY_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TERMS_FIELD_NUMBER: _ClassVar[int]
    broadening: int
    previous_query: str
    query: str
    removed_terms: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, broadening: _Optional[int] = ..., previous_query: _Optional[str] = ..., query: _Optional[str] = ..., removed_terms: _Optional[_Iterable[str]] = ...) -> None: ...

class AnswerDelta(_message.Message):
    __slots__ = ("text", "refinement")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    text: str
    refinement: int
    def __init__(self, text: _Optional[str] = ..., refinement: _Optional[int] = ...) -> None: ...

class AnswerDrafted(_message.Message):
    __slots__ = ("answer", "supplied", "passage_ids")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    SUPPLIED_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    answer: _passage_pb2.Answer
    supplied: bool
    passage_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., supplied: _Optional[bool] = ..., passage_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class AnswerGraded(_message.Message):
    __slots__ = ("refinement", "grade", "passed", "failures")
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    refinement: int
    grade: _grading_pb2.AnswerGrade
    passed: bool
    failures: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, refinement: _Optional[int] = ..., grade: _Optional[_Union[_grading_pb2.AnswerGrade, _Mapping]] = ..., passed: _Optional[bool] = ..., failures: _Optional[_Iterable[str]] = ...) -> None: ...

class AnswerRefined(_message.Message):
    __slots__ = ("refinement", "answer", "corrected_claim_ids", "previous_text")
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_CLAIM_IDS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    refinement: int
    answer: _passage_pb2.Answer
    corrected_claim_ids: _containers.RepeatedScalarFieldContainer[str]
    previous_text: str
    def __init__(self, refinement: _Optional[int] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., corrected_claim_ids: _Optional[_Iterable[str]] = ..., previous_text: _Optional[str] = ...) -> None: ...

class RunFinished(_message.Message):
    __slots__ = ("outcome", "answer", "cited_passages", "faithfulness_score", "refusal", "error", "retrievals", "refinements", "elapsed", "usage")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CITED_PASSAGES_FIELD_NUMBER: _ClassVar[int]
    FAITHFULNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RETRIEVALS_FIELD_NUMBER: _ClassVar[int]
    REFINEMENTS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    answer: _passage_pb2.Answer
    cited_passages: _containers.RepeatedCompositeFieldContainer[_passage_pb2.Passage]
    faithfulness_score: float
    refusal: Refusal
    error: _errors_pb2.ErrorDetail
    retrievals: int
    refinements: int
    elapsed: _duration_pb2.Duration
    usage: _usage_pb2.Usage
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., cited_passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., faithfulness_score: _Optional[float] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., retrievals: _Optional[int] = ..., refinements: _Optional[int] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("queries", "nearest_misses", "failing_claims", "rejected_answer")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    NEAREST_MISSES_FIELD_NUMBER: _ClassVar[int]
    FAILING_CLAIMS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_ANSWER_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedScalarFieldContainer[str]
    nearest_misses: _containers.RepeatedCompositeFieldContainer[NearestMiss]
    failing_claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    rejected_answer: str
    def __init__(self, queries: _Optional[_Iterable[str]] = ..., nearest_misses: _Optional[_Iterable[_Union[NearestMiss, _Mapping]]] = ..., failing_claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ..., rejected_answer: _Optional[str] = ...) -> None: ...

class NearestMiss(_message.Message):
    __slots__ = ("passage", "grade")
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    passage: _passage_pb2.Passage
    grade: _grading_pb2.PassageGrade
    def __init__(self, passage: _Optional[_Union[_passage_pb2.Passage, _Mapping]] = ..., grade: _Optional[_Union[_grading_pb2.PassageGrade, _Mapping]] = ...) -> None: ...
