"""`errata ask`."""

from dataclasses import dataclass, field

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_cli.calling import Follower, follow_start, orchestrator
from errata_cli.inputs import Start, metadata_of, mode_name, read_text, where_filter
from errata_cli.terminal import run_command
from errata_kit.search import SearchMode


@dataclass(frozen=True, slots=True)
class Limits:
    """Overrides of a run's limits; None keeps the service's default."""

    top_k: int | None = None
    relevance_threshold: float | None = None
    min_relevant: int | None = None
    max_retrievals: int | None = None
    faithfulness_threshold: float | None = None
    max_refinements: int | None = None
    mode: SearchMode = SearchMode.DEFAULT


@dataclass(frozen=True, slots=True)
class Question:
    """What the command line asks. draft: a file name, - for standard input, or empty. where: KEY=VALUE each."""

    text: str
    collection: str
    draft: str = ""
    limits: Limits = Limits()
    where: tuple[str, ...] = ()
    start: Start = field(default_factory=Start)
    verified_only: bool = False


def run(question: Question, target: str, json_lines: bool) -> int:
    """Ask, and show the trace as it comes."""
    return run_command(_ask(question, target, json_lines), "orchestrator", target)


def request_for(question: Question, draft_answer: str) -> pb2.AskRequest:
    """The request. Raises UsageError for what can't be understood."""
    limits, start = question.limits, question.start
    return pb2.AskRequest(
        question=question.text,
        collection=question.collection,
        draft_answer=draft_answer,
        settings=trace_pb2.AnswerSettings(
            top_k=limits.top_k,
            relevance_threshold=limits.relevance_threshold,
            min_relevant=limits.min_relevant,
            max_retrievals=limits.max_retrievals,
            faithfulness_threshold=limits.faithfulness_threshold,
            max_refinements=limits.max_refinements,
            search_mode=mode_name(limits.mode),
        ),
        filter=where_filter(question.where),
        request_id=start.request_id,
        on_disconnect=start.on_disconnect,
        max_cost_micros=start.max_cost_micros,
        max_tokens=start.max_tokens,
        verified_only=question.verified_only,
    )


async def _ask(question: Question, target: str, json_lines: bool) -> int:
    start = question.start
    metadata = metadata_of(start.principal)
    request = request_for(question, read_text(question.draft, "--draft"))
    async with orchestrator(target) as stub:
        call = stub.Ask(request, timeout=start.timeout, metadata=metadata)
        follower = Follower(stub, json_lines=json_lines, verified_only=question.verified_only)
        return await follow_start(follower, stub, call, start)
