"""The suite with a real model behind the openai provider: the protocol holds, whatever the model says."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest
from errata.errors.v1 import errors_pb2
from errata.grading.v1 import grading_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from tests.harness.suite import eventually
from tests.llm.conftest import ModelSuite, endless, steered
from tests.llm.relay import Exchange
from tests.llm.runs import Following, Run, ask, reason_name, run
from tests.llm.schemas import fits

pytestmark = pytest.mark.timeout(600)

# Asked until the model has called a passage relevant, so that there is an answer.
QUESTIONS = (
    "Is a backup kept for 30 days?",
    "When is a backup made?",
    "How large may an upload be?",
    "How long is a backup kept?",
)
# The same for answers from elsewhere, of one claim each, until the model has given a verdict that can be used.
DRAFTS = (
    ("For how many days do we have a backup?", "A backup is kept for 30 days."),
    ("At what time does the backup start?", "A backup is made every night at 02:00."),
    ("What is the limit of an upload?", "An upload may have at most 64 MiB."),
)
# From the cancellation to the end of the HTTP request, and to the model's falling silent. It takes milliseconds; two busy
# cores take their time.
LETTING_GO_SECONDS = 5.0


@pytest.fixture(scope="module")
def asked(model_suite: ModelSuite) -> list[Run]:
    """Runs of `Ask`; the last one has an answer of the model's own."""
    runs = []
    for question in QUESTIONS:
        runs.append(run(model_suite, ask(model_suite, question)))
        if any(not drafted.answer.refusal for drafted in runs[-1].payloads("answer_drafted")):
            return runs
    pytest.fail(f"The model called no passage relevant, or finished no answer: {[made.finished for made in runs]}")


@pytest.fixture(scope="module")
def checked(model_suite: ModelSuite) -> list[Run]:
    """Runs of `Ask` that check an answer from elsewhere; the last one has verdicts."""
    runs = []
    for question, draft in DRAFTS:
        runs.append(run(model_suite, ask(model_suite, question, draft)))
        if runs[-1].payloads("answer_graded"):
            return runs
    pytest.fail(f"The model gave no verdict that could be used: {[made.finished for made in runs]}")


@pytest.fixture(scope="module")
def composed(model_suite: ModelSuite) -> Run:
    """A run of `Compose` from what the model knows, measured by one criterion."""
    request = pb2.ComposeRequest(
        task="Write one sentence about the sea.",
        criteria=[grading_pb2.Criterion(name="clarity", threshold=0.5)],
        settings=trace_pb2.ComposeSettings(max_revisions=0),
    )
    return run(model_suite, request)


@pytest.fixture(scope="module")
def runs(asked: list[Run], checked: list[Run], composed: Run) -> list[Run]:
    """All of them."""
    return [*asked, *checked, composed]


def test_every_run_ends_and_says_how(runs: list[Run]) -> None:
    for made in runs:
        finished = made.finished
        assert (made.code is grpc.StatusCode.OK) == (finished.outcome != trace_pb2.OUTCOME_FAILED)
        assert finished.outcome != trace_pb2.OUTCOME_UNSPECIFIED
        assert finished.HasField("error") == (finished.outcome == trace_pb2.OUTCOME_FAILED), finished
        if finished.HasField("error"):
            assert reason_name(finished.error.reason).startswith(("ERROR_REASON_MODEL_", "ERROR_REASON_JUDGEMENT_"))


def test_every_model_call_is_one_request_with_the_tokens_that_the_server_counted(runs: list[Run]) -> None:
    for made in runs:
        for call, exchange in made.paired():
            assert exchange.status == 200
            assert exchange.complete
            assert not call.estimated
            assert call.attempts == 1
            assert call.input_tokens > 0
            assert call.output_tokens > 0
            assert not call.HasField("cost_micros"), "nobody knows this model's price, and unknown is not nothing"
            assert 0 < call.latency.ToTimedelta().total_seconds() < 300


def test_a_call_succeeds_with_a_whole_answer_to_its_schema_or_fails_with_the_reason(runs: list[Run], composed: Run) -> None:
    structured = [pair for made in runs for pair in made.paired() if pair[1].schema]
    operations = {call.operation for call, _ in structured}
    assert operations >= {"grade_passage", "check_claims"}
    assert ("review_draft" in operations) == bool(composed.payloads("draft_written"))
    for call, exchange in structured:
        assert exchange.schema["strict"] is True
        assert not exchange.streamed
        if exchange.finish_reason == "length":
            assert call.error == errors_pb2.ERROR_REASON_MODEL_TRUNCATED
        elif not fits(exchange.text, exchange.schema["schema"]):
            assert call.error == errors_pb2.ERROR_REASON_MODEL_OUTPUT_INVALID
        else:
            # What fits may still name a passage or a claim that there is not.
            assert call.error in (errors_pb2.ERROR_REASON_UNSPECIFIED, errors_pb2.ERROR_REASON_MODEL_OUTPUT_INVALID)
    assert any(call.error == errors_pb2.ERROR_REASON_UNSPECIFIED for call, _ in structured)


def test_a_text_is_streamed_and_one_that_was_cut_is_an_error(runs: list[Run]) -> None:
    streamed = [pair for made in runs for pair in made.paired() if not pair[1].schema]
    assert len(streamed) >= 2
    for call, exchange in streamed:
        assert exchange.streamed
        cut = exchange.finish_reason == "length"
        assert (call.error == errors_pb2.ERROR_REASON_MODEL_TRUNCATED) == cut, call


def test_grades_are_what_the_model_wrote(asked: list[Run], checked: list[Run]) -> None:
    compared = 0
    for made in (*asked, *checked):
        written = [item for item in made.objects() if {"score", "relevant", "reasoning"} <= set(item)]
        for graded in made.payloads("passage_graded"):
            if graded.HasField("grade"):
                grade = graded.grade
                mine = (grade.score, grade.relevant, grade.reasoning)
                assert mine in [(item["score"], item["relevant"], item["reasoning"][:2000]) for item in written]
                compared += 1
            else:
                assert reason_name(graded.error.reason).startswith("ERROR_REASON_MODEL_")
    assert compared, "no grade of any run could be used"


def test_verdicts_are_what_the_model_wrote_or_lower(checked: list[Run]) -> None:
    made = checked[-1]
    written = [item["verdict"] for item in made.objects() if {"verdict", "evidence"} <= set(item)]
    claims = [claim for graded in made.payloads("answer_graded") for claim in graded.grade.claims]
    assert claims
    assert written
    for claim in claims:
        # Evidence that is in no passage, or a detail that is in none, lowers a verdict; nothing raises one.
        assert grading_pb2.Verdict.Name(claim.verdict).removeprefix("VERDICT_") in {*written, "UNSUPPORTED"}


def test_an_answer_is_shown_while_the_model_still_writes_it(asked: list[Run]) -> None:
    shown_while_it_is_written(asked[-1], "answer_drafted", asked[-1].payloads("answer_drafted")[0].answer.text)


def test_a_draft_is_shown_while_the_model_still_writes_it(composed: Run) -> None:
    written = composed.payloads("draft_written")
    shown_while_it_is_written(composed, "draft_written", written[0].draft.text if written else "")


def shown_while_it_is_written(made: Run, whole: str, text: str) -> None:
    """Deltas arrived before the model had finished, and together they are what the model wrote."""
    writing = next(exchange for exchange in made.exchanges if exchange.streamed)
    deltas = [delta for delta in made.payloads("answer_delta") if delta.refinement == 0]
    assert len(deltas) >= 2
    assert "".join(delta.text for delta in deltas) == writing.text
    last_piece = writing.pieces[-1][0]
    assert made.arrival("answer_delta") < last_piece
    if text:
        assert made.arrival(whole) > made.arrival("answer_delta")
        assert text.split()[0] in writing.text


@pytest.fixture
def endless_texts(model_suite: ModelSuite) -> Iterator[None]:
    """The model writes texts until its longest answer is reached."""
    model_suite.relay.sampling = endless
    yield
    model_suite.relay.sampling = steered


@pytest.mark.usefixtures("endless_texts")
@pytest.mark.parametrize("how", ["CancelRun", "the caller goes away"])
def test_cancelling_ends_the_request_while_the_model_writes(model_suite: ModelSuite, asked: list[Run], how: str) -> None:
    first = len(model_suite.relay.exchanges)
    with model_suite.suite.channel("orchestrator") as channel:
        stub = pb2_grpc.OrchestratorServiceStub(channel)
        # The one to which the model had an answer.
        following = Following(stub.Ask(ask(model_suite, QUESTIONS[len(asked) - 1]), timeout=300))
        begun = model_suite.relay.wait_for(lambda item: item.streamed and bool(item.text), 200, first)
        writing = model_suite.background.run(begun, 210)
        assert model_suite.writing() == 1
        began = time.monotonic()
        if how == "CancelRun":
            cancelled = stub.CancelRun(pb2.CancelRunRequest(run_id=following.events[0][1].run_id), timeout=30).run
            assert cancelled.outcome == trace_pb2.OUTCOME_CANCELLED
        else:
            following.call.cancel()
        let_go(model_suite, writing, began)
        assert following.code(30) is grpc.StatusCode.CANCELLED
        run_id = following.events[0][1].run_id
        watched = [reply.event for reply in stub.WatchRun(pb2.WatchRunRequest(run_id=run_id), timeout=30)]
    assert watched[-1].run_finished.outcome == trace_pb2.OUTCOME_CANCELLED


def let_go(model_suite: ModelSuite, writing: Exchange, began: float) -> None:
    """The HTTP request is closed before its end, and the model writes no more."""
    eventually(lambda: writing.dropped_at is not None, LETTING_GO_SECONDS, "the request is closed")
    eventually(lambda: model_suite.writing() == 0, LETTING_GO_SECONDS, "the model is silent")
    assert time.monotonic() - began < 2 * LETTING_GO_SECONDS
    assert not writing.complete
    assert not writing.finish_reason
