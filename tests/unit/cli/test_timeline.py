"""Runs for people: the list, and all there is about one of them."""

import datetime
import io
import json
import re

import pytest
from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console

from errata_cli import options
from errata_cli.history import Query, query_of, row_of
from errata_cli.tables import Column, show_table
from errata_cli.terminal import print_json
from errata_cli.timeline import cost_rows, show_run

RUN_ID = "01a22c99-8cab-7038-8d25-e7fab977b93c"
HOSTILE = "[bold]text[/] \x1b[2J\u202eevil"
DRAFT = passage_pb2.Draft(text=f"The draft. {HOSTILE}", model="m")


def console(terminal: bool = False, width: int = 400) -> tuple[Console, io.StringIO]:
    target = io.StringIO()
    return Console(file=target, force_terminal=terminal, color_system=None, width=width, highlight=False), target


def at(seconds: float) -> Timestamp:
    return Timestamp(seconds=1_800_000_000 + int(seconds), nanos=int(seconds % 1 * 1e9))


def call(operation: str, model: str = "m", **fields: object) -> usage_pb2.ModelCall:
    return usage_pb2.ModelCall(operation=operation, model=model, **fields)  # type: ignore[arg-type]  # by name


def described(**fields: object) -> pb2.GetRunResponse:
    run = pb2.Run(
        run_id=RUN_ID,
        workflow="compose",
        state="RUN_STATE_FINISHED",
        outcome="OUTCOME_MAX_REVISIONS_REACHED",
        question=HOSTILE,
        create_time=at(0),
        principal="ann",
        score=0.79,
        corrections=1,
        elapsed=Duration(seconds=3),
        takeovers=1,
    )
    trace = [
        trace_pb2.TraceEvent(run_id=RUN_ID, sequence=1, create_time=at(0), run_started=trace_pb2.RunStarted()),
        trace_pb2.TraceEvent(sequence=2, create_time=at(1.25), draft_written=trace_pb2.DraftWritten(draft=DRAFT)),
        trace_pb2.TraceEvent(sequence=3, create_time=at(61.5), run_resumed=trace_pb2.RunResumed(takeover=1, replica="r2")),
        trace_pb2.TraceEvent(
            sequence=4, create_time=at(62), approval_requested=trace_pb2.ApprovalRequested(approval=1, draft=DRAFT)
        ),
    ]
    values: dict[str, object] = {"run": run, "trace": trace, **fields}
    return pb2.GetRunResponse(**values)  # type: ignore[arg-type]  # by name


def shown(message: pb2.GetRunResponse, terminal: bool = False) -> str:
    where, target = console(terminal)
    show_run(where, message)
    return target.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_timeline_has_times_and_nothing_steers_the_terminal(terminal: bool) -> None:
    finished = trace_pb2.RunFinished(outcome="OUTCOME_MAX_REVISIONS_REACHED", draft=DRAFT)
    evaluation = pb2.Evaluation(kind="criterion", subject="clarity", score=0.7, threshold=0.8, explanation=HOSTILE)
    text = shown(described(result=finished, evaluations=[evaluation]), terminal)
    for bad in ("\x1b[2J", "\u202e"):
        assert bad not in text
    assert re.search(r"0\.000 s  ▶ run", text)
    assert re.search(r"1\.250 s  ✎ written", text)
    assert re.search(r"61\.500 s  ⇄ taken up +by replica r2, takeover 1", text)
    assert "by ann" in text
    assert "0.79 after 1 correction" in text
    assert "not approved; the best so far" in text
    assert re.search(r"criterion +clarity +0 +0\.70 +0\.80 +no +\[bold\]text\[/\]", text)
    assert "errata approve" not in text


def test_a_run_that_waits_shows_its_draft_and_how_to_decide() -> None:
    message = described()
    message.run.state = pb2.RUN_STATE_WAITING
    text = shown(message)
    assert "The draft." in text
    for command in ("approve", "reject", "revise"):
        assert f"errata {command} {RUN_ID}" in text


def test_a_trace_that_was_cut_says_so() -> None:
    assert f"errata watch {RUN_ID}" in shown(described(trace_truncated=True))


def test_costs_are_summed_by_operation_and_model() -> None:
    calls = [
        call("review", input_tokens=100, cached_input_tokens=40, output_tokens=10, cost_micros=1500),
        call("write", input_tokens=10, output_tokens=5, cost_micros=500),
        call("review", input_tokens=50, output_tokens=1, cost_micros=250, error="ERROR_REASON_MODEL_TRUNCATED"),
    ]
    assert cost_rows(calls) == [
        ("review", "m", "2", "1", "150", "40", "11", "$0.0018"),
        ("write", "m", "1", "0", "10", "0", "5", "$0.0005"),
        ("all", "", "3", "1", "160", "40", "16", "$0.0022"),
    ]


def test_an_unknown_price_stays_unknown_and_an_estimate_is_marked() -> None:
    calls = [call("write", input_tokens=10, cost_micros=100), call("write", "other", input_tokens=7, estimated=True)]
    rows = cost_rows(calls)
    assert [row[-1] for row in rows] == ["$0.0001", "unknown", "unknown"]
    assert rows[1][4] == "~7"
    text = shown(described(usage=usage_pb2.Usage(model_calls=calls)))
    assert "estimated tokens" in text
    assert "unknown" in text
    assert cost_rows([]) == []


def test_prompts_are_listed() -> None:
    text = shown(described(prompt_versions=[pb2.PromptVersion(operation="write_draft", version="abc123")]))
    assert re.search(r"write_draft +abc123", text)


def test_the_list_keeps_unknown_costs_unknown() -> None:
    run = described().run
    assert row_of(run)[3:9] == ("MAX_REVISIONS_REACHED", "0.79", "1", "3.00", "-", "-")
    run.totals.model_calls = 1
    run.totals.input_tokens = 5
    assert row_of(run)[7:9] == ("5", "unknown")
    run.totals.cost_micros = 1_250
    run.totals.estimated = True
    assert row_of(run)[7:9] == ("~5", "~$0.0013")
    run.state = pb2.RUN_STATE_WAITING
    assert row_of(run)[3] == "WAITING"


def test_a_query_is_sent_as_it_was_given() -> None:
    now = datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC)
    request = query_of(Query("compose", "waiting", "approved", "ann", since="2h", until="1h"), now)
    assert (request.workflow, request.state, request.outcome) == ("compose", pb2.RUN_STATE_WAITING, trace_pb2.OUTCOME_APPROVED)
    assert request.create_time_before.seconds - request.create_time_from.seconds == 3600
    assert query_of(Query(), now) == pb2.ListRunsRequest()


def test_the_choices_are_those_of_the_contract() -> None:
    for choices, enum, prefix in (
        (options.State, pb2.RunState, "RUN_STATE_"),
        (options.Outcome, trace_pb2.Outcome, "OUTCOME_"),
    ):
        names = {name.removeprefix(prefix).lower() for name in enum.keys()} - {"unspecified"}  # noqa: SIM118 - no dict
        assert {choice.value for choice in choices} == names


def test_a_pipe_gets_aligned_columns() -> None:
    where, target = console()
    show_table(where, (Column("id"), Column("n", right=True), Column("text")), [("a", "10", "x\ny"), ("long", "7", "漢字")])
    assert target.getvalue().splitlines() == ["id     n  text", "a     10  x y", "long   7  漢字"]


@pytest.mark.parametrize("width", [50, 70, 100, 200])
def test_a_narrow_terminal_keeps_the_ids_whole(width: int) -> None:
    where, target = console(terminal=True, width=width)
    columns = (Column("run"), Column("cost", drop=2), Column("task", drop=1))
    show_table(where, columns, [(RUN_ID, "$0.0100", "a long task " * 10)])
    lines = target.getvalue().splitlines()
    assert len(lines) == 2
    assert RUN_ID in lines[1]
    assert ("$0.0100" in lines[1]) is (width >= 70)


def test_json_escapes_what_could_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text = "ü \x1b[2J \x9b2J \u202e \u2028 \x7f"
    print_json(pb2.Run(question=text))
    out = capsys.readouterr().out
    assert "ü" in out
    assert not re.search("[\x1b\x7f-\x9f\u202e\u2028]", out)
    assert json.loads(out)["question"] == text
    print_json(grading_pb2.Criterion(name="a", description=text), indent=2)
    assert json.loads(capsys.readouterr().out)["description"] == text


def test_a_long_last_column_takes_nothing_from_the_others() -> None:
    where, target = console(terminal=True, width=80)
    columns = [Column(title, right=title == "score") for title in ("what", "subject", "score", "passed", "explanation")]
    show_table(where, columns, [("criterion", "clarity", "0.72", "no", "word " * 80)] * 2)
    heading, *rows = target.getvalue().splitlines()
    assert heading.split() == ["what", "subject", "score", "passed", "explanation"]
    assert [row.split()[:4] for row in rows] == [["criterion", "clarity", "0.72", "no"]] * 2
    assert all(row.rstrip().endswith("…") for row in rows)
