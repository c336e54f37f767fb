"""Reviews a draft: a provider scores it, rules lower the scores, and the decision follows from what is left."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.drafts import Criterion, CriterionScore, DraftIssue, DraftReview, IssueSeverity, overall
from errata_kit.errors import JudgementIncomplete
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage
from errata_kit.text.matching import fold_with_origin
from errata_kit.usage import ModelCall
from services.judge.claims.evidence import quoted_words
from services.judge.off_loop import off_loop
from services.judge.provider import CriterionJudgement, Provider, ReviewedDraft
from services.judge.review.findings import KNOWN, RuleFinding, clipped
from services.judge.review.reading import read_draft
from services.judge.review.rules import findings_of
from services.judge.review.task import read_task

_LONGEST_EXPLANATION: Final = 2000
_MOST_ISSUES: Final = 50
_MOST_SUGGESTIONS: Final = 20
_GRAVITY: Final = (IssueSeverity.CRITICAL, IssueSeverity.MAJOR, IssueSeverity.MINOR)


@dataclass(frozen=True, slots=True)
class FinishedReview:
    """A review and the model calls behind it."""

    review: DraftReview
    model_calls: tuple[ModelCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviewTask:
    """A draft, what it is to be, what it is measured by, and the passages that it was written from."""

    task: str
    draft: str
    criteria: tuple[Criterion, ...]
    overall_threshold: float
    passages: tuple[Passage, ...] = ()


class DraftReviewer:
    """Reviews with one provider. Rules and decision are the same whoever scores."""

    def __init__(self, provider: Provider, metrics: Metrics | None = None) -> None:
        self._provider = provider
        self._metrics = metrics or Metrics()

    async def review(self, asked: ReviewTask) -> FinishedReview:
        """Review a draft. Raises an ErrataError when it could not be scored: a failure is never a score."""
        with self._metrics.judging("review_draft"):
            finished = await self._review(asked)
        self._metrics.draft_score.observe(finished.review.overall_score)
        return finished

    async def _review(self, asked: ReviewTask) -> FinishedReview:
        judged = await self._provider.review_draft(asked.task, asked.draft, asked.criteria, asked.passages)
        if len(judged.scores) != len(asked.criteria):
            error = JudgementIncomplete("The judge has no score for some of the criteria")
            error.model_calls = judged.model_calls
            raise error
        size = len(asked.draft) + sum(len(passage.text) for passage in asked.passages)
        review = await off_loop(size, _reviewed, asked, judged, self._provider.model)
        return FinishedReview(review, judged.model_calls)


def _reviewed(asked: ReviewTask, judged: ReviewedDraft, model: str) -> DraftReview:
    found = findings_of(read_draft(asked.draft, asked.task), read_task(asked.task), asked.passages)
    found = tuple(finding for finding in found if any(finding.cost(criterion.name) for criterion in asked.criteria))
    scores = tuple(_score(criterion, said, found) for criterion, said in zip(asked.criteria, judged.scores, strict=True))
    issues = _in_bounds([*_issues(found, asked.criteria), *judged.issues], asked.draft)
    suggestions = _different((*(finding.remedy for finding in found), *judged.suggestions), _MOST_SUGGESTIONS)
    return DraftReview(
        scores=scores,
        overall_score=overall(scores),
        overall_threshold=asked.overall_threshold,
        issues=issues,
        suggestions=suggestions,
        model=model,
    )


def _score(criterion: Criterion, judged: CriterionJudgement, found: Sequence[RuleFinding]) -> CriterionScore:
    """The provider's score less what the findings cost; without any it stays as it is."""
    against = [finding for finding in found if finding.cost(criterion.name) > 0]
    cost = sum(finding.cost(criterion.name) for finding in against)
    return CriterionScore(
        criterion=criterion.name,
        score=max(0.0, round(judged.score - cost, 4)) if against else judged.score,
        threshold=criterion.threshold,
        explanation=judged.explanation[:_LONGEST_EXPLANATION],
        model_score=judged.score,
        rule_findings=tuple(finding.description for finding in against),
    )


def _issues(found: Sequence[RuleFinding], criteria: Sequence[Criterion]) -> Iterator[DraftIssue]:
    """One issue a finding, of the criterion that it costs most."""
    for finding in found:
        worst = max((criterion.name for criterion in criteria), key=lambda name: (finding.cost(name), name in KNOWN))
        yield DraftIssue(
            worst,
            finding.severity,
            clipped(finding.description),
            clipped(finding.quote),
        )


def _in_bounds(issues: Sequence[DraftIssue], draft: str) -> tuple[DraftIssue, ...]:
    """The gravest issues first, each with a quote that stands in the draft, or none."""
    gravest = sorted(issues, key=lambda issue: _GRAVITY.index(issue.severity))[:_MOST_ISSUES]
    folded = fold_with_origin(draft)
    kept = []
    for issue in gravest:
        quote = issue.quote
        if quote and quote not in draft:
            quote = clipped(quoted_words(quote, draft, folded) or "")
        kept.append(DraftIssue(issue.criterion, issue.severity, issue.description, quote))
    return tuple(dict.fromkeys(kept))


def _different(texts: Iterable[str], most: int) -> tuple[str, ...]:
    short = (clipped(text.strip()) for text in texts)
    return tuple(dict.fromkeys(text for text in short if text))[:most]
