"""`errata compose`."""

from dataclasses import dataclass, field
from pathlib import Path

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_cli.calling import Follower, follow_start, orchestrator
from errata_cli.inputs import Start, criterion, metadata_of, mode_name, read_text, where_filter
from errata_cli.terminal import UsageError, errors, run_command
from errata_kit.search import SearchMode


@dataclass(frozen=True, slots=True)
class Limits:
    """Overrides of a run's limits; None keeps the service's default."""

    overall_threshold: float | None = None
    max_revisions: int | None = None
    top_k: int | None = None
    relevance_threshold: float | None = None
    faithfulness_threshold: float | None = None
    mode: SearchMode = SearchMode.DEFAULT


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be written. text: - for standard input. draft: a file name, - for standard input, or empty.

    criteria: NAME[=THRESHOLD][:DESCRIPTION] each. where: KEY=VALUE each.
    """

    text: str
    collection: str = ""
    draft: str = ""
    criteria: tuple[str, ...] = ()
    limits: Limits = Limits()
    where: tuple[str, ...] = ()
    require_approval: bool = False
    start: Start = field(default_factory=Start)


def run(task: Task, target: str, json_lines: bool, to: Path | None) -> int:
    """Have it written, and show the trace as it comes. to: a file for the final text."""
    return run_command(_compose(task, target, json_lines, to), "orchestrator", target)


def request_for(task: Task, text: str, draft: str) -> pb2.ComposeRequest:
    """The request. Raises UsageError for what can't be understood."""
    limits, start = task.limits, task.start
    return pb2.ComposeRequest(
        task=text,
        collection=task.collection,
        draft=draft,
        criteria=[criterion(given) for given in task.criteria],
        settings=trace_pb2.ComposeSettings(
            overall_threshold=limits.overall_threshold,
            max_revisions=limits.max_revisions,
            top_k=limits.top_k,
            relevance_threshold=limits.relevance_threshold,
            faithfulness_threshold=limits.faithfulness_threshold,
            search_mode=mode_name(limits.mode),
        ),
        filter=where_filter(task.where),
        require_approval=task.require_approval,
        request_id=start.request_id,
        on_disconnect=start.on_disconnect,
        max_cost_micros=start.max_cost_micros,
        max_tokens=start.max_tokens,
    )


async def _compose(task: Task, target: str, json_lines: bool, to: Path | None) -> int:
    start = task.start
    _check(task, to)
    metadata = metadata_of(start.principal)
    text = read_text("-", "task") if task.text == "-" else task.text
    request = request_for(task, text, read_text(task.draft, "--draft"))
    async with orchestrator(target) as stub:
        follower = Follower(stub, json_lines=json_lines)
        code = await follow_start(follower, stub, stub.Compose(request, timeout=start.timeout, metadata=metadata), start)
    if to is not None:
        _write(to, follower.finished)
    return code


def _check(task: Task, to: Path | None) -> None:
    """What would only be found out when the text is there."""
    if task.text == task.draft == "-":
        raise UsageError("the task and --draft can't both come from standard input")
    if to is not None and (to.is_dir() or not to.absolute().parent.is_dir()):
        raise UsageError(f"--output {to}: is no file in a folder that exists")


def _write(to: Path, finished: trace_pb2.RunFinished | None) -> None:
    if finished is None or not finished.HasField("draft"):
        errors().print(f"errata: there is no final text; {to} was not written", markup=False)
        return
    try:
        # As it is, control characters included: it goes to a file, not to a terminal.
        to.write_text(finished.draft.text.rstrip("\n") + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {to}: {str(error.strerror).lower()}") from None
    if not finished.approved:
        errors().print(f"errata: {to} holds the best draft so far, which is not approved", markup=False)
