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
    OUTCOME_APPROVED: _ClassVar[Outcome]
    OUTCOME_MAX_REVISIONS_REACHED: _ClassVar[Outcome]
    OUTCOME_REJECTED: _ClassVar[Outcome]
    OUTCOME_BUDGET_EXHAUSTED: _ClassVar[Outcome]

class ApprovalDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    APPROVAL_DECISION_UNSPECIFIED: _ClassVar[ApprovalDecision]
    APPROVAL_DECISION_APPROVE: _ClassVar[ApprovalDecision]
    APPROVAL_DECISION_REJECT: _ClassVar[ApprovalDecision]
    APPROVAL_DECISION_REVISE: _ClassVar[ApprovalDecision]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_ANSWERED: Outcome
OUTCOME_ANSWERED_AFTER_REFINEMENT: Outcome
OUTCOME_REFUSED_NO_EVIDENCE: Outcome
OUTCOME_REFUSED_UNFAITHFUL: Outcome
OUTCOME_DEADLINE_EXCEEDED: Outcome
OUTCOME_CANCELLED: Outcome
OUTCOME_FAILED: Outcome
OUTCOME_APPROVED: Outcome
OUTCOME_MAX_REVISIONS_REACHED: Outcome
OUTCOME_REJECTED: Outcome
OUTCOME_BUDGET_EXHAUSTED: Outcome
APPROVAL_DECISION_UNSPECIFIED: ApprovalDecision
APPROVAL_DECISION_APPROVE: ApprovalDecision
APPROVAL_DECISION_REJECT: ApprovalDecision
APPROVAL_DECISION_REVISE: ApprovalDecision

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

class ComposeSettings(_message.Message):
    __slots__ = ("overall_threshold", "max_revisions", "top_k", "relevance_threshold", "faithfulness_threshold", "search_mode")
    OVERALL_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MAX_REVISIONS_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    RELEVANCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FAITHFULNESS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SEARCH_MODE_FIELD_NUMBER: _ClassVar[int]
    overall_threshold: float
    max_revisions: int
    top_k: int
    relevance_threshold: float
    faithfulness_threshold: float
    search_mode: _filter_pb2.SearchMode
    def __init__(self, overall_threshold: _Optional[float] = ..., max_revisions: _Optional[int] = ..., top_k: _Optional[int] = ..., relevance_threshold: _Optional[float] = ..., faithfulness_threshold: _Optional[float] = ..., search_mode: _Optional[_Union[_filter_pb2.SearchMode, str]] = ...) -> None: ...

class TraceEvent(_message.Message):
    __slots__ = ("run_id", "sequence", "create_time", "run_started", "passages_retrieved", "passage_graded", "query_broadened", "answer_delta", "answer_drafted", "answer_graded", "answer_refined", "run_finished", "draft_written", "draft_reviewed", "draft_revised", "approval_requested", "approval_decided", "run_resumed", "claim_checked", "step_skipped")
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
    DRAFT_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    DRAFT_REVIEWED_FIELD_NUMBER: _ClassVar[int]
    DRAFT_REVISED_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_DECIDED_FIELD_NUMBER: _ClassVar[int]
    RUN_RESUMED_FIELD_NUMBER: _ClassVar[int]
    CLAIM_CHECKED_FIELD_NUMBER: _ClassVar[int]
    STEP_SKIPPED_FIELD_NUMBER: _ClassVar[int]
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
    draft_written: DraftWritten
    draft_reviewed: DraftReviewed
    draft_revised: DraftRevised
    approval_requested: ApprovalRequested
    approval_decided: ApprovalDecided
    run_resumed: RunResumed
    claim_checked: ClaimChecked
    step_skipped: StepSkipped
    def __init__(self, run_id: _Optional[str] = ..., sequence: _Optional[int] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., run_started: _Optional[_Union[RunStarted, _Mapping]] = ..., passages_retrieved: _Optional[_Union[PassagesRetrieved, _Mapping]] = ..., passage_graded: _Optional[_Union[PassageGraded, _Mapping]] = ..., query_broadened: _Optional[_Union[QueryBroadened, _Mapping]] = ..., answer_delta: _Optional[_Union[AnswerDelta, _Mapping]] = ..., answer_drafted: _Optional[_Union[AnswerDrafted, _Mapping]] = ..., answer_graded: _Optional[_Union[AnswerGraded, _Mapping]] = ..., answer_refined: _Optional[_Union[AnswerRefined, _Mapping]] = ..., run_finished: _Optional[_Union[RunFinished, _Mapping]] = ..., draft_written: _Optional[_Union[DraftWritten, _Mapping]] = ..., draft_reviewed: _Optional[_Union[DraftReviewed, _Mapping]] = ..., draft_revised: _Optional[_Union[DraftRevised, _Mapping]] = ..., approval_requested: _Optional[_Union[ApprovalRequested, _Mapping]] = ..., approval_decided: _Optional[_Union[ApprovalDecided, _Mapping]] = ..., run_resumed: _Optional[_Union[RunResumed, _Mapping]] = ..., claim_checked: _Optional[_Union[ClaimChecked, _Mapping]] = ..., step_skipped: _Optional[_Union[StepSkipped, _Mapping]] = ...) -> None: ...

class RunStarted(_message.Message):
    __slots__ = ("workflow", "question", "collection", "settings", "draft_supplied", "compose_settings", "criteria", "require_approval", "principal", "max_cost_micros", "max_tokens", "verified_only")
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_SUPPLIED_FIELD_NUMBER: _ClassVar[int]
    COMPOSE_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_ONLY_FIELD_NUMBER: _ClassVar[int]
    workflow: str
    question: str
    collection: str
    settings: AnswerSettings
    draft_supplied: bool
    compose_settings: ComposeSettings
    criteria: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Criterion]
    require_approval: bool
    principal: str
    max_cost_micros: int
    max_tokens: int
    verified_only: bool
    def __init__(self, workflow: _Optional[str] = ..., question: _Optional[str] = ..., collection: _Optional[str] = ..., settings: _Optional[_Union[AnswerSettings, _Mapping]] = ..., draft_supplied: _Optional[bool] = ..., compose_settings: _Optional[_Union[ComposeSettings, _Mapping]] = ..., criteria: _Optional[_Iterable[_Union[_grading_pb2.Criterion, _Mapping]]] = ..., require_approval: _Optional[bool] = ..., principal: _Optional[str] = ..., max_cost_micros: _Optional[int] = ..., max_tokens: _Optional[int] = ..., verified_only: _Optional[bool] = ...) -> None: ...

class RunResumed(_message.Message):
    __slots__ = ("takeover", "replica")
    TAKEOVER_FIELD_NUMBER: _ClassVar[int]
    REPLICA_FIELD_NUMBER: _ClassVar[int]
    takeover: int
    replica: str
    def __init__(self, takeover: _Optional[int] = ..., replica: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("broadening", "previous_query", "query", "removed_terms", "exhausted")
    BROADENING_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_QUERY_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    REMOVED_TERMS_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTED_FIELD_NUMBER: _ClassVar[int]
    broadening: int
    previous_query: str
    query: str
    removed_terms: _containers.RepeatedScalarFieldContainer[str]
    exhausted: bool
    def __init__(self, broadening: _Optional[int] = ..., previous_query: _Optional[str] = ..., query: _Optional[str] = ..., removed_terms: _Optional[_Iterable[str]] = ..., exhausted: _Optional[bool] = ...) -> None: ...

class AnswerDelta(_message.Message):
    __slots__ = ("text", "refinement", "attempt", "segment")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    text: str
    refinement: int
    attempt: int
    segment: int
    def __init__(self, text: _Optional[str] = ..., refinement: _Optional[int] = ..., attempt: _Optional[int] = ..., segment: _Optional[int] = ...) -> None: ...

class ClaimChecked(_message.Message):
    __slots__ = ("refinement", "attempt", "segment", "claim", "passed", "remaining")
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    REMAINING_FIELD_NUMBER: _ClassVar[int]
    refinement: int
    attempt: int
    segment: int
    claim: _grading_pb2.Claim
    passed: bool
    remaining: int
    def __init__(self, refinement: _Optional[int] = ..., attempt: _Optional[int] = ..., segment: _Optional[int] = ..., claim: _Optional[_Union[_grading_pb2.Claim, _Mapping]] = ..., passed: _Optional[bool] = ..., remaining: _Optional[int] = ...) -> None: ...

class StepSkipped(_message.Message):
    __slots__ = ("step", "number", "expected", "left")
    STEP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    step: str
    number: int
    expected: _duration_pb2.Duration
    left: _duration_pb2.Duration
    def __init__(self, step: _Optional[str] = ..., number: _Optional[int] = ..., expected: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., left: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

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
    __slots__ = ("refinement", "answer", "corrected_claim_ids", "previous_text", "edits", "rejected_edits")
    REFINEMENT_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    CORRECTED_CLAIM_IDS_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_TEXT_FIELD_NUMBER: _ClassVar[int]
    EDITS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_EDITS_FIELD_NUMBER: _ClassVar[int]
    refinement: int
    answer: _passage_pb2.Answer
    corrected_claim_ids: _containers.RepeatedScalarFieldContainer[str]
    previous_text: str
    edits: _containers.RepeatedCompositeFieldContainer[_grading_pb2.AnswerEdit]
    rejected_edits: _containers.RepeatedCompositeFieldContainer[_grading_pb2.RejectedEdit]
    def __init__(self, refinement: _Optional[int] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., corrected_claim_ids: _Optional[_Iterable[str]] = ..., previous_text: _Optional[str] = ..., edits: _Optional[_Iterable[_Union[_grading_pb2.AnswerEdit, _Mapping]]] = ..., rejected_edits: _Optional[_Iterable[_Union[_grading_pb2.RejectedEdit, _Mapping]]] = ...) -> None: ...

class DraftWritten(_message.Message):
    __slots__ = ("draft", "supplied", "passage_ids")
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    SUPPLIED_FIELD_NUMBER: _ClassVar[int]
    PASSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    draft: _passage_pb2.Draft
    supplied: bool
    passage_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., supplied: _Optional[bool] = ..., passage_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Regression(_message.Message):
    __slots__ = ("criterion", "previous_score", "score", "threshold")
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_SCORE_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    criterion: str
    previous_score: float
    score: float
    threshold: float
    def __init__(self, criterion: _Optional[str] = ..., previous_score: _Optional[float] = ..., score: _Optional[float] = ..., threshold: _Optional[float] = ...) -> None: ...

class DraftReviewed(_message.Message):
    __slots__ = ("revision", "review", "faithfulness", "passed", "shortfalls", "regressions", "best_revision")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    FAITHFULNESS_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    SHORTFALLS_FIELD_NUMBER: _ClassVar[int]
    REGRESSIONS_FIELD_NUMBER: _ClassVar[int]
    BEST_REVISION_FIELD_NUMBER: _ClassVar[int]
    revision: int
    review: _grading_pb2.DraftReview
    faithfulness: _grading_pb2.AnswerGrade
    passed: bool
    shortfalls: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Shortfall]
    regressions: _containers.RepeatedCompositeFieldContainer[Regression]
    best_revision: int
    def __init__(self, revision: _Optional[int] = ..., review: _Optional[_Union[_grading_pb2.DraftReview, _Mapping]] = ..., faithfulness: _Optional[_Union[_grading_pb2.AnswerGrade, _Mapping]] = ..., passed: _Optional[bool] = ..., shortfalls: _Optional[_Iterable[_Union[_grading_pb2.Shortfall, _Mapping]]] = ..., regressions: _Optional[_Iterable[_Union[Regression, _Mapping]]] = ..., best_revision: _Optional[int] = ...) -> None: ...

class DraftRevised(_message.Message):
    __slots__ = ("revision", "draft", "from_revision", "requested", "feedback")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    FROM_REVISION_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    revision: int
    draft: _passage_pb2.Draft
    from_revision: int
    requested: _containers.RepeatedScalarFieldContainer[str]
    feedback: str
    def __init__(self, revision: _Optional[int] = ..., draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., from_revision: _Optional[int] = ..., requested: _Optional[_Iterable[str]] = ..., feedback: _Optional[str] = ...) -> None: ...

class ApprovalRequested(_message.Message):
    __slots__ = ("approval", "revision", "draft", "overall_score")
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    OVERALL_SCORE_FIELD_NUMBER: _ClassVar[int]
    approval: int
    revision: int
    draft: _passage_pb2.Draft
    overall_score: float
    def __init__(self, approval: _Optional[int] = ..., revision: _Optional[int] = ..., draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., overall_score: _Optional[float] = ...) -> None: ...

class ApprovalDecided(_message.Message):
    __slots__ = ("approval", "decision", "feedback", "principal")
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    approval: int
    decision: ApprovalDecision
    feedback: str
    principal: str
    def __init__(self, approval: _Optional[int] = ..., decision: _Optional[_Union[ApprovalDecision, str]] = ..., feedback: _Optional[str] = ..., principal: _Optional[str] = ...) -> None: ...

class RunFinished(_message.Message):
    __slots__ = ("outcome", "answer", "cited_passages", "faithfulness_score", "refusal", "error", "retrievals", "refinements", "elapsed", "usage", "draft", "review", "approved", "shortfalls", "revisions", "best_revision")
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
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    SHORTFALLS_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    BEST_REVISION_FIELD_NUMBER: _ClassVar[int]
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
    draft: _passage_pb2.Draft
    review: _grading_pb2.DraftReview
    approved: bool
    shortfalls: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Shortfall]
    revisions: int
    best_revision: int
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., answer: _Optional[_Union[_passage_pb2.Answer, _Mapping]] = ..., cited_passages: _Optional[_Iterable[_Union[_passage_pb2.Passage, _Mapping]]] = ..., faithfulness_score: _Optional[float] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., error: _Optional[_Union[_errors_pb2.ErrorDetail, _Mapping]] = ..., retrievals: _Optional[int] = ..., refinements: _Optional[int] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., draft: _Optional[_Union[_passage_pb2.Draft, _Mapping]] = ..., review: _Optional[_Union[_grading_pb2.DraftReview, _Mapping]] = ..., approved: _Optional[bool] = ..., shortfalls: _Optional[_Iterable[_Union[_grading_pb2.Shortfall, _Mapping]]] = ..., revisions: _Optional[int] = ..., best_revision: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("queries", "nearest_misses", "failing_claims", "rejected_answer", "skipped_step")
    QUERIES_FIELD_NUMBER: _ClassVar[int]
    NEAREST_MISSES_FIELD_NUMBER: _ClassVar[int]
    FAILING_CLAIMS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_ANSWER_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_STEP_FIELD_NUMBER: _ClassVar[int]
    queries: _containers.RepeatedScalarFieldContainer[str]
    nearest_misses: _containers.RepeatedCompositeFieldContainer[NearestMiss]
    failing_claims: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Claim]
    rejected_answer: str
    skipped_step: str
    def __init__(self, queries: _Optional[_Iterable[str]] = ..., nearest_misses: _Optional[_Iterable[_Union[NearestMiss, _Mapping]]] = ..., failing_claims: _Optional[_Iterable[_Union[_grading_pb2.Claim, _Mapping]]] = ..., rejected_answer: _Optional[str] = ..., skipped_step: _Optional[str] = ...) -> None: ...

class NearestMiss(_message.Message):
    __slots__ = ("passage", "grade")
    PASSAGE_FIELD_NUMBER: _ClassVar[int]
    GRADE_FIELD_NUMBER: _ClassVar[int]
    passage: _passage_pb2.Passage
    grade: _grading_pb2.PassageGrade
    def __init__(self, passage: _Optional[_Union[_passage_pb2.Passage, _Mapping]] = ..., grade: _Optional[_Union[_grading_pb2.PassageGrade, _Mapping]] = ...) -> None: ...
