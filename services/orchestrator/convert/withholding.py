"""What a caller who wants verified text only is not shown: the words of drafts, and of claims that did not pass."""

from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2


def withhold(event: trace_pb2.TraceEvent) -> trace_pb2.TraceEvent:
    """The event without the words that nobody has verified. It is changed in place.

    Steps, ids, spans, verdicts and scores stay, so that the trace is still the proof of what was done. The answer in
    RunFinished is released, and stays.
    """
    match event.WhichOneof("payload"):
        case "answer_drafted":
            _without_text(event.answer_drafted)
        case "answer_refined":
            _without_text(event.answer_refined)
            event.answer_refined.ClearField("previous_text")
            event.answer_refined.ClearField("rejected_edits")
            for edit in event.answer_refined.edits:
                for name in ("before", "after", "reason"):
                    edit.ClearField(name)
        case "claim_checked":
            if not event.claim_checked.passed:
                _without_words(event.claim_checked.claim)
        case "answer_graded":
            _graded(event.answer_graded)
        case "run_finished":
            refusal = event.run_finished.refusal
            if event.run_finished.HasField("refusal"):
                refusal.ClearField("rejected_answer")
                for claim in refusal.failing_claims:
                    _without_words(claim)
        case _:
            pass
    return event


def _without_text(step: trace_pb2.AnswerDrafted | trace_pb2.AnswerRefined) -> None:
    # A refusal is a fixed text.
    if not step.answer.refusal:
        step.answer.ClearField("text")
        step.answer.ClearField("citations")


def _graded(graded: trace_pb2.AnswerGraded) -> None:
    grade = graded.grade
    lowered = {finding.claim_id for finding in grade.findings}
    kept = (grading_pb2.VERDICT_SUPPORTED, grading_pb2.VERDICT_UNVERIFIABLE)
    for claim in grade.claims:
        if claim.verdict not in kept or claim.claim_id in lowered:
            _without_words(claim)
    for finding in grade.findings:
        finding.ClearField("text")
        finding.ClearField("explanation")
    grade.ClearField("refinement_suggestion")
    if grade.findings:
        # The reasons quote what the guard found.
        del graded.failures[:]


def _without_words(claim: grading_pb2.Claim) -> None:
    claim.ClearField("text")
    claim.ClearField("explanation")
