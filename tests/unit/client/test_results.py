"""The end of a run as a value, and the waits between attempts."""

import pytest
from errata.corpus.v1 import passage_pb2
from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import trace_pb2

from errata_client import Answer, Composition, ErrataError, Reason, Retries
from errata_client.calls import Deadline

RUN_ID = "01a22c99-8cab-7038-8d25-e7fab977b93c"


@pytest.mark.parametrize("name", trace_pb2.Outcome.keys())
def test_every_outcome_is_an_answer_a_refusal_or_an_error(name: str) -> None:
    finished = trace_pb2.RunFinished(
        outcome=name, error=errors_pb2.ErrorDetail(reason=errors_pb2.ERROR_REASON_MODEL_REFUSED, metadata={"a": "b"})
    )
    if name.removeprefix("OUTCOME_") in {"FAILED", "DEADLINE_EXCEEDED", "CANCELLED"}:
        for made in (Answer.of, Composition.of):
            with pytest.raises(ErrataError) as caught:
                made(RUN_ID, finished)
            assert (caught.value.why, caught.value.metadata) == (Reason.MODEL_REFUSED, {"a": "b", "run_id": RUN_ID})
    elif name == "OUTCOME_UNSPECIFIED":
        with pytest.raises(ErrataError, match="has not ended"):
            Answer.of(RUN_ID, finished)
    else:
        assert Answer.of(RUN_ID, finished).answered == name.startswith("OUTCOME_ANSWERED")
        assert trace_pb2.Outcome.Name(Composition.of(RUN_ID, finished).outcome) == name


def test_what_was_not_graded_has_no_score() -> None:
    finished = trace_pb2.RunFinished(outcome="OUTCOME_REFUSED_NO_EVIDENCE", refusal=trace_pb2.Refusal(queries=["a"]))
    refused = Answer.of(RUN_ID, finished)
    assert refused.faithfulness is None
    assert refused.refusal is not None
    assert list(refused.refusal.queries) == ["a"]
    graded = Answer.of(
        RUN_ID,
        trace_pb2.RunFinished(
            outcome="OUTCOME_ANSWERED",
            faithfulness_score=0.0,
            answer=passage_pb2.Answer(text="x [1]", citations=[passage_pb2.Citation(number=1, passage_id="p")]),
        ),
    )
    assert (graded.faithfulness, graded.refusal, graded.text) == (0.0, None, "x [1]")
    assert [citation.passage_id for citation in graded.citations] == ["p"]


def test_pauses_grow_to_a_limit_and_never_shrink_below_what_is_asked() -> None:
    steady = Retries(jitter=0.0)
    assert [steady.pause(attempt) for attempt in (0, 1, 2, 3, 4, 5, 1000)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    spread = {Retries(jitter=0.5).stretched(1.0) for _ in range(50)}
    assert 1.0 <= min(spread) < max(spread) <= 1.5


def test_a_deadline_that_is_over_leaves_nothing() -> None:
    assert Deadline(-1).left() == 0
    assert 9 < Deadline(10).left() <= 10
