"""The judge's messages as domain values, and back. The contract's bounds are enforced here."""

from collections.abc import Sequence
from typing import Annotated, Final

from errata.corpus.v1 import passage_pb2
from errata.judge.v1 import judge_service_pb2 as pb2
from pydantic import AfterValidator, Field

from errata_kit.bounds import KIB, AnswerText, Bounded, Question, UnitScore, first_few, utf8_at_most, validated
from errata_kit.drafts import DEFAULT_CRITERIA, DEFAULT_OVERALL_THRESHOLD, Criteria
from errata_kit.errors import ErrataError
from errata_kit.grades import Claim
from errata_kit.passages import Passage, different_ids
from errata_kit.rpc import convert, convert_drafts
from errata_kit.rpc.status import to_detail
from services.judge.assessment import MOST_CLAIMS, CheckedSegment, GradedAnswer
from services.judge.grading.batch import PassageResult
from services.judge.review.reviewer import FinishedReview, ReviewTask

_MAX_PASSAGES: Final = 100
Passages = Annotated[tuple[Passage, ...], Field(min_length=1, max_length=_MAX_PASSAGES), AfterValidator(different_ids)]

PassagesOrNone = Annotated[tuple[Passage, ...], Field(max_length=_MAX_PASSAGES), AfterValidator(different_ids)]


KnownClaims = Annotated[tuple[Claim, ...], Field(max_length=MOST_CLAIMS)]


class GradePassages(Bounded):
    """A checked GradePassagesRequest."""

    question: Question
    passages: Passages


class GradeAnswer(Bounded):
    """A checked GradeAnswerRequest."""

    question: Question
    answer: AnswerText
    passages: Passages
    known_claims: KnownClaims = ()


class CheckClaims(Bounded):
    """A checked CheckClaimsRequest."""

    question: Question
    segment: AnswerText
    passages: Passages
    preceding: Annotated[str, utf8_at_most(64 * KIB)]


class ReviewDraft(Bounded):
    """A checked ReviewDraftRequest."""

    task: Question
    draft: AnswerText
    criteria: Criteria
    overall_threshold: UnitScore = DEFAULT_OVERALL_THRESHOLD
    passages: PassagesOrNone = ()


def grade_passages_from(message: pb2.GradePassagesRequest) -> GradePassages:
    """What is to be graded. Raises InvalidFields."""
    return validated(GradePassages, {"question": message.question, "passages": _passages(message.passages)})


def grade_answer_from(message: pb2.GradeAnswerRequest) -> GradeAnswer:
    """What is to be checked. Raises InvalidFields."""
    values = {
        "question": message.question,
        "answer": message.answer,
        "passages": _passages(message.passages),
        "known_claims": [convert.claim_values(claim) for claim in first_few(message.known_claims, MOST_CLAIMS)],
    }
    return validated(GradeAnswer, values)


def check_claims_from(message: pb2.CheckClaimsRequest) -> CheckClaims:
    """What is to be checked of an answer that is not complete. Raises InvalidFields."""
    values = {
        "question": message.question,
        "segment": message.segment,
        "passages": _passages(message.passages),
        "preceding": message.preceding,
    }
    return validated(CheckClaims, values)


def review_draft_from(message: pb2.ReviewDraftRequest) -> ReviewTask:
    """What is to be reviewed. Without criteria, the known ones with their defaults. Raises InvalidFields."""
    given = message.HasField("overall_threshold")
    values = {
        "task": message.task,
        "draft": message.draft,
        "criteria": convert_drafts.criteria_values(message.criteria),
        "overall_threshold": message.overall_threshold if given else DEFAULT_OVERALL_THRESHOLD,
        "passages": _passages(message.passages),
    }
    asked = validated(ReviewDraft, values)
    return ReviewTask(asked.task, asked.draft, asked.criteria or DEFAULT_CRITERIA, asked.overall_threshold, asked.passages)


def passage_result_to(result: PassageResult) -> pb2.GradePassagesResponse:
    """One passage's grade or error."""
    reply = pb2.GradePassagesResponse(passage_id=result.passage_id, usage=convert.usage_to(result.model_calls))
    if isinstance(result.result, ErrataError):
        reply.error.CopyFrom(to_detail(result.result))
    else:
        reply.grade.CopyFrom(convert.grade_to(result.result))
    return reply


def graded_answer_to(graded: GradedAnswer) -> pb2.GradeAnswerResponse:
    """An answer's grade."""
    return pb2.GradeAnswerResponse(grade=convert.answer_grade_to(graded.grade), usage=convert.usage_to(graded.model_calls))


def checked_segment_to(checked: CheckedSegment) -> pb2.CheckClaimsResponse:
    """A segment's claims."""
    return pb2.CheckClaimsResponse(
        claims=map(convert.claim_to, checked.claims),
        findings=map(convert.finding_to, checked.findings),
        usage=convert.usage_to(checked.model_calls),
    )


def review_to(finished: FinishedReview) -> pb2.ReviewDraftResponse:
    """A draft's review."""
    review = convert_drafts.review_to(finished.review)
    return pb2.ReviewDraftResponse(review=review, usage=convert.usage_to(finished.model_calls))


def _passages(messages: Sequence[passage_pb2.Passage]) -> list[dict[str, object]]:
    return [convert.passage_values(message) for message in first_few(messages, _MAX_PASSAGES)]
