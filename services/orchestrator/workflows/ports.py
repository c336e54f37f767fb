"""What the answer workflow needs from the other services. clients.py implements it over gRPC; tests bring their own.

Every method may raise an ErrataError. A failure never comes back as a grade.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from errata_kit.errors import ErrataError
from errata_kit.grades import AnswerGrade, Claim, PassageGrade
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.workflows.answer.state import AnswerRequest


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
class BroadenedQuery:
    """The next query; exhausted when nothing new is left to try."""

    query: str
    exhausted: bool
    removed_terms: tuple[str, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """The end of a stream of text: the whole answer."""

    answer: Answer
    model_calls: tuple[ModelCall, ...] = ()


class Retriever(Protocol):
    """Finds passages."""

    async def search(self, request: AnswerRequest, query: str) -> tuple[Passage, ...]:
        """The passages that fit the query, best first."""
        ...


class Judge(Protocol):
    """Grades."""

    def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        """One result a passage, each as it is there."""
        ...

    async def grade_answer(self, question: str, answer: str, passages: tuple[Passage, ...]) -> GradedAnswer:
        """Claims, verdicts and the score."""
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
