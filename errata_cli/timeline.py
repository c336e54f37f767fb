"""All there is about a run, for people: its steps with their times, its grades, its final text and its costs."""

import datetime
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Final

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2
from google.protobuf.timestamp_pb2 import Timestamp
from rich.console import Console

from errata_cli import result, reviews
from errata_cli.lines import counted, dollars, name_of, shortened
from errata_cli.tables import Column, show_table
from errata_cli.terminal import flat, printable
from errata_cli.trace import TraceView

_COSTS: Final = (
    Column("operation"),
    Column("model"),
    *(Column(title, right=True) for title in ("calls", "failed", "input", "cached", "output", "cost")),
)
_SHOWN_SUBJECT: Final = 48
_EVALUATIONS: Final = (
    Column("what"),
    Column("subject"),
    Column("round", right=True, drop=2),
    Column("score", right=True),
    Column("wanted", right=True, drop=1),
    Column("passed"),
    Column("explanation"),
)


def show_run(console: Console, described: pb2.GetRunResponse) -> None:
    """Show it all, a section after the other. A section without content is left out."""
    run = described.run
    _header(console, run)
    view = TraceView(console, with_text=False)
    if described.trace:
        _title(console, "Trace")
    for event in described.trace:
        view.lines.moment = f"{_since(run.create_time, event.create_time):9.3f} s  "
        view.show(event)
    view.lines.moment = ""
    if described.trace_truncated:
        console.print(f"The trace is longer than a message may be. All of it: errata watch {run.run_id}", markup=False)
    if described.evaluations:
        _title(console, "Evaluations")
        show_table(console, _EVALUATIONS, [_evaluation(view, item) for item in described.evaluations])
    if described.HasField("result"):
        _result(console, view, described.result)
    elif run.state == pb2.RUN_STATE_WAITING:
        asked = [event.approval_requested for event in described.trace if event.HasField("approval_requested")]
        for wanted in asked[-1:]:
            _title(console, "Waits for a person")
            reviews.decision_wanted(view.lines, run.run_id, wanted)
    _costs(console, described.usage.model_calls)
    if described.prompt_versions:
        _title(console, "Prompts")
        rows = [(item.operation, item.version) for item in described.prompt_versions]
        show_table(console, (Column("operation"), Column("version")), rows)


def local(moment: Timestamp) -> str:
    """A time as the clock on the wall here shows it."""
    return f"{moment.ToDatetime(datetime.UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def elapsed(run: pb2.Run) -> float:
    """Seconds from start to end."""
    return run.elapsed.ToNanoseconds() / 1e9


def state_of(run: pb2.Run) -> str:
    """How it ended, or that it has not."""
    if run.state == pb2.RUN_STATE_FINISHED:
        return result.outcome_name(run.outcome)
    return name_of(pb2.RunState, run.state, "RUN_STATE_")


def cost_rows(calls: Iterable[usage_pb2.ModelCall]) -> list[tuple[str, ...]]:
    """Calls summed by operation and model, and all of them. A "~" marks what rests on estimated tokens."""
    calls = sorted(calls, key=attrgetter("operation", "model"))
    rows = [
        _cost_row(operation, model, list(group))
        for (operation, model), group in groupby(calls, attrgetter("operation", "model"))
    ]
    return [*rows, _cost_row("all", "", calls)] if len(rows) > 1 else rows


def _cost_row(operation: str, model: str, calls: list[usage_pb2.ModelCall]) -> tuple[str, ...]:
    about = "~" if any(call.estimated for call in calls) else ""
    known = all(call.HasField("cost_micros") for call in calls)
    tokens = [sum(getattr(call, f"{kind}_tokens") for call in calls) for kind in ("input", "cached_input", "output")]
    return (
        operation,
        model,
        str(len(calls)),
        str(sum(call.error != 0 for call in calls)),
        *(f"{about}{number}" for number in tokens),
        about + dollars(sum(call.cost_micros for call in calls)) if known else "unknown",
    )


def _header(console: Console, run: pb2.Run) -> None:
    lines = [
        f"run        {run.run_id}",
        f"workflow   {run.workflow}: {state_of(run)}",
        f"{'task' if run.workflow == 'compose' else 'question'}".ljust(11) + flat(run.question),
        f"collection {run.collection or 'none'}",
        f"started    {local(run.create_time)}" + (f" by {flat(run.principal)}" if run.principal else ""),
    ]
    if run.HasField("elapsed"):
        lines.append(f"took       {elapsed(run):.2f} s")
    if run.HasField("score"):
        lines.append(f"score      {run.score:.2f} after {counted(run.corrections, 'correction')}")
    if run.takeovers:
        lines.append(f"takeovers  {run.takeovers}")
    for line in lines:
        console.print(printable(line), markup=False, soft_wrap=True)


def _title(console: Console, title: str) -> None:
    console.print(f"\n{title}", style="bold")


def _since(start: Timestamp, moment: Timestamp) -> float:
    return (moment.ToNanoseconds() - start.ToNanoseconds()) / 1e9


def _evaluation(view: TraceView, item: pb2.Evaluation) -> tuple[str, ...]:
    subject = view.place(item.subject) if item.kind == "passage" else item.subject
    verdict = f" {item.verdict}" if item.verdict else ""
    return (
        item.kind,
        shortened(subject, _SHOWN_SUBJECT) or "-",
        str(item.iteration),
        f"{item.score:.2f}",
        f"{item.threshold:.2f}" if item.HasField("threshold") else "-",
        ("yes" if item.passed else "no") + verdict,
        shortened(item.explanation),
    )


def _result(console: Console, view: TraceView, finished: trace_pb2.RunFinished) -> None:
    if finished.HasField("answer") or finished.HasField("draft") or finished.HasField("refusal"):
        _title(console, "Final text and sources")
        result.final_text(view.lines, finished, view.grade)


def _costs(console: Console, calls: Iterable[usage_pb2.ModelCall]) -> None:
    _title(console, "Costs")
    rows = cost_rows(calls)
    if not rows:
        console.print("no model was called")
        return
    show_table(console, _COSTS, rows)
    if any(cell.startswith("~") for row in rows for cell in row):
        console.print("~ rests on estimated tokens: the API sent none", markup=False)
