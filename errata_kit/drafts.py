"""Criteria, reviews and what follows from them, as every service sees them."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from errata_kit.bounds import KIB, UnitScore, utf8_at_most

OVERALL: Final = "overall"
FAITHFULNESS: Final = "faithfulness"
DEFAULT_THRESHOLD: Final = 0.80
DEFAULT_OVERALL_THRESHOLD: Final = 0.85


def _not_taken(name: str) -> str:
    if name in {OVERALL, FAITHFULNESS}:
        raise ValueError(f"must not be {name!r}: that is computed")
    return name


CriterionName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$"), AfterValidator(_not_taken)]


@dataclass(frozen=True, slots=True)
class Criterion:
    """What a draft is measured by, and the score it must reach."""

    name: CriterionName
    description: Annotated[str, utf8_at_most(KIB)] = ""
    threshold: UnitScore = DEFAULT_THRESHOLD


DEFAULT_CRITERIA: Final = (
    Criterion("clarity", "It is easy to read: plain sentences, an order that a reader can follow, every term explained.", 0.80),
    Criterion("relevance", "Everything in it serves the task; nothing wanders off.", 0.90),
    Criterion("completeness", "It covers every point of the task, and is finished.", 0.80),
    Criterion("technical_quality", "What it says is technically right, precise and usable: names, commands, code.", 0.80),
)
"""The criteria of a request that brings none. Thresholds from the design (architecture, section 4)."""


@dataclass(frozen=True, slots=True)
class CriterionScore:
    """How well a draft meets a criterion. score is model_score, lowered by what rules found."""

    criterion: str
    score: UnitScore
    threshold: UnitScore
    explanation: str
    model_score: UnitScore
    rule_findings: tuple[str, ...] = ()


class IssueSeverity(StrEnum):
    """How much an issue matters."""

    MINOR = "MINOR"
    MAJOR = "MAJOR"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True)
class DraftIssue:
    """One thing that is wrong with a draft. quote is in the draft, or empty."""

    criterion: Annotated[str, utf8_at_most(64)]
    severity: IssueSeverity
    description: Annotated[str, utf8_at_most(2 * KIB)]
    quote: Annotated[str, utf8_at_most(2 * KIB)] = ""


class ReviewDecision(StrEnum):
    """What follows from the scores."""

    APPROVE = "APPROVE"
    REVISE = "REVISE"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A score below its threshold. criterion may be OVERALL or FAITHFULNESS."""

    criterion: str
    score: UnitScore
    threshold: UnitScore

    @property
    def missing(self) -> float:
        """By how much; 0 for a text whose faithfulness is high enough, and which a contradiction or the guard holds back."""
        return max(0.0, self.threshold - self.score)


@dataclass(frozen=True, slots=True)
class DraftReview:
    """The judge's whole finding on a draft."""

    scores: tuple[CriterionScore, ...]
    overall_score: UnitScore
    overall_threshold: UnitScore
    issues: tuple[DraftIssue, ...] = ()
    suggestions: tuple[str, ...] = ()
    model: str = ""

    @property
    def shortfalls(self) -> tuple[Shortfall, ...]:
        """The scores below their thresholds, in the order of the criteria, the mean last."""
        missed = [Shortfall(item.criterion, item.score, item.threshold) for item in self.scores if item.score < item.threshold]
        if self.overall_score < self.overall_threshold:
            missed.append(Shortfall(OVERALL, self.overall_score, self.overall_threshold))
        return tuple(missed)

    @property
    def decision(self) -> ReviewDecision:
        """Approve when every score reaches its threshold."""
        return ReviewDecision.REVISE if self.shortfalls else ReviewDecision.APPROVE


def overall(scores: Sequence[CriterionScore]) -> float:
    """The mean of the scores, rounded to four digits so that equal scores give an equal mean."""
    return round(sum(item.score for item in scores) / len(scores), 4)


def different_names(criteria: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
    """The criteria, when no two have the same name; ValueError otherwise."""
    if len({criterion.name for criterion in criteria}) != len(criteria):
        raise ValueError("must have different names")
    return criteria


Criteria = Annotated[tuple[Criterion, ...], Field(max_length=20), AfterValidator(different_names)]
