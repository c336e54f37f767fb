"""Trace events: what a run records, step by step. Values only, so that a store can keep them as JSON."""

import datetime
from enum import StrEnum

from pydantic.dataclasses import dataclass

from errata_kit.errors import Reason
from errata_kit.grades import AnswerGrade, Claim, PassageGrade
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.workflows.answer.state import AnswerSettings


class Outcome(StrEnum):
    """How a run ended."""

    ANSWERED = "ANSWERED"
    ANSWERED_AFTER_REFINEMENT = "ANSWERED_AFTER_REFINEMENT"
    REFUSED_NO_EVIDENCE = "REFUSED_NO_EVIDENCE"
    REFUSED_UNFAITHFUL = "REFUSED_UNFAITHFUL"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as a trace records it."""

    reason: Reason
    message: str
    metadata: dict[str, str]


@dataclass(frozen=True, slots=True)
class RunStarted:
    """First event."""

    workflow: str
    question: str
    collection: str
    settings: AnswerSettings
    draft_supplied: bool


@dataclass(frozen=True, slots=True)
class PassagesRetrieved:
    """A retrieval ended. retrieval counts from 1."""

    retrieval: int
    query: str
    passages: tuple[Passage, ...]
    new_passage_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PassageGraded:
    """A passage was graded, or could not be: exactly one of grade and error is set."""

    retrieval: int
    passage_id: str
    used: bool
    grade: PassageGrade | None = None
    error: Failure | None = None


@dataclass(frozen=True, slots=True)
class QueryBroadened:
    """Another query will be tried."""

    broadening: int
    previous_query: str
    query: str
    removed_terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """A piece of text as it is written; ephemeral."""

    text: str
    refinement: int


@dataclass(frozen=True, slots=True)
class AnswerDrafted:
    """The first draft. passage_ids is the order in which "[n]" cites."""

    answer: Answer
    supplied: bool
    passage_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerGraded:
    """The judge's finding, and whether the answer is released."""

    refinement: int
    grade: AnswerGrade
    passed: bool
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AnswerRefined:
    """A correction. refinement counts from 1."""

    refinement: int
    answer: Answer
    corrected_claim_ids: tuple[str, ...]
    previous_text: str


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


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The one terminal event. elapsed_seconds is filled in by the engine."""

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


Payload = (
    RunStarted
    | PassagesRetrieved
    | PassageGraded
    | QueryBroadened
    | AnswerDelta
    | AnswerDrafted
    | AnswerGraded
    | AnswerRefined
    | RunFinished
)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One step. sequence counts from 1 without gaps; it is 0 for an AnswerDelta, which is never stored."""

    run_id: str
    sequence: int
    create_time: datetime.datetime
    payload: Payload
