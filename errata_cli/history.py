"""`errata runs`, `errata show` and `errata watch`."""

import datetime
from dataclasses import dataclass

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2

from errata_cli.calling import CALL_SECONDS, Follower, follow_watch, orchestrator
from errata_cli.finding import all_runs, run_id_of
from errata_cli.inputs import moment
from errata_cli.lines import dollars, shortened
from errata_cli.tables import Column, show_table
from errata_cli.terminal import ExitCode, output, print_json, run_command
from errata_cli.timeline import elapsed, local, show_run, state_of

_COLUMNS = (
    Column("run"),
    Column("started", drop=2),
    Column("workflow", drop=5),
    Column("state"),
    Column("score", right=True, drop=3),
    Column("corr.", right=True, drop=9),
    Column("seconds", right=True, drop=6),
    Column("tokens", right=True, drop=8),
    Column("cost", right=True, drop=4),
    Column("by", drop=7),
    Column("question or task", drop=1),
)


@dataclass(frozen=True, slots=True)
class Query:
    """Which runs to list; empty means any. since, until: a time, or how long ago. limit: runs, at most."""

    workflow: str = ""
    state: str = ""
    outcome: str = ""
    principal: str = ""
    since: str = ""
    until: str = ""
    limit: int = 50


def runs(query: Query, json_lines: bool, target: str) -> int:
    """List runs, newest first."""
    return run_command(_runs(query, json_lines, target), "orchestrator", target)


def show(run: str, as_json: bool, target: str) -> int:
    """Show all there is about a run."""
    return run_command(_show(run, as_json, target), "orchestrator", target)


def watch(run: str, after: int, json_lines: bool, target: str) -> int:
    """Show a run's trace until it has ended."""
    return run_command(_watch(run, after, json_lines, target), "orchestrator", target)


def query_of(query: Query, now: datetime.datetime) -> pb2.ListRunsRequest:
    """The request, without its page. Raises UsageError for a time that is none."""
    request = pb2.ListRunsRequest(
        workflow=query.workflow,
        state=f"RUN_STATE_{query.state.upper() or 'UNSPECIFIED'}",
        outcome=f"OUTCOME_{query.outcome.upper() or 'UNSPECIFIED'}",
        principal=query.principal,
    )
    since, until = moment(query.since, "--since", now), moment(query.until, "--until", now)
    if since is not None:
        request.create_time_from.FromDatetime(since)
    if until is not None:
        request.create_time_before.FromDatetime(until)
    return request


def row_of(run: pb2.Run) -> tuple[str, ...]:
    """A run as a row of the table."""
    totals = run.totals
    cost = dollars(totals.cost_micros) if totals.HasField("cost_micros") else "unknown"
    tokens = str(totals.input_tokens + totals.output_tokens)
    about = "~" if totals.estimated else ""
    return (
        run.run_id,
        local(run.create_time),
        run.workflow,
        state_of(run),
        f"{run.score:.2f}" if run.HasField("score") else "-",
        str(run.corrections),
        f"{elapsed(run):.2f}" if run.HasField("elapsed") else "-",
        about + tokens if totals.model_calls else "-",
        about + cost if totals.model_calls else "-",
        run.principal or "-",
        shortened(run.question),
    )


async def _runs(query: Query, json_lines: bool, target: str) -> int:
    request = query_of(query, datetime.datetime.now(datetime.UTC))
    rows = []
    async with orchestrator(target) as stub:
        async for run in all_runs(stub, request, query.limit):
            if json_lines:
                print_json(run)
            else:
                rows.append(row_of(run))
    console = output()
    if rows:
        show_table(console, _COLUMNS, rows)
    elif console.is_terminal and not json_lines:
        console.print("no runs" if request == pb2.ListRunsRequest() else "no such runs")
    return ExitCode.OK


async def _show(run: str, as_json: bool, target: str) -> int:
    async with orchestrator(target) as stub:
        run_id = await run_id_of(stub, run)
        described = await stub.GetRun(pb2.GetRunRequest(run_id=run_id), timeout=CALL_SECONDS)
    if as_json:
        print_json(described, indent=2)
    else:
        show_run(output(), described)
    return ExitCode.OK


async def _watch(run: str, after: int, json_lines: bool, target: str) -> int:
    async with orchestrator(target) as stub:
        run_id = await run_id_of(stub, run)
        return await follow_watch(Follower(stub, json_lines=json_lines, waits=True), stub, run_id, after)
