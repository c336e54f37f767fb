"""Messages about drafts, as domain values, and back."""

from collections.abc import Sequence
from typing import Any, Final

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2

from errata_kit import drafts, passages
from errata_kit.bounds import first_few
from errata_kit.rpc import convert

# As many as drafts.Criteria takes.
_MAX_CRITERIA: Final = 20


def draft_from(message: passage_pb2.Draft) -> passages.Draft:
    """A draft from one of our own services."""
    cited = tuple(passages.Citation(item.number, item.passage_id, convert.span_from(item.span)) for item in message.citations)
    return passages.Draft(message.text, cited, message.model)


def draft_to(draft: passages.Draft) -> passage_pb2.Draft:
    """A draft as a message."""
    cited = [
        passage_pb2.Citation(number=item.number, passage_id=item.passage_id, span=convert.span_to(item.span))
        for item in draft.citations
    ]
    return passage_pb2.Draft(text=draft.text, citations=cited, model=draft.model)


def criterion_values(message: grading_pb2.Criterion) -> dict[str, Any]:
    """The fields of a criterion, for a model that checks them. An absent threshold or description takes the known default."""
    known = {criterion.name: criterion for criterion in drafts.DEFAULT_CRITERIA}.get(message.name)
    default = drafts.DEFAULT_THRESHOLD if known is None else known.threshold
    return {
        "name": message.name,
        "description": message.description or ("" if known is None else known.description),
        "threshold": message.threshold if message.HasField("threshold") else default,
    }


def criteria_values(messages: Sequence[grading_pb2.Criterion]) -> list[dict[str, Any]]:
    """The fields of all criteria, as far as a request may have them."""
    return [criterion_values(message) for message in first_few(messages, _MAX_CRITERIA)]


def criterion_to(criterion: drafts.Criterion) -> grading_pb2.Criterion:
    """A criterion as a message."""
    return grading_pb2.Criterion(name=criterion.name, description=criterion.description, threshold=criterion.threshold)


def issue_values(message: grading_pb2.DraftIssue) -> dict[str, Any]:
    """The fields of an issue, for a model that checks them."""
    return {
        "criterion": message.criterion,
        "severity": _severity(message.severity),
        "description": message.description,
        "quote": message.quote,
    }


def issue_to(issue: drafts.DraftIssue) -> grading_pb2.DraftIssue:
    """An issue as a message."""
    return grading_pb2.DraftIssue(
        criterion=issue.criterion,
        severity=f"ISSUE_SEVERITY_{issue.severity.value}",
        description=issue.description,
        quote=issue.quote,
    )


def shortfall_to(shortfall: drafts.Shortfall) -> grading_pb2.Shortfall:
    """A shortfall as a message."""
    return grading_pb2.Shortfall(
        criterion=shortfall.criterion,
        score=shortfall.score,
        threshold=shortfall.threshold,
        missing=shortfall.missing,
    )


def review_from(message: grading_pb2.DraftReview) -> drafts.DraftReview:
    """A review from one of our own services. Decision and shortfalls follow from the scores and are not read."""
    scores = tuple(
        drafts.CriterionScore(
            item.criterion, item.score, item.threshold, item.explanation, item.model_score, tuple(item.rule_findings)
        )
        for item in message.scores
    )
    issues = tuple(drafts.DraftIssue(**issue_values(item)) for item in message.issues)
    return drafts.DraftReview(
        scores, message.overall_score, message.overall_threshold, issues, tuple(message.suggestions), message.model
    )


def review_to(review: drafts.DraftReview) -> grading_pb2.DraftReview:
    """A review as a message."""
    return grading_pb2.DraftReview(
        scores=[
            grading_pb2.CriterionScore(
                criterion=item.criterion,
                score=item.score,
                threshold=item.threshold,
                explanation=item.explanation,
                model_score=item.model_score,
                rule_findings=item.rule_findings,
            )
            for item in review.scores
        ],
        overall_score=review.overall_score,
        overall_threshold=review.overall_threshold,
        issues=[issue_to(issue) for issue in review.issues],
        suggestions=review.suggestions,
        decision=f"REVIEW_DECISION_{review.decision.value}",
        shortfalls=[shortfall_to(item) for item in review.shortfalls],
        model=review.model,
    )


def _severity(value: grading_pb2.IssueSeverity) -> str:
    # A number that the enum lacks is no severity either, and then whoever checks the value names its field.
    known = value in grading_pb2.IssueSeverity.values()
    return grading_pb2.IssueSeverity.Name(value).removeprefix("ISSUE_SEVERITY_") if known else ""
