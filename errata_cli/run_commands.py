"""The commands about runs that are there already, and their options. What they do is in a module each."""

from typing import Annotated

import typer

from errata_cli.options import (
    DEFAULT_ORCHESTRATOR,
    Approval,
    JsonLines,
    Orchestrator,
    Outcome,
    Principal,
    Remark,
    RunId,
    State,
    Watch,
)


def runs(
    workflow: Annotated[str, typer.Option(help="Only runs of this workflow: answer or compose.")] = "",
    state: Annotated[State | None, typer.Option(case_sensitive=False, help="Only runs in this state.")] = None,
    outcome: Annotated[Outcome | None, typer.Option(case_sensitive=False, help="Only runs that ended like this.")] = None,
    principal: Annotated[str, typer.Option(help="Only runs that this principal asked for.")] = "",
    since: Annotated[str, typer.Option(help="Only runs that started at or after this: a time, or 2h, 3d ago.")] = "",
    until: Annotated[str, typer.Option(help="Only runs that started before this.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="Runs, at most.")] = 50,
    json_lines: Annotated[bool, typer.Option("--json", help="Print each run as one line of JSON.")] = False,
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """List runs, newest first."""
    from errata_cli import history

    query = history.Query(workflow, state or "", outcome or "", principal, since, until, limit)
    raise typer.Exit(history.runs(query, json_lines, orchestrator))


def show(
    run: RunId,
    as_json: Annotated[bool, typer.Option("--json", help="Print all there is as one JSON object.")] = False,
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Show a run: its steps with times and scores, its final text, sources and costs."""
    from errata_cli import history

    raise typer.Exit(history.show(run, as_json, orchestrator))


def watch(
    run: RunId,
    after: Annotated[int, typer.Option(min=0, help="Only events after this sequence number.")] = 0,
    json_lines: JsonLines = False,
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Watch a run until it ends. Ctrl-C ends the watching, not the run. Exit codes as with ask and compose."""
    from errata_cli import history

    raise typer.Exit(history.watch(run, after, json_lines, orchestrator))


def approve(
    run: RunId,
    remark: Remark = "",
    approval: Approval = 0,
    watch_on: Watch = False,
    principal: Principal = "",
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Approve the draft that waits."""
    _decide("APPROVE", (run, remark), (approval, principal, watch_on), orchestrator)


def reject(
    run: RunId,
    remark: Remark = "",
    approval: Approval = 0,
    watch_on: Watch = False,
    principal: Principal = "",
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Reject the draft that waits, which ends the run."""
    _decide("REJECT", (run, remark), (approval, principal, watch_on), orchestrator)


def revise(
    run: RunId,
    feedback: Annotated[str, typer.Argument(help="What is to be changed; - reads standard input.")],
    approval: Approval = 0,
    watch_on: Watch = False,
    principal: Principal = "",
    orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR,
) -> None:
    """Send the draft that waits back to be revised. This counts as a revision."""
    _decide("REVISE", (run, feedback), (approval, principal, watch_on), orchestrator)


def cancel(run: RunId, orchestrator: Orchestrator = DEFAULT_ORCHESTRATOR) -> None:
    """Stop a run, and the model call in flight. A run that has ended stays as it is."""
    from errata_cli import deciding

    raise typer.Exit(deciding.cancel(run, orchestrator))


def migrate() -> None:
    """Bring the database of the runs up to date: ERRATA_DATABASE_URL, else the SQLite files in ERRATA_DATA_DIR."""
    from errata_cli import migrate as command

    raise typer.Exit(command.run())


def _decide(name: str, said: tuple[str, str], options: tuple[int, str, bool], orchestrator: str) -> None:
    from errata_cli import deciding

    run, text = said
    raise typer.Exit(deciding.decide(deciding.Decision(run, name, text, *options), orchestrator))
