"""The orchestrator's messages as domain values, and back. The contract's bounds are enforced here."""

from dataclasses import replace
from typing import Annotated, Any

from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as service_pb2
from errata.orchestrator.v1 import trace_pb2
from pydantic import AfterValidator, Field

from errata_kit.bounds import (
    DEFAULT_COLLECTION,
    KIB,
    Bounded,
    CollectionName,
    PageSize,
    Question,
    invalid,
    utf8_at_most,
    validated,
)
from errata_kit.rpc import convert
from errata_kit.search import Filter, SearchMode
from services.orchestrator.runs import events
from services.orchestrator.runs.store import Run, RunQuery, RunState
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings


def _empty_or_not_blank(text: str) -> str:
    if text and not text.strip():
        raise ValueError("must not be only white space")
    return text


class _Ask(Bounded):
    question: Question
    collection: CollectionName
    settings: AnswerSettings
    draft_answer: Annotated[str, AfterValidator(_empty_or_not_blank), utf8_at_most(64 * KIB)]
    search_mode: SearchMode
    filter: Filter | None


class _RunName(Bounded):
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
    after_sequence: Annotated[int, Field(ge=0)] = 0


class _Listing(Bounded):
    page_size: PageSize
    page_token: Annotated[str, utf8_at_most(KIB)]
    state: str
    outcome: str


def ask_from(message: service_pb2.AskRequest) -> AnswerRequest:
    """What was asked. Raises InvalidFields."""
    settings = {field.name: value for field, value in message.settings.ListFields() if field.name != "search_mode"}
    asked = validated(
        _Ask,
        {
            "question": message.question,
            "collection": message.collection or DEFAULT_COLLECTION,
            "settings": settings,
            "draft_answer": message.draft_answer,
        },
        {
            "search_mode": lambda: convert.mode_from(message.settings.search_mode, "settings.search_mode"),
            "filter": lambda: convert.filter_from(message.filter),
        },
    )
    return AnswerRequest(
        question=asked.question,
        collection=asked.collection,
        settings=replace(asked.settings, search_mode=asked.search_mode),
        draft_answer=asked.draft_answer,
        filter=asked.filter,
    )


def run_name_from(run_id: str, after_sequence: int = 0) -> tuple[str, int]:
    """A run's id and where to go on. Raises InvalidFields."""
    named = validated(_RunName, {"run_id": run_id.lower(), "after_sequence": after_sequence})
    return named.run_id, named.after_sequence


def run_query_from(message: service_pb2.ListRunsRequest) -> RunQuery:
    """Which runs to list. Raises InvalidFields."""
    listing = validated(
        _Listing,
        {"page_size": message.page_size, "page_token": message.page_token},
        {
            "state": lambda: _enum_name(service_pb2.RunState, message.state, "state", "RUN_STATE_"),
            "outcome": lambda: _enum_name(trace_pb2.Outcome, message.outcome, "outcome", "OUTCOME_"),
        },
    )
    return RunQuery(
        page_size=listing.page_size,
        page_token=listing.page_token,
        state=RunState(listing.state) if listing.state else None,
        outcome=events.Outcome(listing.outcome) if listing.outcome else None,
    )


def run_to(run: Run) -> service_pb2.Run:
    """A run as a message."""
    message = service_pb2.Run(
        run_id=run.run_id,
        workflow=run.workflow,
        state=f"RUN_STATE_{run.state.value}",
        question=run.question,
        collection=run.collection,
        create_time=convert.timestamp(run.create_time),
        last_sequence=run.last_sequence,
    )
    if run.result is not None:
        message.MergeFrom(service_pb2.Run(outcome=_outcome_to(run.result.outcome)))
    if run.finish_time is not None:
        message.finish_time.CopyFrom(convert.timestamp(run.finish_time))
    return message


def event_to(event: events.TraceEvent) -> trace_pb2.TraceEvent:
    """An event as a message."""
    message = trace_pb2.TraceEvent(
        run_id=event.run_id, sequence=event.sequence, create_time=convert.timestamp(event.create_time)
    )
    match event.payload:
        case events.RunStarted() as payload:
            message.run_started.CopyFrom(_started_to(payload))
        case events.PassagesRetrieved() as payload:
            message.passages_retrieved.retrieval = payload.retrieval
            message.passages_retrieved.query = payload.query
            message.passages_retrieved.passages.extend(map(convert.passage_to, payload.passages))
            message.passages_retrieved.new_passage_ids.extend(payload.new_passage_ids)
        case events.PassageGraded() as payload:
            message.passage_graded.CopyFrom(_graded_to(payload))
        case events.QueryBroadened() as payload:
            message.query_broadened.broadening = payload.broadening
            message.query_broadened.previous_query = payload.previous_query
            message.query_broadened.query = payload.query
            message.query_broadened.removed_terms.extend(payload.removed_terms)
        case events.AnswerDelta() as payload:
            message.answer_delta.text = payload.text
            message.answer_delta.refinement = payload.refinement
        case events.AnswerDrafted() as payload:
            message.answer_drafted.answer.CopyFrom(convert.answer_to(payload.answer))
            message.answer_drafted.supplied = payload.supplied
            message.answer_drafted.passage_ids.extend(payload.passage_ids)
        case events.AnswerGraded() as payload:
            message.answer_graded.refinement = payload.refinement
            message.answer_graded.grade.CopyFrom(convert.answer_grade_to(payload.grade))
            message.answer_graded.passed = payload.passed
            message.answer_graded.failures.extend(payload.failures)
        case events.AnswerRefined() as payload:
            message.answer_refined.refinement = payload.refinement
            message.answer_refined.answer.CopyFrom(convert.answer_to(payload.answer))
            message.answer_refined.corrected_claim_ids.extend(payload.corrected_claim_ids)
            message.answer_refined.previous_text = payload.previous_text
        case events.RunFinished() as payload:
            message.run_finished.CopyFrom(finished_to(payload))
    return message


def finished_to(payload: events.RunFinished) -> trace_pb2.RunFinished:
    """The terminal event as a message."""
    message = trace_pb2.RunFinished(
        outcome=_outcome_to(payload.outcome),
        cited_passages=[convert.passage_to(passage) for passage in payload.cited_passages],
        faithfulness_score=payload.faithfulness_score,
        retrievals=payload.retrievals,
        refinements=payload.refinements,
        elapsed=convert.duration(payload.elapsed_seconds),
        usage=convert.usage_to(payload.model_calls),
    )
    if payload.answer is not None:
        message.answer.CopyFrom(convert.answer_to(payload.answer))
    if payload.error is not None:
        message.error.CopyFrom(_failure_to(payload.error))
    if payload.refusal is not None:
        message.refusal.queries.extend(payload.refusal.queries)
        message.refusal.failing_claims.extend(map(convert.claim_to, payload.refusal.failing_claims))
        message.refusal.rejected_answer = payload.refusal.rejected_answer
        for miss in payload.refusal.nearest_misses:
            message.refusal.nearest_misses.add(passage=convert.passage_to(miss.passage), grade=convert.grade_to(miss.grade))
    return message


def _started_to(payload: events.RunStarted) -> trace_pb2.RunStarted:
    settings = payload.settings
    return trace_pb2.RunStarted(
        workflow=payload.workflow,
        question=payload.question,
        collection=payload.collection,
        draft_supplied=payload.draft_supplied,
        settings=trace_pb2.AnswerSettings(
            top_k=settings.top_k,
            relevance_threshold=settings.relevance_threshold,
            min_relevant=settings.min_relevant,
            max_retrievals=settings.max_retrievals,
            faithfulness_threshold=settings.faithfulness_threshold,
            max_refinements=settings.max_refinements,
            search_mode=convert.mode_to(settings.search_mode),
        ),
    )


def _graded_to(payload: events.PassageGraded) -> trace_pb2.PassageGraded:
    message = trace_pb2.PassageGraded(retrieval=payload.retrieval, passage_id=payload.passage_id, used=payload.used)
    if payload.grade is not None:
        message.grade.CopyFrom(convert.grade_to(payload.grade))
    if payload.error is not None:
        message.error.CopyFrom(_failure_to(payload.error))
    return message


def _failure_to(failure: events.Failure) -> errors_pb2.ErrorDetail:
    return errors_pb2.ErrorDetail(
        reason=f"ERROR_REASON_{failure.reason.value}",
        message=failure.message,
        metadata=failure.metadata,
    )


def _outcome_to(outcome: events.Outcome) -> str:
    return f"OUTCOME_{outcome.value}"


def _enum_name(enum: Any, value: int, field: str, prefix: str) -> str:
    """The name without its prefix; empty for unspecified. Raises InvalidFields for a number that the enum lacks."""
    try:
        name = str(enum.Name(value)).removeprefix(prefix)
    except ValueError:
        raise invalid(field, "is not a value of its enum") from None
    return "" if name == "UNSPECIFIED" else name
