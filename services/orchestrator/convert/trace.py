"""Trace events as messages."""

from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.rpc import convert, convert_drafts
from services.orchestrator.runs import events
from services.orchestrator.workflows.answer.state import AnswerSettings
from services.orchestrator.workflows.compose.state import ComposeSettings


def event_to(event: events.TraceEvent) -> trace_pb2.TraceEvent:
    """An event as a message."""
    message = trace_pb2.TraceEvent(
        run_id=event.run_id, sequence=event.sequence, create_time=convert.timestamp(event.create_time)
    )
    match event.payload:
        case events.RunStarted() as payload:
            message.run_started.CopyFrom(_started_to(payload))
        case events.RunResumed() as payload:
            message.run_resumed.takeover = payload.takeover
            message.run_resumed.replica = payload.replica
        case events.RunFinished() as payload:
            message.run_finished.CopyFrom(finished_to(payload))
        case events.AnswerDelta() as payload:
            message.answer_delta.text = payload.text
            message.answer_delta.refinement = payload.refinement
            message.answer_delta.attempt = payload.attempt
            message.answer_delta.segment = payload.segment
        case payload:
            _fill_answer_step(message, payload)
            _fill_compose_step(message, payload)
    return message


def _fill_answer_step(message: trace_pb2.TraceEvent, step: events.Payload) -> None:
    match step:
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
            message.query_broadened.exhausted = payload.exhausted
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
            message.answer_refined.edits.extend(map(convert.edit_to, payload.edits))
            message.answer_refined.rejected_edits.extend(map(convert.rejected_to, payload.rejected_edits))
        case events.ClaimChecked() as payload:
            message.claim_checked.refinement = payload.refinement
            message.claim_checked.attempt = payload.attempt
            message.claim_checked.segment = payload.segment
            message.claim_checked.claim.CopyFrom(convert.claim_to(payload.claim))
            message.claim_checked.passed = payload.passed
            message.claim_checked.remaining = payload.remaining
        case events.StepSkipped() as payload:
            message.step_skipped.step = payload.step.value
            message.step_skipped.number = payload.number
            message.step_skipped.expected.CopyFrom(convert.duration(payload.expected_seconds))
            message.step_skipped.left.CopyFrom(convert.duration(payload.left_seconds))


def _fill_compose_step(message: trace_pb2.TraceEvent, step: events.Payload) -> None:
    match step:
        case events.DraftWritten() as payload:
            message.draft_written.draft.CopyFrom(convert_drafts.draft_to(payload.draft))
            message.draft_written.supplied = payload.supplied
            message.draft_written.passage_ids.extend(payload.passage_ids)
        case events.DraftReviewed() as payload:
            message.draft_reviewed.CopyFrom(_reviewed_to(payload))
        case events.DraftRevised() as payload:
            message.draft_revised.revision = payload.revision
            message.draft_revised.draft.CopyFrom(convert_drafts.draft_to(payload.draft))
            message.draft_revised.from_revision = payload.from_revision
            message.draft_revised.requested.extend(payload.requested)
            message.draft_revised.feedback = payload.feedback
        case events.ApprovalRequested() as payload:
            message.approval_requested.approval = payload.approval
            message.approval_requested.revision = payload.revision
            message.approval_requested.draft.CopyFrom(convert_drafts.draft_to(payload.draft))
            message.approval_requested.overall_score = payload.overall_score
        case events.ApprovalDecided() as payload:
            message.approval_decided.CopyFrom(
                trace_pb2.ApprovalDecided(
                    approval=payload.approval,
                    decision=f"APPROVAL_DECISION_{payload.decision.value}",
                    feedback=payload.feedback,
                    principal=payload.principal,
                )
            )


def _reviewed_to(payload: events.DraftReviewed) -> trace_pb2.DraftReviewed:
    return trace_pb2.DraftReviewed(
        revision=payload.revision,
        review=convert_drafts.review_to(payload.review),
        faithfulness=None if payload.faithfulness is None else convert.answer_grade_to(payload.faithfulness),
        passed=payload.passed,
        shortfalls=map(convert_drafts.shortfall_to, payload.shortfalls),
        regressions=[
            trace_pb2.Regression(
                criterion=item.criterion,
                previous_score=item.previous_score,
                score=item.score,
                threshold=item.threshold,
            )
            for item in payload.regressions
        ],
        best_revision=payload.best_revision,
    )


def finished_to(payload: events.RunFinished) -> trace_pb2.RunFinished:
    """The terminal event as a message."""
    message = trace_pb2.RunFinished(
        outcome=outcome_to(payload.outcome),
        cited_passages=[convert.passage_to(passage) for passage in payload.cited_passages],
        faithfulness_score=payload.faithfulness_score,
        retrievals=payload.retrievals,
        refinements=payload.refinements,
        elapsed=convert.duration(payload.elapsed_seconds),
        usage=convert.usage_to(payload.model_calls),
        approved=payload.approved,
        shortfalls=map(convert_drafts.shortfall_to, payload.shortfalls),
        revisions=payload.revisions,
        best_revision=payload.best_revision,
    )
    if payload.draft is not None:
        message.draft.CopyFrom(convert_drafts.draft_to(payload.draft))
    if payload.review is not None:
        message.review.CopyFrom(convert_drafts.review_to(payload.review))
    if payload.answer is not None:
        message.answer.CopyFrom(convert.answer_to(payload.answer))
    if payload.error is not None:
        message.error.CopyFrom(_failure_to(payload.error))
    if payload.refusal is not None:
        message.refusal.queries.extend(payload.refusal.queries)
        message.refusal.failing_claims.extend(map(convert.claim_to, payload.refusal.failing_claims))
        message.refusal.rejected_answer = payload.refusal.rejected_answer
        message.refusal.skipped_step = "" if payload.refusal.skipped_step is None else payload.refusal.skipped_step.value
        for miss in payload.refusal.nearest_misses:
            message.refusal.nearest_misses.add(passage=convert.passage_to(miss.passage), grade=convert.grade_to(miss.grade))
    return message


def _started_to(payload: events.RunStarted) -> trace_pb2.RunStarted:
    message = trace_pb2.RunStarted(
        workflow=payload.workflow,
        question=payload.question,
        collection=payload.collection,
        draft_supplied=payload.draft_supplied,
        criteria=map(convert_drafts.criterion_to, payload.criteria),
        require_approval=payload.require_approval,
        principal=payload.principal,
        max_cost_micros=payload.max_cost_micros,
        max_tokens=payload.max_tokens,
        verified_only=payload.verified_only,
    )
    match payload.settings:
        case AnswerSettings() as settings:
            message.settings.CopyFrom(_answer_settings_to(settings))
        case ComposeSettings() as settings:
            message.compose_settings.CopyFrom(_compose_settings_to(settings))
    return message


def _answer_settings_to(settings: AnswerSettings) -> trace_pb2.AnswerSettings:
    return trace_pb2.AnswerSettings(
        top_k=settings.top_k,
        relevance_threshold=settings.relevance_threshold,
        min_relevant=settings.min_relevant,
        max_retrievals=settings.max_retrievals,
        faithfulness_threshold=settings.faithfulness_threshold,
        max_refinements=settings.max_refinements,
        search_mode=convert.mode_to(settings.search_mode),
    )


def _compose_settings_to(settings: ComposeSettings) -> trace_pb2.ComposeSettings:
    return trace_pb2.ComposeSettings(
        overall_threshold=settings.overall_threshold,
        max_revisions=settings.max_revisions,
        top_k=settings.top_k,
        relevance_threshold=settings.relevance_threshold,
        faithfulness_threshold=settings.faithfulness_threshold,
        search_mode=convert.mode_to(settings.search_mode),
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


def outcome_to(outcome: events.Outcome) -> str:
    """An outcome as the enum's name."""
    return f"OUTCOME_{outcome.value}"
