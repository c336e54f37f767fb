"""Trace events: what a run records, step by step. Values only, so that a store can keep them as JSON."""

import datetime
from enum import StrEnum

from pydantic.dataclasses import dataclass

from errata_kit.drafts import Criterion, DraftReview, Shortfall
from errata_kit.edits import Edit, RejectedEdit
from errata_kit.errors import ErrataError, Reason
from errata_kit.grades import AnswerGrade, Claim, PassageGrade
from errata_kit.passages import Answer, Draft, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.workflows.answer.state import AnswerSettings, SkippableStep
from services.orchestrator.workflows.compose.state import ComposeSettings


class Outcome(StrEnum):
    """How a run ended."""

    ANSWERED = "ANSWERED"
    ANSWERED_AFTER_REFINEMENT = "ANSWERED_AFTER_REFINEMENT"
    REFUSED_NO_EVIDENCE = "REFUSED_NO_EVIDENCE"
    REFUSED_UNFAITHFUL = "REFUSED_UNFAITHFUL"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"
    APPROVED = "APPROVED"
    MAX_REVISIONS_REACHED = "MAX_REVISIONS_REACHED"
    REJECTED = "REJECTED"
    BUDGET_EXHAUSTED = "BUDGET_EXHAUSTED"


def outcome_of(error: ErrataError) -> Outcome:
    """How a run ends that an error has broken off."""
    return {
        Reason.CANCELLED: Outcome.CANCELLED,
        Reason.DEADLINE_EXCEEDED: Outcome.DEADLINE_EXCEEDED,
        Reason.BUDGET_EXHAUSTED: Outcome.BUDGET_EXHAUSTED,
    }.get(error.why, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a trace records it."""

    reason: Reason
    message: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First event. question is the task of a compose run. settings are the workflow's own, None for one without."""

    workflow: str
    question: str
    collection: str
    settings: AnswerSettings | ComposeSettings | None
    draft_supplied: bool
    criteria: tuple[Criterion, ...] = ()
    require_approval: bool = False
    principal: str = ""
    max_cost_micros: int | None = None
    max_tokens: int | None = None
    verified_only: bool = False


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A replica has taken the run up from another. takeover counts from 1."""

    takeover: int
    replica: str


@dataclass(frozen=True, slots=True)
class PassagesRetrieved:
    """A retrieval ended. retrieval counts from 1."""

    retrieval: int
    query: str
    passages: tuple[Passage, ...]
    new_passage_ids: tuple[str, ...]

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.retrieval)


@dataclass(frozen=True, slots=True)
class PassageGraded:
    """A passage was graded, or could not be: exactly one of grade and error is set."""

    retrieval: int
    passage_id: str
    used: bool
    grade: PassageGrade | None = None
    error: Failure | None = None

    @property
    def key(self) -> str:
        """Which step of its kind it is: a passage is graded once for what was searched."""
        return f"{self.retrieval}:{self.passage_id}"


@dataclass(frozen=True, slots=True)
class QueryBroadened:
    """Another query will be tried, or none is left: exhausted, with an empty query."""

    broadening: int
    previous_query: str
    query: str
    removed_terms: tuple[str, ...]
    exhausted: bool = False

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.broadening)


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of text as it is written; ephemeral. A higher attempt starts the text anew. segment: 0 without segments."""

    text: str
    refinement: int
    attempt: int = 0
    segment: int = 0


@dataclass(frozen=True, slots=True)
class ClaimChecked:
    """The verdict on one claim; AnswerGraded decides. segment and attempt as in AnswerDelta; 0 when the whole was checked.

    The claim's span lies in the deltas so far, or with segment 0 in the answer. remaining: claims of the segment still to come.
    It is told, never asked for: no step of a run looks for one.
    """

    refinement: int
    claim: Claim
    passed: bool
    segment: int = 0
    attempt: int = 0
    remaining: int = 0


@dataclass(frozen=True, slots=True)
class StepSkipped:
    """The run went on without a step for want of time. number: which one it would have been. Times in seconds."""

    step: SkippableStep
    number: int
    expected_seconds: float
    left_seconds: float

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return f"{self.step.value}:{self.number}"


@dataclass(frozen=True, slots=True)
class AnswerDrafted:
    """The first draft. passage_ids is the order in which "[n]" cites."""

    answer: Answer
    supplied: bool
    passage_ids: tuple[str, ...]

    @property
    def key(self) -> str:
        """Which step of its kind it is: there is one."""
        return ""


@dataclass(frozen=True, slots=True)
class AnswerGraded:
    """The judge's finding, and whether the answer is released."""

    refinement: int
    grade: AnswerGrade
    passed: bool
    failures: tuple[str, ...]

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.refinement)


@dataclass(frozen=True, slots=True)
class AnswerRefined:
    """A correction. refinement counts from 1."""

    refinement: int
    answer: Answer
    corrected_claim_ids: tuple[str, ...]
    previous_text: str
    edits: tuple[Edit, ...] = ()
    rejected_edits: tuple[RejectedEdit, ...] = ()

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.refinement)


@dataclass(frozen=True, slots=True)
class DraftWritten:
    """The first draft of a compose run."""

    draft: Draft
    supplied: bool
    passage_ids: tuple[str, ...]

    @property
    def key(self) -> str:
        """Which step of its kind it is: there is one."""
        return ""


@dataclass(frozen=True, slots=True)
class Regression:
    """A criterion that had reached its threshold and no longer does."""

    criterion: str
    previous_score: float
    score: float
    threshold: float


@dataclass(frozen=True, slots=True)
class DraftReviewed:
    """The finding on a draft. shortfalls include faithfulness; best_revision is the best so far, this one included."""

    revision: int
    review: DraftReview
    faithfulness: AnswerGrade | None
    passed: bool
    shortfalls: tuple[Shortfall, ...]
    regressions: tuple[Regression, ...]
    best_revision: int

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.revision)


@dataclass(frozen=True, slots=True)
class DraftRevised:
    """A revision, what it was made from and what was asked for. revision counts from 1."""

    revision: int
    draft: Draft
    from_revision: int
    requested: tuple[str, ...]
    feedback: str = ""

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.revision)


@dataclass(frozen=True, slots=True)
class ApprovalRequested:
    """The run waits for a person. approval counts from 1."""

    approval: int
    revision: int
    draft: Draft
    overall_score: float

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.approval)


class ApprovalDecision(StrEnum):
    """What a person says about a draft."""

    APPROVE = "APPROVE"
    REJECT = "REJECT"
    REVISE = "REVISE"


@dataclass(frozen=True, slots=True)
class ApprovalDecided:
    """A person's decision on a request."""

    approval: int
    decision: ApprovalDecision
    feedback: str
    principal: str

    @property
    def key(self) -> str:
        """Which step of its kind it is."""
        return str(self.approval)


@dataclass(frozen=True, slots=True)
class NearestMiss:
    """A passage that did not pass."""

    passage: Passage
    grade: PassageGrade


@dataclass(frozen=True, slots=True)
class Refusal:
    """What stood behind a refusal."""

    queries: tuple[str, ...]
    nearest_misses: tuple[NearestMiss, ...]
    failing_claims: tuple[Claim, ...] = ()
    rejected_answer: str = ""
    skipped_step: SkippableStep | None = None


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The one terminal event. elapsed_seconds and model_calls are filled in by the engine."""

    outcome: Outcome
    answer: Answer | None = None
    cited_passages: tuple[Passage, ...] = ()
    faithfulness_score: float | None = None
    refusal: Refusal | None = None
    error: Failure | None = None
    retrievals: int = 0
    refinements: int = 0
    elapsed_seconds: float = 0.0
    model_calls: tuple[ModelCall, ...] = ()
    draft: Draft | None = None
    review: DraftReview | None = None
    approved: bool = False
    shortfalls: tuple[Shortfall, ...] = ()
    revisions: int = 0
    best_revision: int = 0


Payload = (
    RunStarted
    | RunResumed
    | PassagesRetrieved
    | PassageGraded
    | QueryBroadened
    | AnswerDelta
    | ClaimChecked
    | StepSkipped
    | AnswerDrafted
    | AnswerGraded
    | AnswerRefined
    | DraftWritten
    | DraftReviewed
    | DraftRevised
    | ApprovalRequested
    | ApprovalDecided
    | RunFinished
)
Step = (
    PassagesRetrieved
    | PassageGraded
    | QueryBroadened
    | StepSkipped
    | AnswerDrafted
    | AnswerGraded
    | AnswerRefined
    | DraftWritten
    | DraftReviewed
    | DraftRevised
    | ApprovalRequested
    | ApprovalDecided
)
"""What a node records. Kind and key say which step it is, so that a resumed run finds it."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One step. sequence counts from 1 without gaps; it is 0 for an AnswerDelta, which is never stored."""

    run_id: str
    sequence: int
    create_time: datetime.datetime
    payload: Payload
