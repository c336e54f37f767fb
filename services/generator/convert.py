"""The generator's messages as domain values, and back. The contract's bounds are enforced here."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as pb2
from errata.grading.v1 import grading_pb2
from pydantic import AfterValidator, Field

from errata_kit.bounds import KIB, AnswerText, Bounded, Query, Question, first_few, utf8_at_most, validated
from errata_kit.drafts import Criteria, DraftIssue
from errata_kit.grades import Claim
from errata_kit.passages import Passage, different_ids
from errata_kit.rpc import convert, convert_drafts
from services.generator.broadening import Broadened
from services.generator.provider import Correction, Revision, WritingTask, Written, WrittenDraft

_MAX_PASSAGES: Final = 100
_MAX_CLAIMS: Final = 200
_MAX_ISSUES: Final = 50
_MAX_SUGGESTIONS: Final = 20
_MAX_TRIED: Final = 16
Passages = Annotated[tuple[Passage, ...], Field(max_length=_MAX_PASSAGES), AfterValidator(different_ids)]


class BroadenQuery(Bounded):
    """A checked BroadenQueryRequest."""

    question: Question
    current_query: Query
    tried_queries: Annotated[tuple[Query, ...], Field(max_length=_MAX_TRIED)]


class GenerateAnswer(Bounded):
    """A checked GenerateAnswerRequest."""

    question: Question
    passages: Passages


class RefineAnswer(Bounded):
    """A checked RefineAnswerRequest."""

    question: Question
    answer: AnswerText
    passages: Annotated[Passages, Field(min_length=1)]
    failing_claims: Annotated[tuple[Claim, ...], Field(min_length=1, max_length=_MAX_CLAIMS)]
    refinement_suggestion: Annotated[str, utf8_at_most(8 * KIB)]


class WriteDraft(Bounded):
    """A checked WriteDraftRequest."""

    task: Question
    passages: Passages
    criteria: Criteria


class ReviseDraft(Bounded):
    """A checked ReviseDraftRequest."""

    task: Question
    draft: AnswerText
    passages: Passages
    criteria: Criteria
    issues: Annotated[tuple[DraftIssue, ...], Field(max_length=_MAX_ISSUES)]
    suggestions: Annotated[tuple[Annotated[str, utf8_at_most(2 * KIB)], ...], Field(max_length=_MAX_SUGGESTIONS)]
    failing_claims: Annotated[tuple[Claim, ...], Field(max_length=_MAX_CLAIMS)]
    feedback: Annotated[str, utf8_at_most(8 * KIB)]


def broaden_from(message: pb2.BroadenQueryRequest) -> BroadenQuery:
    """Which query is to be broadened. Raises InvalidFields."""
    values = {
        "question": message.question,
        "current_query": message.current_query,
        "tried_queries": tuple(first_few(message.tried_queries, _MAX_TRIED)),
    }
    return validated(BroadenQuery, values)


def generate_from(message: pb2.GenerateAnswerRequest) -> GenerateAnswer:
    """What is to be answered. Raises InvalidFields."""
    return validated(GenerateAnswer, {"question": message.question, "passages": _passages(message.passages)})


def refine_from(message: pb2.RefineAnswerRequest) -> Correction:
    """What is to be corrected. Raises InvalidFields."""
    asked = validated(
        RefineAnswer,
        {
            "question": message.question,
            "answer": message.answer,
            "passages": _passages(message.passages),
            "failing_claims": _claims(message.failing_claims),
            "refinement_suggestion": message.refinement_suggestion,
        },
    )
    return Correction(asked.question, asked.answer, asked.passages, asked.failing_claims, asked.refinement_suggestion)


def write_from(message: pb2.WriteDraftRequest) -> WritingTask:
    """What is to be written. Raises InvalidFields."""
    values = {
        "task": message.task,
        "passages": _passages(message.passages),
        "criteria": convert_drafts.criteria_values(message.criteria),
    }
    asked = validated(WriteDraft, values)
    return WritingTask(asked.task, asked.passages, asked.criteria)


def revise_from(message: pb2.ReviseDraftRequest) -> Revision:
    """What is to be revised. Raises InvalidFields."""
    values = {
        "task": message.task,
        "draft": message.draft,
        "passages": _passages(message.passages),
        "criteria": convert_drafts.criteria_values(message.criteria),
        "issues": [convert_drafts.issue_values(issue) for issue in first_few(message.issues, _MAX_ISSUES)],
        "suggestions": tuple(first_few(message.suggestions, _MAX_SUGGESTIONS)),
        "failing_claims": _claims(message.failing_claims),
        "feedback": message.feedback,
    }
    asked = validated(ReviseDraft, values)
    return Revision(**{name: getattr(asked, name) for name in ReviseDraft.model_fields})


def broadened_to(broadened: Broadened) -> pb2.BroadenQueryResponse:
    """The next query."""
    return pb2.BroadenQueryResponse(
        query=broadened.query,
        exhausted=not broadened.query,
        removed_terms=broadened.removed_terms,
        usage=convert.usage_to(broadened.model_calls),
    )


def generated_to(piece: str | Written) -> pb2.GenerateAnswerResponse:
    """A delta, or the whole answer."""
    if isinstance(piece, str):
        return pb2.GenerateAnswerResponse(delta=piece)
    return pb2.GenerateAnswerResponse(answer=convert.answer_to(piece.answer), usage=convert.usage_to(piece.model_calls))


def refined_to(piece: str | Written) -> pb2.RefineAnswerResponse:
    """A delta, or the whole corrected answer."""
    if isinstance(piece, str):
        return pb2.RefineAnswerResponse(delta=piece)
    return pb2.RefineAnswerResponse(
        answer=convert.answer_to(piece.answer),
        usage=convert.usage_to(piece.model_calls),
        edits=map(convert.edit_to, piece.edits),
        rejected_edits=map(convert.rejected_to, piece.rejected),
    )


def written_to(piece: str | WrittenDraft) -> pb2.WriteDraftResponse:
    """A delta, or the whole draft."""
    if isinstance(piece, str):
        return pb2.WriteDraftResponse(delta=piece)
    return pb2.WriteDraftResponse(draft=convert_drafts.draft_to(piece.draft), usage=convert.usage_to(piece.model_calls))


def revised_to(piece: str | WrittenDraft) -> pb2.ReviseDraftResponse:
    """A delta, or the whole revised draft."""
    if isinstance(piece, str):
        return pb2.ReviseDraftResponse(delta=piece)
    return pb2.ReviseDraftResponse(draft=convert_drafts.draft_to(piece.draft), usage=convert.usage_to(piece.model_calls))


def _passages(messages: Sequence[passage_pb2.Passage]) -> list[dict[str, object]]:
    return [convert.passage_values(message) for message in first_few(messages, _MAX_PASSAGES)]


def _claims(messages: Sequence[grading_pb2.Claim]) -> list[dict[str, Any]]:
    return [convert.claim_values(message) for message in first_few(messages, _MAX_CLAIMS)]
