"""What judges: a language model, or rules. Everything around it is the same for both."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from errata_kit.drafts import Criterion, DraftIssue
from errata_kit.grades import PassageGrade
from errata_kit.passages import Passage
from errata_kit.usage import ModelCall
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim


@dataclass(frozen=True, slots=True)
class GradedPassage:
    """A grade and the model calls behind it."""

    grade: PassageGrade
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckedClaims:
    """A verdict for each claim asked about, in the same order, and the model calls behind them."""

    claims: tuple[CheckedClaim, ...]
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class CriterionJudgement:
    """How well a draft meets one criterion, before the rules: a score, 0–1, and why."""

    score: float
    explanation: str


@dataclass(frozen=True, slots=True)
class ReviewedDraft:
    """A judgement for each criterion asked about, in the same order, what else was said, and the model calls behind it."""

    scores: tuple[CriterionJudgement, ...]
    issues: tuple[DraftIssue, ...] = ()
    suggestions: tuple[str, ...] = ()
    model_calls: tuple[ModelCall, ...] = ()


class Provider(Protocol):
    """Judges. Raises an ErrataError for what it can't judge; a failure never comes back as a grade or a verdict."""

    @property
    def model(self) -> str:
        """The model's name, for the record."""
        ...

    @property
    def versions(self) -> Mapping[str, str]:
        """By operation ("grade_passage", "check_claims"), the version of what judges beside the model: prompt or rules."""
        ...

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        """Whether each of 1 or more passages helps to answer the question, in their order, in one call where there is a model.

        What that call has cost is told with the first of them.
        """
        ...

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        """Whether the passages support each claim."""
        ...

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        """For each claim, the places of the passages that its verdict rests on, in ascending order. CPU work."""
        ...

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        """How well a draft meets each criterion, and what would make it better."""
        ...
