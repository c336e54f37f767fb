"""Events as rows: their JSON, and the evaluations in them."""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, get_args

from pydantic import TypeAdapter
from sqlalchemy import RowMapping

from errata_kit.drafts import FAITHFULNESS, Shortfall
from errata_kit.usage import ModelCall
from services.orchestrator.runs import events
from services.orchestrator.runs.events import Payload, RunStarted, TraceEvent
from services.orchestrator.runs.run import Evaluation

_LONGEST_EXPLANATION: Final = 2000
_TYPES: Final[Mapping[str, Any]] = {kind.__name__: kind for kind in get_args(Payload)}

_ADAPTERS: Final[Mapping[str, TypeAdapter[Any]]] = {name: TypeAdapter(kind) for name, kind in _TYPES.items()}


def event_row(event: TraceEvent) -> dict[str, Any]:
    """An event as a row of run_events."""
    kind = type(event.payload).__name__
    return {
        "run_id": event.run_id,
        "sequence": event.sequence,
        "type": kind,
        "create_time": event.create_time,
        # Settings are written out: a later build may have other defaults, and an empty object would fit more than one kind.
        "payload": _ADAPTERS[kind].dump_json(event.payload, exclude_defaults=kind != RunStarted.__name__).decode(),
    }


def event_of(run_id: str, sequence: int, kind: str, create_time: datetime.datetime, payload: str) -> TraceEvent:
    """The event of a row."""
    return TraceEvent(run_id, sequence, create_time, _ADAPTERS[kind].validate_json(payload))


def usage_row(run_id: str, sequence: int, position: int, call: ModelCall) -> dict[str, Any]:
    """A model call as a row of model_usage."""
    row = {name: getattr(call, name) for name in _CALL_FIELDS}
    row["error"] = None if call.error is None else call.error.value
    return {"run_id": run_id, "sequence": sequence, "position": position, **row}


def call_of(row: RowMapping) -> ModelCall:
    """The model call of a row."""
    return ModelCall(**{name: row[name] for name in _CALL_FIELDS})


_CALL_FIELDS: Final = (
    "model",
    "operation",
    "prompt_version",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "estimated",
    "cost_micros",
    "latency_seconds",
    "attempts",
    "error",
    "served_model",
    "saved",
)


def evaluation_rows(event: TraceEvent) -> list[dict[str, Any]]:
    """The evaluations in an event as rows."""
    found = enumerate(_evaluations(event.sequence, event.payload))
    return [{"run_id": event.run_id, "position": position, **_evaluation_values(item)} for position, item in found]


def _evaluation_values(item: Evaluation) -> dict[str, Any]:
    return {
        "sequence": item.sequence,
        "kind": item.kind,
        "subject": item.subject,
        "iteration": item.iteration,
        "score": item.score,
        "threshold": item.threshold,
        "passed": item.passed,
        "verdict": item.verdict,
        # A model's text may hold what PostgreSQL's does not.
        "explanation": item.explanation[:_LONGEST_EXPLANATION].replace("\0", " "),
    }


def _evaluations(sequence: int, payload: Payload) -> Iterator[Evaluation]:
    match payload:
        case events.PassageGraded(grade=grade) if grade is not None:
            base = Evaluation(sequence, "passage", payload.passage_id, payload.retrieval, grade.score, payload.used)
            yield replace(base, explanation=grade.reasoning)
        case events.AnswerGraded():
            yield from _answer(sequence, payload.refinement, payload)
        case events.DraftReviewed():
            yield from _draft(sequence, payload)


def _answer(sequence: int, iteration: int, payload: events.AnswerGraded) -> Iterator[Evaluation]:
    score = payload.grade.faithfulness_score
    explanation = "; ".join(payload.failures)
    yield Evaluation(sequence, "answer", "", iteration, score, payload.passed, explanation=explanation)
    for claim in payload.grade.claims:
        passed = claim.claim_id not in payload.grade.problematic_claim_ids
        base = Evaluation(sequence, "claim", claim.claim_id, iteration, claim.support, passed)
        yield replace(base, verdict=claim.verdict.value, explanation=claim.text)


def _draft(sequence: int, payload: events.DraftReviewed) -> Iterator[Evaluation]:
    review = payload.review
    overall = Evaluation(sequence, "draft", "", payload.revision, review.overall_score, payload.passed)
    yield replace(overall, threshold=review.overall_threshold, explanation=_missed(payload.shortfalls))
    for item in review.scores:
        passed = item.score >= item.threshold
        base = Evaluation(sequence, "criterion", item.criterion, payload.revision, item.score, passed)
        yield replace(base, threshold=item.threshold, explanation=item.explanation)
    if payload.faithfulness is not None:
        score = payload.faithfulness.faithfulness_score
        passed = all(missed.criterion != FAITHFULNESS for missed in payload.shortfalls)
        yield Evaluation(sequence, "criterion", FAITHFULNESS, payload.revision, score, passed)


def _missed(shortfalls: tuple[Shortfall, ...]) -> str:
    return "; ".join(f"{item.criterion} {item.score:.2f} is below {item.threshold:.2f}" for item in shortfalls)
