"""The trace for people: every event has a line, and text from strangers is shown as it is."""

import io

import pytest
from errata.corpus.v1 import passage_pb2
from errata.errors.v1 import errors_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2
from rich.console import Console

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
EVENTS = {
    "run_started": trace_pb2.RunStarted(collection="docs"),
    "passages_retrieved": trace_pb2.PassagesRetrieved(query=HOSTILE, passages=[PASSAGE], new_passage_ids=["p1"]),
    "passage_graded": trace_pb2.PassageGraded(
        passage_id="p1", used=True, grade=grading_pb2.PassageGrade(score=0.9, reasoning=HOSTILE)
    ),
    "query_broadened": trace_pb2.QueryBroadened(query=HOSTILE, removed_terms=["3.2"]),
    "answer_delta": trace_pb2.AnswerDelta(text=HOSTILE),
    "answer_drafted": trace_pb2.AnswerDrafted(answer=ANSWER),
    "answer_graded": trace_pb2.AnswerGraded(grade=GRADE, failures=["faithfulness 0.25 is below 0.80"]),
    "answer_refined": trace_pb2.AnswerRefined(answer=ANSWER, corrected_claim_ids=["c1"], previous_text="Before. " + HOSTILE),
    "run_finished": trace_pb2.RunFinished(
        outcome=trace_pb2.OUTCOME_ANSWERED,
        answer=ANSWER,
        cited_passages=[PASSAGE],
        faithfulness_score=0.97,
        usage=usage_pb2.Usage(model_calls=[usage_pb2.ModelCall(input_tokens=10, output_tokens=5, cost_micros=1500)]),
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
    if kind not in {"run_started", "answer_drafted", "answer_delta"}:
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
    assert "1 model calls, 15 tokens, $0.0015" in text


def test_an_unknown_price_is_not_nothing() -> None:
    finished = trace_pb2.RunFinished(usage=usage_pb2.Usage(model_calls=[usage_pb2.ModelCall(input_tokens=1)]))
    assert "cost unknown" in shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)


def test_a_failure_is_shown_with_its_message() -> None:
    detail = errors_pb2.ErrorDetail(message="None of the passages could be graded")
    finished = trace_pb2.RunFinished(outcome=trace_pb2.OUTCOME_FAILED, error=detail)
    text = shown(trace_pb2.TraceEvent(run_finished=finished), terminal=False)
    assert "FAILED" in text
    assert "None of the passages could be graded" in text
