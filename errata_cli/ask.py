"""`errata ask`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from errata.corpus.v1 import filter_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2
from google.protobuf.json_format import MessageToDict

from errata_cli.terminal import ExitCode, UsageError, output, run_command
from errata_cli.trace import TraceView
from errata_kit.rpc.channels import open_channel, reading
from errata_kit.search import SearchMode

_ANSWERED: Final = frozenset({trace_pb2.OUTCOME_ANSWERED, trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT})
_REFUSED: Final = frozenset({trace_pb2.OUTCOME_REFUSED_NO_EVIDENCE, trace_pb2.OUTCOME_REFUSED_UNFAITHFUL})


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
    timeout: float = 120.0


def run(question: Question, target: str, json_lines: bool) -> int:
    """Ask, and show the trace as it comes."""
    return run_command(_ask(question, target, json_lines), "orchestrator", target)


def request_for(question: Question, draft_answer: str) -> pb2.AskRequest:
    """The request. Raises UsageError for a condition that is not KEY=VALUE."""
    limits = question.limits
    mode = "UNSPECIFIED" if limits.mode is SearchMode.DEFAULT else limits.mode.name
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
            search_mode=f"SEARCH_MODE_{mode}",
        ),
        filter=_filter(question.where),
    )


async def _ask(question: Question, target: str, json_lines: bool) -> int:
    request = request_for(question, read_draft(question.draft))
    view = TraceView(output())
    finished: trace_pb2.RunFinished | None = None
    channel = open_channel(target)
    try:
        stub = pb2_grpc.OrchestratorServiceStub(channel)
        async with reading(stub.Ask(request, timeout=question.timeout)) as replies:
            try:
                async for reply in replies:
                    if json_lines:
                        _print_json(reply.event)
                    else:
                        view.show(reply.event)
                    if reply.event.WhichOneof("payload") == "run_finished":
                        finished = reply.event.run_finished
            except grpc.aio.AioRpcError:
                # Behind the last event the status only repeats what the event said.
                if finished is None:
                    raise
    finally:
        await channel.close()
    return exit_code(finished)


def exit_code(finished: trace_pb2.RunFinished | None) -> ExitCode:
    """Answered, refused and failed apart."""
    if finished is None:
        return ExitCode.FAILED
    if finished.outcome in _ANSWERED:
        return ExitCode.OK
    return ExitCode.REFUSED if finished.outcome in _REFUSED else ExitCode.FAILED


def read_draft(name: str) -> str:
    """A draft from a file, or from standard input for "-". Raises UsageError for one that can't be read."""
    if not name:
        return ""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--draft {name}: {str(error.strerror).lower()}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--draft {name}: is not UTF-8") from None
    if not text.strip():
        raise UsageError(f"--draft {name}: is empty")
    return text.strip()


def _filter(where: tuple[str, ...]) -> filter_pb2.MetadataFilter | None:
    if not where:
        return None
    conditions = filter_pb2.MetadataFilterList(filters=[_condition(text) for text in where])
    return filter_pb2.MetadataFilter(all_of=conditions)


def _condition(text: str) -> filter_pb2.MetadataFilter:
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UsageError(f"--where {text}: must be KEY=VALUE")
    own = key in {"document_id", "title", "source_uri", "has_code"} or key.startswith("metadata.")
    condition = filter_pb2.MetadataCondition(field=key if own else f"metadata.{key}", equals=value)
    return filter_pb2.MetadataFilter(condition=condition)


def _print_json(event: trace_pb2.TraceEvent) -> None:
    sys.stdout.write(json.dumps(MessageToDict(event, preserving_proto_field_name=True), ensure_ascii=False) + "\n")
    sys.stdout.flush()
