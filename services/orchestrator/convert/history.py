"""Runs, their grades and their costs as messages."""

from collections.abc import Iterable
from typing import Final

from errata.orchestrator.v1 import orchestrator_service_pb2 as service_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2

from errata_kit.rpc import convert
from errata_kit.usage import ModelCall
from services.orchestrator.convert.trace import event_to, outcome_to
from services.orchestrator.runs.events import TraceEvent
from services.orchestrator.runs.run import Evaluation, Run, UsageTotals

MAX_TRACE_BYTES: Final = 4 * 1024 * 1024
"""Half of what a message may have; the other half is for the rest of it."""


def run_to(run: Run) -> service_pb2.Run:
    """A run as a message."""
    message = service_pb2.Run(
        run_id=run.run_id,
        workflow=run.workflow,
        state=f"RUN_STATE_{run.state.value}",
        question=run.question,
        collection=run.collection,
        create_time=convert.timestamp(run.create_time),
        last_sequence=run.last_sequence,
        principal=run.principal,
        approved=run.approved,
        score=run.score,
        corrections=run.corrections,
        totals=_totals_to(run.totals),
        takeovers=run.takeovers,
    )
    if run.outcome is not None:
        message.MergeFrom(service_pb2.Run(outcome=outcome_to(run.outcome)))
    if run.finish_time is not None:
        message.finish_time.CopyFrom(convert.timestamp(run.finish_time))
    if run.elapsed_seconds is not None:
        message.elapsed.CopyFrom(convert.duration(run.elapsed_seconds))
    return message


def evaluation_to(item: Evaluation) -> service_pb2.Evaluation:
    """A grade as a message."""
    return service_pb2.Evaluation(
        sequence=item.sequence,
        kind=item.kind,
        subject=item.subject,
        iteration=item.iteration,
        score=item.score,
        threshold=item.threshold,
        passed=item.passed,
        verdict=item.verdict,
        explanation=item.explanation,
    )


def usage_to(calls: Iterable[ModelCall]) -> usage_pb2.Usage:
    """Model calls as a message."""
    return convert.usage_to(calls)


def prompt_versions_to(calls: Iterable[ModelCall]) -> list[service_pb2.PromptVersion]:
    """The prompts behind some model calls, each once, in the order of their first use."""
    used = dict.fromkeys((call.operation, call.prompt_version) for call in calls if call.prompt_version)
    return [service_pb2.PromptVersion(operation=operation, version=version) for operation, version in used]


def trace_to(stored: Iterable[TraceEvent]) -> tuple[list[trace_pb2.TraceEvent], bool]:
    """Events as messages, as many as fit into one, and whether some did not."""
    messages: list[trace_pb2.TraceEvent] = []
    room = MAX_TRACE_BYTES
    for event in stored:
        message = event_to(event)
        room -= message.ByteSize()
        if room < 0:
            return messages, True
        messages.append(message)
    return messages, False


def _totals_to(totals: UsageTotals) -> service_pb2.UsageTotals:
    return service_pb2.UsageTotals(
        model_calls=totals.model_calls,
        failed_calls=totals.failed_calls,
        input_tokens=totals.input_tokens,
        cached_input_tokens=totals.cached_input_tokens,
        output_tokens=totals.output_tokens,
        estimated=totals.estimated,
        cost_micros=totals.cost_micros,
        models=totals.models,
        saved_calls=totals.saved_calls,
        saved_tokens=totals.saved_tokens,
        saved_cost_micros=totals.saved_cost_micros,
    )
