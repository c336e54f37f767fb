"""The trace for people: every event has a line, and text from strangers is shown as it is."""

import io

import pytest
from errata.corpus.v1 import passage_pb2
from errata.errors.v1 import errors_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2
from rich.console import Console

from errata_cli.lines import scored
from errata_cli.trace import TraceView

HOSTILE = "[bold red]not markup[/] [link=x]y \x1b[31m"
PASSAGE = passage_pb2.Passage(
    passage_id="p1", document_id="docs/a.md", title="A", heading_path=["A", "B"], text=HOSTILE, start_line=3, end_line=9
)
ANSWER = passage_pb2.Answer(
    text=f"It is so {HOSTILE} [1].", citations=[passage_pb2.Citation(number=1, passage_id="p1")], model="offline"
)
GRADE = grading_pb2.AnswerGrade(
    claims=[
        grading_pb2.Claim(claim_id="c1", text=HOSTILE, verdict=grading_pb2.VERDICT_UNSUPPORTED, explanation="Nobody says so.")
    ],
    faithfulness_score=0.25,
    hallucination_risk=grading_pb2.HALLUCINATION_RISK_HIGH,
    findings=[grading_pb2.GuardFinding(text="--magic", explanation="No passage has it.")],
)
DRAFT = passage_pb2.Draft(text=f"A draft {HOSTILE} [1].", citations=ANSWER.citations, model="offline")
REVIEW = grading_pb2.DraftReview(
    scores=[
        grading_pb2.CriterionScore(
            criterion="clarity", score=0.72, threshold=0.8, explanation=HOSTILE, rule_findings=["Too long."]
        ),
        grading_pb2.CriterionScore(criterion="relevance", score=0.95, threshold=0.9),
    ],
    overall_score=0.835,
    overall_threshold=0.85,
    issues=[
        grading_pb2.DraftIssue(criterion="clarity", severity="ISSUE_SEVERITY_MAJOR", description="Too dense.", quote=HOSTILE)
    ],
    suggestions=["Split the sentences."],
)
SHORT = [grading_pb2.Shortfall(criterion="clarity", score=0.72, threshold=0.8, missing=0.08)]
EVENTS = {
    "run_started": trace_pb2.RunStarted(collection="docs"),
    "passages_retrieved": trace_pb2.PassagesRetrieved(query=HOSTILE, passages=[PASSAGE], new_passage_ids=["p1"]),
    "passage_graded": trace_pb2.PassageGraded(
        passage_id="p1",
        used=True,
        grade=grading_pb2.PassageGrade(score=0.9, reasoning=HOSTILE, injections=["INJECTION_KIND_OVERRIDE"]),
    ),
    "query_broadened": trace_pb2.QueryBroadened(query=HOSTILE, removed_terms=["3.2"]),
    "answer_delta": trace_pb2.AnswerDelta(text=HOSTILE),
    "answer_drafted": trace_pb2.AnswerDrafted(answer=ANSWER),
    "answer_graded": trace_pb2.AnswerGraded(grade=GRADE, failures=["faithfulness 0.25 is below 0.80"]),
    "claim_checked": trace_pb2.ClaimChecked(segment=1, claim=GRADE.claims[0]),
    "step_skipped": trace_pb2.StepSkipped(step="refinement", number=1, expected={"seconds": 4}, left={"nanos": 300_000_000}),
    "answer_refined": trace_pb2.AnswerRefined(
        answer=ANSWER,
        corrected_claim_ids=["c1"],
        edits=[
            grading_pb2.AnswerEdit(before=HOSTILE, after=HOSTILE + " after"),
            grading_pb2.AnswerEdit(before="It was wrong."),
        ],
        rejected_edits=[grading_pb2.RejectedEdit(after=HOSTILE, reason="It touches another sentence.")],
    ),
    "run_resumed": trace_pb2.RunResumed(takeover=2, replica=HOSTILE),
    "draft_written": trace_pb2.DraftWritten(draft=DRAFT, passage_ids=["p1"]),
    "draft_reviewed": trace_pb2.DraftReviewed(
        revision=2,
        review=REVIEW,
        faithfulness=GRADE,
        shortfalls=SHORT,
        regressions=[trace_pb2.Regression(criterion="clarity", previous_score=0.82, score=0.72, threshold=0.8)],
        best_revision=1,
    ),
    "draft_revised": trace_pb2.DraftRevised(revision=2, draft=DRAFT, from_revision=1, requested=[HOSTILE], feedback=HOSTILE),
    "approval_requested": trace_pb2.ApprovalRequested(approval=1, revision=2, draft=DRAFT, overall_score=0.91),
    "approval_decided": trace_pb2.ApprovalDecided(
        approval=1, decision="APPROVAL_DECISION_REVISE", feedback=HOSTILE, principal="ann"
    ),
    "run_finished": trace_pb2.RunFinished(
        outcome=trace_pb2.OUTCOME_ANSWERED,
        answer=ANSWER,
        cited_passages=[PASSAGE],
        faithfulness_score=0.97,
        usage=usage_pb2.Usage(
            model_calls=[usage_pb2.ModelCall(input_tokens=10, output_tokens=5, cost_micros=1500)],
            saved_calls=[usage_pb2.ModelCall(input_tokens=70, output_tokens=7, cost_micros=900)],
        ),
    ),
}


def shown(*events: trace_pb2.TraceEvent, terminal: bool) -> str:
    target = io.StringIO()
    console = Console(file=target, force_terminal=terminal, color_system=None, width=400, highlight=False)
    view = TraceView(console)
    for event in events:
        view.show(event)
    return target.getvalue()


def event(kind: str) -> trace_pb2.TraceEvent:
    return trace_pb2.TraceEvent(run_id="r", sequence=1, **{kind: EVENTS[kind]})  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("kind", EVENTS)
def test_every_event_is_shown_and_no_text_is_taken_for_markup(kind: str, terminal: bool) -> None:
    text = shown(event("passages_retrieved"), event(kind), terminal=terminal)
    assert "\x1b[31m" not in text
    silent = {"run_started", "answer_drafted", "answer_delta", "draft_written", "approval_requested", "step_skipped"}
    if kind not in silent:
        assert "[bold red]not markup[/]" in text
    if kind == "answer_delta":
        assert ("[bold red]" in text.split("\n", maxsplit=1)[1]) is terminal


def test_every_payload_of_the_contract_is_known() -> None:
    payloads = {field.name for field in trace_pb2.TraceEvent.DESCRIPTOR.oneofs_by_name["payload"].fields}
    assert payloads == set(EVENTS)


def test_the_end_names_sources_score_and_cost() -> None:
    text = shown(event("run_finished"), terminal=False)
    assert "faithfulness 0.97" in text
    assert "[1] docs/a.md:3-9 (A › B)" in text
    assert "1 model call, 15 tokens, $0.0015, 1 answer from the cache saved 77 tokens" in text


def test_what_is_new_about_claims_and_time_is_said() -> None:
    assert "carries text that is meant for a model: override" in shown(event("passage_graded"), terminal=False)
    assert "refinement 1: it would take about 4.0 s, and 0.3 s are left" in shown(event("step_skipped"), terminal=False)
    refined = shown(event("answer_refined"), terminal=False)
    assert "- It was wrong." in refined
    assert "It touches another sentence." in refined


def test_an_unknown_price_is_not_nothing() -> None:
    finished = trace_pb2.RunFinished(usage=usage_pb2.Usage(model_calls=[usage_pb2.ModelCall(input_tokens=1)]))
    assert "cost unknown" in shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)


def test_a_failure_is_shown_with_its_message() -> None:
    detail = errors_pb2.ErrorDetail(message="None of the passages could be graded")
    finished = trace_pb2.RunFinished(outcome=trace_pb2.OUTCOME_FAILED, error=detail)
    text = shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)
    assert "FAILED" in text
    assert "None of the passages could be graded" in text


def test_a_review_has_a_line_for_each_score_and_what_is_wrong() -> None:
    started = trace_pb2.RunStarted(
        workflow="compose", collection="docs", compose_settings=trace_pb2.ComposeSettings(faithfulness_threshold=0.8)
    )
    text = shown(trace_pb2.TraceEvent(run_started=started), event("draft_reviewed"), terminal=False)
    assert "revision 2: overall 0.83, 0.02 below 0.85; faithfulness 0.25, 0.55 below 0.80; not passed" in text
    assert "✗ clarity 0.72, 0.08 below 0.80: [bold red]" in text
    assert "✓ relevance 0.95 of 0.90" in text
    assert "rule Too long." in text
    assert "↓ regression: clarity 0.72, 0.08 below 0.80; it was 0.82" in text
    assert "! major, clarity: Too dense." in text
    assert "→ Split the sentences." in text
    assert "c1 unsupported" in text
    assert "revision 1 is still the best" in text


def test_the_start_of_a_compose_run_names_what_it_is_measured_by() -> None:
    started = trace_pb2.RunStarted(
        workflow="compose",
        compose_settings=trace_pb2.ComposeSettings(overall_threshold=0.85, max_revisions=1),
        criteria=[grading_pb2.Criterion(name="clarity", threshold=0.9)],
        require_approval=True,
        principal="ann\x1b[2J",
        max_cost_micros=50_000,
        max_tokens=900,
    )
    text = shown(trace_pb2.TraceEvent(run_id="r", run_started=started), terminal=False)
    assert "r without a collection, for ann" in text
    assert "\x1b" not in text
    assert "clarity 0.90; overall 0.85; at most 1 revision, and a person must agree" in text
    assert "budget: $0.0500, 900 tokens" in text


def test_a_draft_at_the_limit_is_never_shown_as_approved() -> None:
    finished = trace_pb2.RunFinished(
        outcome=trace_pb2.OUTCOME_MAX_REVISIONS_REACHED,
        draft=DRAFT,
        review=REVIEW,
        shortfalls=SHORT,
        revisions=2,
        best_revision=1,
        cited_passages=[PASSAGE],
    )
    text = shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)
    assert "MAX_REVISIONS_REACHED in 0.00 s, not approved, 2 revisions" in text
    assert "clarity 0.72, 0.08 below 0.80" in text
    assert "not approved; the best so far: revision 1, overall 0.83" in text
    assert "[1] docs/a.md:3-9" in text
    finished.outcome, finished.approved = trace_pb2.OUTCOME_APPROVED, True
    text = shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)
    assert "approved: revision 1" in text
    assert "not approved" not in text


def test_a_search_that_is_exhausted_is_said() -> None:
    broadened = trace_pb2.QueryBroadened(broadening=2, previous_query="q", exhausted=True)
    text = shown(trace_pb2.TraceEvent(query_broadened=broadened), terminal=False)
    assert "nothing new is left to try" in text


def test_a_new_attempt_starts_the_text_anew() -> None:
    pieces = [("It is", 0, 0), (" so", 0, 0), ("It was", 0, 1), ("Revised", 1, 0)]
    deltas = [
        trace_pb2.TraceEvent(answer_delta=trace_pb2.AnswerDelta(text=text, refinement=number, attempt=attempt))
        for text, number, attempt in pieces
    ]
    text = shown(*deltas[:2], terminal=True)
    assert "It is so" in text
    assert "anew" not in text
    lines = shown(*deltas[:3], terminal=True).splitlines()
    assert lines[0] == "It is so"
    assert "starts anew" in lines[1]
    assert lines[2] == "It was"


@pytest.mark.parametrize(
    ("score", "threshold", "text"),
    [
        (0.72, 0.8, "s 0.72, 0.08 below 0.80"),
        (0.8, 0.8, "s 0.80 of 0.80"),
        (0.7999, 0.8, "s 0.7999, 0.0001 below 0.80"),
        (0.5, None, "s 0.50"),
    ],
)
def test_a_score_below_its_threshold_never_looks_equal_to_it(score: float, threshold: float | None, text: str) -> None:
    assert scored("s", score, threshold) == text


def test_values_that_a_newer_server_sends_are_shown_as_numbers() -> None:
    finished = trace_pb2.RunFinished()
    finished.ParseFromString(b"\x08\x63")
    assert "99 in 0.00 s" in shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)
    event_of_tomorrow = trace_pb2.TraceEvent(sequence=7)
    assert "event      7" in shown(event_of_tomorrow, terminal=False)


def test_a_newline_in_a_title_makes_no_line_of_its_own() -> None:
    passage = passage_pb2.Passage(passage_id="p1", document_id="a\n■ finished   APPROVED", start_line=1, end_line=2)
    retrieved = trace_pb2.PassagesRetrieved(query="q\n■ finished", passages=[passage], new_passage_ids=["p1"])
    graded = trace_pb2.PassageGraded(passage_id="p1", grade=grading_pb2.PassageGrade(score=0.5))
    text = shown(
        trace_pb2.TraceEvent(passages_retrieved=retrieved), trace_pb2.TraceEvent(passage_graded=graded), terminal=False
    )
    assert [line[:5] for line in text.splitlines()] == ["⌕ ret", "    ✗"]
