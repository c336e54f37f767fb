"""What the workflows need from the other services. clients.py implements it over gRPC; tests bring their own.

Every method may raise an ErrataError. A failure never comes back as a grade.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from errata_kit.drafts import Criterion, DraftIssue, DraftReview
from errata_kit.edits import Edit, RejectedEdit
from errata_kit.errors import ErrataError
from errata_kit.grades import AnswerGrade, Claim, GuardFinding, PassageGrade
from errata_kit.passages import Answer, Draft, Passage
from errata_kit.search import Filter, SearchMode
from errata_kit.usage import ModelCall


@dataclass(frozen=True, slots=True)
class PassageSearch:
    """What is searched, and where. top_k is 1–100."""

    collection: str
    query: str
    top_k: int
    mode: SearchMode = SearchMode.DEFAULT
    filter: Filter | None = None


@dataclass(frozen=True, slots=True)
class PassageResult:
    """One passage's grade, or the error that stands for it."""

    passage_id: str
    result: PassageGrade | ErrataError
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """The judge's grade of an answer."""

    grade: AnswerGrade
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """The verdicts on the claims of a segment, in order of appearance. Spans lie in the segment."""

    claims: tuple[Claim, ...]
    findings: tuple[GuardFinding, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class BroadenedQuery:
    """The next query; exhausted when nothing new is left to try."""

    query: str
    exhausted: bool
    removed_terms: tuple[str, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The end of a stream of text: the whole answer. edits and rejected: of a correction, what changed, and what did not."""

    answer: Answer
    model_calls: tuple[ModelCall, ...] = ()
    edits: tuple[Edit, ...] = ()
    rejected: tuple[RejectedEdit, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftToReview:
    """A draft, and what it is measured by."""

    task: str
    text: str
    criteria: tuple[Criterion, ...]
    overall_threshold: float
    passages: tuple[Passage, ...]


@dataclass(frozen=True, slots=True)
class ReviewOfDraft:
    """The judge's review."""

    review: DraftReview
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class DraftToRevise:
    """A draft, and everything that is to be changed in it. feedback: a person's, empty without."""

    task: str
    text: str
    passages: tuple[Passage, ...]
    criteria: tuple[Criterion, ...]
    issues: tuple[DraftIssue, ...] = ()
    suggestions: tuple[str, ...] = ()
    failing: tuple[Claim, ...] = ()
    feedback: str = ""


@dataclass(frozen=True, slots=True)
class WrittenDraft:
    """The end of a stream of text: the whole draft."""

    draft: Draft
    model_calls: tuple[ModelCall, ...] = ()


class Retriever(Protocol):
    """Finds passages."""

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        """The passages that fit the query, best first."""
        ...


class Judge(Protocol):
    """Grades."""

    def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        """One result a passage, each as it is there."""
        ...

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        """Claims, verdicts and the score. known: claims that were checked against these passages before."""
        ...

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        """Verdicts on the claims of a segment of an answer that is still being written. preceding: the text before it."""
        ...

    async def review_draft(self, draft: DraftToReview) -> ReviewOfDraft:
        """Scores, issues and suggestions."""
        ...


class Generator(Protocol):
    """Writes."""

    async def broaden_query(self, question: str, current: str, tried: tuple[str, ...]) -> BroadenedQuery:
        """A query that was not tried yet."""
        ...

    def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        """Deltas, then the whole answer."""
        ...

    def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        """Deltas, then the whole corrected answer."""
        ...

    def write_draft(
        self, task: str, passages: tuple[Passage, ...], criteria: tuple[Criterion, ...]
    ) -> AsyncIterator[str | WrittenDraft]:
        """Deltas, then the whole draft."""
        ...

    def revise_draft(self, draft: DraftToRevise) -> AsyncIterator[str | WrittenDraft]:
        """Deltas, then the whole revised draft."""
        ...
