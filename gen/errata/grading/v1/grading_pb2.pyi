from errata.corpus.v1 import passage_pb2 as _passage_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class InjectionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INJECTION_KIND_UNSPECIFIED: _ClassVar[InjectionKind]
    INJECTION_KIND_OVERRIDE: _ClassVar[InjectionKind]
    INJECTION_KIND_ROLE: _ClassVar[InjectionKind]
    INJECTION_KIND_VERDICT: _ClassVar[InjectionKind]
    INJECTION_KIND_FENCE: _ClassVar[InjectionKind]
    INJECTION_KIND_HIDDEN: _ClassVar[InjectionKind]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_SUPPORTED: _ClassVar[Verdict]
    VERDICT_UNSUPPORTED: _ClassVar[Verdict]
    VERDICT_CONTRADICTED: _ClassVar[Verdict]
    VERDICT_UNVERIFIABLE: _ClassVar[Verdict]

class HallucinationRisk(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HALLUCINATION_RISK_UNSPECIFIED: _ClassVar[HallucinationRisk]
    HALLUCINATION_RISK_LOW: _ClassVar[HallucinationRisk]
    HALLUCINATION_RISK_MEDIUM: _ClassVar[HallucinationRisk]
    HALLUCINATION_RISK_HIGH: _ClassVar[HallucinationRisk]

class FindingKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FINDING_KIND_UNSPECIFIED: _ClassVar[FindingKind]
    FINDING_KIND_NUMBER: _ClassVar[FindingKind]
    FINDING_KIND_VERSION: _ClassVar[FindingKind]
    FINDING_KIND_IDENTIFIER: _ClassVar[FindingKind]
    FINDING_KIND_FLAG: _ClassVar[FindingKind]
    FINDING_KIND_ENVIRONMENT_VARIABLE: _ClassVar[FindingKind]
    FINDING_KIND_PATH: _ClassVar[FindingKind]
    FINDING_KIND_URL: _ClassVar[FindingKind]
    FINDING_KIND_QUOTE: _ClassVar[FindingKind]
    FINDING_KIND_DATE: _ClassVar[FindingKind]
    FINDING_KIND_NEGATION: _ClassVar[FindingKind]

class IssueSeverity(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ISSUE_SEVERITY_UNSPECIFIED: _ClassVar[IssueSeverity]
    ISSUE_SEVERITY_MINOR: _ClassVar[IssueSeverity]
    ISSUE_SEVERITY_MAJOR: _ClassVar[IssueSeverity]
    ISSUE_SEVERITY_CRITICAL: _ClassVar[IssueSeverity]

class ReviewDecision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REVIEW_DECISION_UNSPECIFIED: _ClassVar[ReviewDecision]
    REVIEW_DECISION_APPROVE: _ClassVar[ReviewDecision]
    REVIEW_DECISION_REVISE: _ClassVar[ReviewDecision]
INJECTION_KIND_UNSPECIFIED: InjectionKind
INJECTION_KIND_OVERRIDE: InjectionKind
INJECTION_KIND_ROLE: InjectionKind
INJECTION_KIND_VERDICT: InjectionKind
INJECTION_KIND_FENCE: InjectionKind
INJECTION_KIND_HIDDEN: InjectionKind
VERDICT_UNSPECIFIED: Verdict
VERDICT_SUPPORTED: Verdict
VERDICT_UNSUPPORTED: Verdict
VERDICT_CONTRADICTED: Verdict
VERDICT_UNVERIFIABLE: Verdict
HALLUCINATION_RISK_UNSPECIFIED: HallucinationRisk
HALLUCINATION_RISK_LOW: HallucinationRisk
HALLUCINATION_RISK_MEDIUM: HallucinationRisk
HALLUCINATION_RISK_HIGH: HallucinationRisk
FINDING_KIND_UNSPECIFIED: FindingKind
FINDING_KIND_NUMBER: FindingKind
FINDING_KIND_VERSION: FindingKind
FINDING_KIND_IDENTIFIER: FindingKind
FINDING_KIND_FLAG: FindingKind
FINDING_KIND_ENVIRONMENT_VARIABLE: FindingKind
FINDING_KIND_PATH: FindingKind
FINDING_KIND_URL: FindingKind
FINDING_KIND_QUOTE: FindingKind
FINDING_KIND_DATE: FindingKind
FINDING_KIND_NEGATION: FindingKind
ISSUE_SEVERITY_UNSPECIFIED: IssueSeverity
ISSUE_SEVERITY_MINOR: IssueSeverity
ISSUE_SEVERITY_MAJOR: IssueSeverity
ISSUE_SEVERITY_CRITICAL: IssueSeverity
REVIEW_DECISION_UNSPECIFIED: ReviewDecision
REVIEW_DECISION_APPROVE: ReviewDecision
REVIEW_DECISION_REVISE: ReviewDecision

class PassageGrade(_message.Message):
    __slots__ = ("score", "relevant", "reasoning", "injections")
    SCORE_FIELD_NUMBER: _ClassVar[int]
    RELEVANT_FIELD_NUMBER: _ClassVar[int]
    REASONING_FIELD_NUMBER: _ClassVar[int]
    INJECTIONS_FIELD_NUMBER: _ClassVar[int]
    score: float
    relevant: bool
    reasoning: str
    injections: _containers.RepeatedScalarFieldContainer[InjectionKind]
    def __init__(self, score: _Optional[float] = ..., relevant: _Optional[bool] = ..., reasoning: _Optional[str] = ..., injections: _Optional[_Iterable[_Union[InjectionKind, str]]] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("passage_id", "quote", "span")
    PASSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUOTE_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    passage_id: str
    quote: str
    span: _passage_pb2.Span
    def __init__(self, passage_id: _Optional[str] = ..., quote: _Optional[str] = ..., span: _Optional[_Union[_passage_pb2.Span, _Mapping]] = ...) -> None: ...

class Claim(_message.Message):
    __slots__ = ("claim_id", "text", "span", "verdict", "support", "evidence", "explanation")
    CLAIM_ID_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SUPPORT_FIELD_NUMBER: _ClassVar[int]
    EVIDENCE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    claim_id: str
    text: str
    span: _passage_pb2.Span
    verdict: Verdict
    support: float
    evidence: _containers.RepeatedCompositeFieldContainer[Evidence]
    explanation: str
    def __init__(self, claim_id: _Optional[str] = ..., text: _Optional[str] = ..., span: _Optional[_Union[_passage_pb2.Span, _Mapping]] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., support: _Optional[float] = ..., evidence: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., explanation: _Optional[str] = ...) -> None: ...

class GuardFinding(_message.Message):
    __slots__ = ("kind", "text", "span", "explanation", "claim_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    CLAIM_ID_FIELD_NUMBER: _ClassVar[int]
    kind: FindingKind
    text: str
    span: _passage_pb2.Span
    explanation: str
    claim_id: str
    def __init__(self, kind: _Optional[_Union[FindingKind, str]] = ..., text: _Optional[str] = ..., span: _Optional[_Union[_passage_pb2.Span, _Mapping]] = ..., explanation: _Optional[str] = ..., claim_id: _Optional[str] = ...) -> None: ...

class AnswerGrade(_message.Message):
    __slots__ = ("claims", "faithfulness_score", "hallucination_risk", "problematic_claim_ids", "findings", "refinement_suggestion", "model")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    FAITHFULNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    HALLUCINATION_RISK_FIELD_NUMBER: _ClassVar[int]
    PROBLEMATIC_CLAIM_IDS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    REFINEMENT_SUGGESTION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    claims: _containers.RepeatedCompositeFieldContainer[Claim]
    faithfulness_score: float
    hallucination_risk: HallucinationRisk
    problematic_claim_ids: _containers.RepeatedScalarFieldContainer[str]
    findings: _containers.RepeatedCompositeFieldContainer[GuardFinding]
    refinement_suggestion: str
    model: str
    def __init__(self, claims: _Optional[_Iterable[_Union[Claim, _Mapping]]] = ..., faithfulness_score: _Optional[float] = ..., hallucination_risk: _Optional[_Union[HallucinationRisk, str]] = ..., problematic_claim_ids: _Optional[_Iterable[str]] = ..., findings: _Optional[_Iterable[_Union[GuardFinding, _Mapping]]] = ..., refinement_suggestion: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class AnswerEdit(_message.Message):
    __slots__ = ("claim_ids", "span", "before", "after", "reason")
    CLAIM_IDS_FIELD_NUMBER: _ClassVar[int]
    SPAN_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    claim_ids: _containers.RepeatedScalarFieldContainer[str]
    span: _passage_pb2.Span
    before: str
    after: str
    reason: str
    def __init__(self, claim_ids: _Optional[_Iterable[str]] = ..., span: _Optional[_Union[_passage_pb2.Span, _Mapping]] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class RejectedEdit(_message.Message):
    __slots__ = ("after", "reason")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    after: str
    reason: str
    def __init__(self, after: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Criterion(_message.Message):
    __slots__ = ("name", "description", "threshold")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    threshold: float
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., threshold: _Optional[float] = ...) -> None: ...

class CriterionScore(_message.Message):
    __slots__ = ("criterion", "score", "threshold", "explanation", "model_score", "rule_findings")
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    MODEL_SCORE_FIELD_NUMBER: _ClassVar[int]
    RULE_FINDINGS_FIELD_NUMBER: _ClassVar[int]
    criterion: str
    score: float
    threshold: float
    explanation: str
    model_score: float
    rule_findings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, criterion: _Optional[str] = ..., score: _Optional[float] = ..., threshold: _Optional[float] = ..., explanation: _Optional[str] = ..., model_score: _Optional[float] = ..., rule_findings: _Optional[_Iterable[str]] = ...) -> None: ...

class DraftIssue(_message.Message):
    __slots__ = ("criterion", "severity", "description", "quote")
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    SEVERITY_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    QUOTE_FIELD_NUMBER: _ClassVar[int]
    criterion: str
    severity: IssueSeverity
    description: str
    quote: str
    def __init__(self, criterion: _Optional[str] = ..., severity: _Optional[_Union[IssueSeverity, str]] = ..., description: _Optional[str] = ..., quote: _Optional[str] = ...) -> None: ...

class Shortfall(_message.Message):
    __slots__ = ("criterion", "score", "threshold", "missing")
    CRITERION_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    criterion: str
    score: float
    threshold: float
    missing: float
    def __init__(self, criterion: _Optional[str] = ..., score: _Optional[float] = ..., threshold: _Optional[float] = ..., missing: _Optional[float] = ...) -> None: ...

class DraftReview(_message.Message):
    __slots__ = ("scores", "overall_score", "overall_threshold", "issues", "suggestions", "decision", "shortfalls", "model")
    SCORES_FIELD_NUMBER: _ClassVar[int]
    OVERALL_SCORE_FIELD_NUMBER: _ClassVar[int]
    OVERALL_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    ISSUES_FIELD_NUMBER: _ClassVar[int]
    SUGGESTIONS_FIELD_NUMBER: _ClassVar[int]
    DECISION_FIELD_NUMBER: _ClassVar[int]
    SHORTFALLS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    scores: _containers.RepeatedCompositeFieldContainer[CriterionScore]
    overall_score: float
    overall_threshold: float
    issues: _containers.RepeatedCompositeFieldContainer[DraftIssue]
    suggestions: _containers.RepeatedScalarFieldContainer[str]
    decision: ReviewDecision
    shortfalls: _containers.RepeatedCompositeFieldContainer[Shortfall]
    model: str
    def __init__(self, scores: _Optional[_Iterable[_Union[CriterionScore, _Mapping]]] = ..., overall_score: _Optional[float] = ..., overall_threshold: _Optional[float] = ..., issues: _Optional[_Iterable[_Union[DraftIssue, _Mapping]]] = ..., suggestions: _Optional[_Iterable[str]] = ..., decision: _Optional[_Union[ReviewDecision, str]] = ..., shortfalls: _Optional[_Iterable[_Union[Shortfall, _Mapping]]] = ..., model: _Optional[str] = ...) -> None: ...
