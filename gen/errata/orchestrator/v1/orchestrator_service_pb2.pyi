import datetime

from errata.corpus.v1 import filter_pb2 as _filter_pb2
from errata.grading.v1 import grading_pb2 as _grading_pb2
from errata.orchestrator.v1 import trace_pb2 as _trace_pb2
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

class OnDisconnect(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ON_DISCONNECT_UNSPECIFIED: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CANCEL: _ClassVar[OnDisconnect]
    ON_DISCONNECT_CONTINUE: _ClassVar[OnDisconnect]

class RunState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RUN_STATE_UNSPECIFIED: _ClassVar[RunState]
    RUN_STATE_RUNNING: _ClassVar[RunState]
    RUN_STATE_FINISHED: _ClassVar[RunState]
    RUN_STATE_WAITING: _ClassVar[RunState]
ON_DISCONNECT_UNSPECIFIED: OnDisconnect
ON_DISCONNECT_CANCEL: OnDisconnect
ON_DISCONNECT_CONTINUE: OnDisconnect
RUN_STATE_UNSPECIFIED: RunState
RUN_STATE_RUNNING: RunState
RUN_STATE_FINISHED: RunState
RUN_STATE_WAITING: RunState

class AskRequest(_message.Message):
    __slots__ = ("question", "collection", "settings", "draft_answer", "filter", "request_id", "on_disconnect", "max_cost_micros", "max_tokens", "verified_only")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DRAFT_ANSWER_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_ONLY_FIELD_NUMBER: _ClassVar[int]
    question: str
    collection: str
    settings: _trace_pb2.AnswerSettings
    draft_answer: str
    filter: _filter_pb2.MetadataFilter
    request_id: str
    on_disconnect: OnDisconnect
    max_cost_micros: int
    max_tokens: int
    verified_only: bool
    def __init__(self, question: _Optional[str] = ..., collection: _Optional[str] = ..., settings: _Optional[_Union[_trace_pb2.AnswerSettings, _Mapping]] = ..., draft_answer: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.MetadataFilter, _Mapping]] = ..., request_id: _Optional[str] = ..., on_disconnect: _Optional[_Union[OnDisconnect, str]] = ..., max_cost_micros: _Optional[int] = ..., max_tokens: _Optional[int] = ..., verified_only: _Optional[bool] = ...) -> None: ...

class AskResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _trace_pb2.TraceEvent
    def __init__(self, event: _Optional[_Union[_trace_pb2.TraceEvent, _Mapping]] = ...) -> None: ...

class ComposeRequest(_message.Message):
    __slots__ = ("task", "collection", "settings", "criteria", "draft", "filter", "require_approval", "request_id", "on_disconnect", "max_cost_micros", "max_tokens")
    TASK_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    CRITERIA_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_APPROVAL_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    ON_DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    MAX_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    task: str
    collection: str
    settings: _trace_pb2.ComposeSettings
    criteria: _containers.RepeatedCompositeFieldContainer[_grading_pb2.Criterion]
    draft: str
    filter: _filter_pb2.MetadataFilter
    require_approval: bool
    request_id: str
    on_disconnect: OnDisconnect
    max_cost_micros: int
    max_tokens: int
    def __init__(self, task: _Optional[str] = ..., collection: _Optional[str] = ..., settings: _Optional[_Union[_trace_pb2.ComposeSettings, _Mapping]] = ..., criteria: _Optional[_Iterable[_Union[_grading_pb2.Criterion, _Mapping]]] = ..., draft: _Optional[str] = ..., filter: _Optional[_Union[_filter_pb2.MetadataFilter, _Mapping]] = ..., require_approval: _Optional[bool] = ..., request_id: _Optional[str] = ..., on_disconnect: _Optional[_Union[OnDisconnect, str]] = ..., max_cost_micros: _Optional[int] = ..., max_tokens: _Optional[int] = ...) -> None: ...

class ComposeResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _trace_pb2.TraceEvent
    def __init__(self, event: _Optional[_Union[_trace_pb2.TraceEvent, _Mapping]] = ...) -> None: ...

class WatchRunRequest(_message.Message):
    __slots__ = ("run_id", "after_sequence", "verified_only")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    VERIFIED_ONLY_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    after_sequence: int
    verified_only: bool
    def __init__(self, run_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., verified_only: _Optional[bool] = ...) -> None: ...

class WatchRunResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: _trace_pb2.TraceEvent
    def __init__(self, event: _Optional[_Union[_trace_pb2.TraceEvent, _Mapping]] = ...) -> None: ...

class Run(_message.Message):
    __slots__ = ("run_id", "workflow", "state", "outcome", "question", "collection", "create_time", "finish_time", "last_sequence", "principal", "approved", "score", "corrections", "elapsed", "totals", "takeovers")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    FINISH_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    APPROVED_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    CORRECTIONS_FIELD_NUMBER: _ClassVar[int]
    ELAPSED_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    workflow: str
    state: RunState
    outcome: _trace_pb2.Outcome
    question: str
    collection: str
    create_time: _timestamp_pb2.Timestamp
    finish_time: _timestamp_pb2.Timestamp
    last_sequence: int
    principal: str
    approved: bool
    score: float
    corrections: int
    elapsed: _duration_pb2.Duration
    totals: UsageTotals
    takeovers: int
    def __init__(self, run_id: _Optional[str] = ..., workflow: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., outcome: _Optional[_Union[_trace_pb2.Outcome, str]] = ..., question: _Optional[str] = ..., collection: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., finish_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_sequence: _Optional[int] = ..., principal: _Optional[str] = ..., approved: _Optional[bool] = ..., score: _Optional[float] = ..., corrections: _Optional[int] = ..., elapsed: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., totals: _Optional[_Union[UsageTotals, _Mapping]] = ..., takeovers: _Optional[int] = ...) -> None: ...

class UsageTotals(_message.Message):
    __slots__ = ("model_calls", "failed_calls", "input_tokens", "cached_input_tokens", "output_tokens", "estimated", "cost_micros", "models", "saved_calls", "saved_tokens", "saved_cost_micros")
    MODEL_CALLS_FIELD_NUMBER: _ClassVar[int]
    FAILED_CALLS_FIELD_NUMBER: _ClassVar[int]
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    MODELS_FIELD_NUMBER: _ClassVar[int]
    SAVED_CALLS_FIELD_NUMBER: _ClassVar[int]
    SAVED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SAVED_COST_MICROS_FIELD_NUMBER: _ClassVar[int]
    model_calls: int
    failed_calls: int
    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    estimated: bool
    cost_micros: int
    models: _containers.RepeatedScalarFieldContainer[str]
    saved_calls: int
    saved_tokens: int
    saved_cost_micros: int
    def __init__(self, model_calls: _Optional[int] = ..., failed_calls: _Optional[int] = ..., input_tokens: _Optional[int] = ..., cached_input_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., estimated: _Optional[bool] = ..., cost_micros: _Optional[int] = ..., models: _Optional[_Iterable[str]] = ..., saved_calls: _Optional[int] = ..., saved_tokens: _Optional[int] = ..., saved_cost_micros: _Optional[int] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("sequence", "kind", "subject", "iteration", "score", "threshold", "passed", "verdict", "explanation")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    kind: str
    subject: str
    iteration: int
    score: float
    threshold: float
    passed: bool
    verdict: str
    explanation: str
    def __init__(self, sequence: _Optional[int] = ..., kind: _Optional[str] = ..., subject: _Optional[str] = ..., iteration: _Optional[int] = ..., score: _Optional[float] = ..., threshold: _Optional[float] = ..., passed: _Optional[bool] = ..., verdict: _Optional[str] = ..., explanation: _Optional[str] = ...) -> None: ...

class PromptVersion(_message.Message):
    __slots__ = ("operation", "version")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    operation: str
    version: str
    def __init__(self, operation: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class GetRunRequest(_message.Message):
    __slots__ = ("run_id", "without_trace")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_TRACE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    without_trace: bool
    def __init__(self, run_id: _Optional[str] = ..., without_trace: _Optional[bool] = ...) -> None: ...

class GetRunResponse(_message.Message):
    __slots__ = ("run", "result", "evaluations", "usage", "prompt_versions", "trace", "trace_truncated")
    RUN_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
    USAGE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    TRACE_FIELD_NUMBER: _ClassVar[int]
    TRACE_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    run: Run
    result: _trace_pb2.RunFinished
    evaluations: _containers.RepeatedCompositeFieldContainer[Evaluation]
    usage: _usage_pb2.Usage
    prompt_versions: _containers.RepeatedCompositeFieldContainer[PromptVersion]
    trace: _containers.RepeatedCompositeFieldContainer[_trace_pb2.TraceEvent]
    trace_truncated: bool
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ..., result: _Optional[_Union[_trace_pb2.RunFinished, _Mapping]] = ..., evaluations: _Optional[_Iterable[_Union[Evaluation, _Mapping]]] = ..., usage: _Optional[_Union[_usage_pb2.Usage, _Mapping]] = ..., prompt_versions: _Optional[_Iterable[_Union[PromptVersion, _Mapping]]] = ..., trace: _Optional[_Iterable[_Union[_trace_pb2.TraceEvent, _Mapping]]] = ..., trace_truncated: _Optional[bool] = ...) -> None: ...

class ListRunsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "state", "outcome", "workflow", "create_time_from", "create_time_before", "principal")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    WORKFLOW_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FROM_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_BEFORE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    state: RunState
    outcome: _trace_pb2.Outcome
    workflow: str
    create_time_from: _timestamp_pb2.Timestamp
    create_time_before: _timestamp_pb2.Timestamp
    principal: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., state: _Optional[_Union[RunState, str]] = ..., outcome: _Optional[_Union[_trace_pb2.Outcome, str]] = ..., workflow: _Optional[str] = ..., create_time_from: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., create_time_before: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., principal: _Optional[str] = ...) -> None: ...

class ListRunsResponse(_message.Message):
    __slots__ = ("runs", "next_page_token")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    runs: _containers.RepeatedCompositeFieldContainer[Run]
    next_page_token: str
    def __init__(self, runs: _Optional[_Iterable[_Union[Run, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelRunRequest(_message.Message):
    __slots__ = ("run_id",)
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    def __init__(self, run_id: _Optional[str] = ...) -> None: ...

class CancelRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...

class ResumeRunRequest(_message.Message):
    __slots__ = ("run_id", "approval", "decision", "feedback")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    APPROVAL_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    FEEDBACK_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    approval: int
    decision: _trace_pb2.ApprovalDecision
    feedback: str
    def __init__(self, run_id: _Optional[str] = ..., approval: _Optional[int] = ..., decision: _Optional[_Union[_trace_pb2.ApprovalDecision, str]] = ..., feedback: _Optional[str] = ...) -> None: ...

class ResumeRunResponse(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: Run
    def __init__(self, run: _Optional[_Union[Run, _Mapping]] = ...) -> None: ...
