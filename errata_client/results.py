"""The end of a run as a value."""

from dataclasses import dataclass

from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import trace_pb2
from errata.usage.v1 import usage_pb2

from errata_kit.errors import ErrataError, RemoteError
from errata_kit.rpc.status import from_detail

_ANSWERED = frozenset({trace_pb2.OUTCOME_ANSWERED, trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT})
_FAILED = frozenset({trace_pb2.OUTCOME_FAILED, trace_pb2.OUTCOME_DEADLINE_EXCEEDED, trace_pb2.OUTCOME_CANCELLED})


@dataclass(frozen=True, slots=True)
class Answer:
    """How an answer run ended.

    text: the released answer, or the fixed text of a refusal; empty with BUDGET_EXHAUSTED. citations: what each part of it
    rests on; passages: those that are cited. faithfulness: the last grade's score, 0–1, None when nothing was graded.
    refusal: what was tried, None without one. finished: the event itself, with everything else.
    """

    run_id: str
    text: str
    outcome: trace_pb2.Outcome
    citations: tuple[passage_pb2.Citation, ...]
    passages: tuple[passage_pb2.Passage, ...]
    faithfulness: float | None
    refusal: trace_pb2.Refusal | None
    usage: usage_pb2.Usage
    finished: trace_pb2.RunFinished

    @property
    def answered(self) -> bool:
        """Whether the text answers the question. A refusal does not."""
        return self.outcome in _ANSWERED

    @classmethod
    def of(cls, run_id: str, finished: trace_pb2.RunFinished) -> "Answer":
        """The end of a run. Raises RemoteError for one that failed, was cancelled or ran out of time."""
        _check(run_id, finished)
        return cls(
            run_id=run_id,
            text=finished.answer.text,
            outcome=finished.outcome,
            citations=tuple(finished.answer.citations),
            passages=tuple(finished.cited_passages),
            faithfulness=finished.faithfulness_score if finished.HasField("faithfulness_score") else None,
            refusal=finished.refusal if finished.HasField("refusal") else None,
            usage=finished.usage,
            finished=finished,
        )


@dataclass(frozen=True, slots=True)
class Composition:
    """How a compose run ended.

    text: the best draft; empty when there is none. approved: whether it reached every threshold, and the person agreed where
    one was asked. shortfalls: which criteria it misses. finished: the event itself, with everything else.
    """

    run_id: str
    text: str
    outcome: trace_pb2.Outcome
    approved: bool
    citations: tuple[passage_pb2.Citation, ...]
    review: grading_pb2.DraftReview
    shortfalls: tuple[grading_pb2.Shortfall, ...]
    usage: usage_pb2.Usage
    finished: trace_pb2.RunFinished

    @classmethod
    def of(cls, run_id: str, finished: trace_pb2.RunFinished) -> "Composition":
        """The end of a run. Raises RemoteError for one that failed, was cancelled or ran out of time."""
        _check(run_id, finished)
        return cls(
            run_id=run_id,
            text=finished.draft.text,
            outcome=finished.outcome,
            approved=finished.approved,
            citations=tuple(finished.draft.citations),
            review=finished.review,
            shortfalls=tuple(finished.shortfalls),
            usage=finished.usage,
            finished=finished,
        )


def _check(run_id: str, finished: trace_pb2.RunFinished) -> None:
    if finished.outcome == trace_pb2.OUTCOME_UNSPECIFIED:
        raise ErrataError("The run has not ended", metadata={"run_id": run_id})
    if finished.outcome in _FAILED:
        error = from_detail(finished.error)
        raise RemoteError(error.why, error.message, metadata={**error.metadata, "run_id": run_id})
