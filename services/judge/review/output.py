"""What a model fills in for a review, and how it becomes a judgement."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from errata_kit.drafts import Criterion, DraftIssue, IssueSeverity
from errata_kit.errors import ModelOutputInvalid
from errata_kit.llm.chat import ModelOutput
from errata_kit.usage import ModelCall
from services.judge.provider import CriterionJudgement, ReviewedDraft
from services.judge.review.findings import clipped


class CriterionScoreOutput(ModelOutput):
    """What the model says about one numbered criterion. The explanation comes first, so that the score follows from it."""

    criterion: int
    explanation: str
    score: Annotated[float, Field(ge=0, le=1)]


class DraftIssueOutput(ModelOutput):
    """Something wrong with the draft; criterion is a number."""

    criterion: int
    quote: str
    description: str
    severity: IssueSeverity


class DraftReviewOutput(ModelOutput):
    """The issues first, then one score a criterion, then what would help."""

    issues: list[DraftIssueOutput]
    scores: list[CriterionScoreOutput]
    suggestions: list[str]


def reviewed(output: DraftReviewOutput, criteria: Sequence[Criterion], usage: ModelCall) -> ReviewedDraft:
    """The judgement in the order of the criteria.

    Raises ModelOutputInvalid, with the usage, when a criterion has no score or two, or a number names none: guessing which
    criterion was meant would be a score of our own.
    """
    numbers = range(1, len(criteria) + 1)
    cause = ""
    if sorted(item.criterion for item in output.scores) != list(numbers):
        cause = "criteria_without_score"
    elif any(item.criterion not in numbers for item in output.issues):
        cause = "issue_of_no_criterion"
    if cause:
        error = ModelOutputInvalid(metadata={"cause": cause})
        error.model_calls = (usage,)
        raise error
    by_number = {item.criterion: item for item in output.scores}
    scores = tuple(CriterionJudgement(by_number[number].score, by_number[number].explanation) for number in numbers)
    issues = tuple(_issue(item, criteria[item.criterion - 1]) for item in output.issues if item.description.strip())
    return ReviewedDraft(scores, issues, tuple(output.suggestions), (usage,))


def _issue(item: DraftIssueOutput, criterion: Criterion) -> DraftIssue:
    return DraftIssue(criterion.name, item.severity, clipped(item.description), clipped(item.quote))
