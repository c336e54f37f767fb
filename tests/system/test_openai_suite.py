"""The openai provider over four processes: every model call goes through the double, and a cancelled run lets go of it."""

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2

from tests.harness.model_rules import Endpoint, Exchange, Fault, Reply, Rule
from tests.system.conftest import ModelSuite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("models")]

QUESTION = "How long is a backup kept?"
# What the double sees of each operation. Its chat rules can tell a stream and a schema.
HANGING = {
    "grade_passage": Rule(Reply(fault=Fault.HANG), name="hang", schema="PassageGradesOutput"),
    "check_claims": Rule(Reply(fault=Fault.HANG), name="hang", schema="ClaimVerdictsOutput"),
    "generate_answer": Rule(Reply(fault=Fault.HANG), name="hang", stream=True),
    "generate_answer, amid the text": Rule(
        Reply("A backup is kept for thirty days. " * 20, fault=Fault.HANG_MID_BODY), name="hang", stream=True
    ),
}


@pytest.fixture
def rules(model_suite: ModelSuite) -> Iterator[Callable[..., None]]:
    """Set the double's rules for one test; the journal starts empty."""

    async def change(given: tuple[Rule, ...]) -> None:
        model_suite.server.rules.replace(given)
        model_suite.server.journal.clear()

    def set_rules(*given: Rule) -> None:
        model_suite.background.run(change(given))

    set_rules()
    yield set_rules
    set_rules()


def wait_for(model_suite: ModelSuite, condition: Callable[[Exchange], bool], seconds: float) -> Exchange:
    """The first exchange with the double for which the condition holds."""
    return model_suite.background.run(model_suite.server.wait_for(condition, seconds))


def test_a_run_goes_through_the_model_and_says_what_it_cost(model_suite: ModelSuite, rules: Callable[..., None]) -> None:
    done = model_suite.suite.errata("ask", QUESTION, "--collection", model_suite.collection, "--json")
    assert done.code == 0, done.out + done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    finished = events[-1]["run_finished"]
    assert finished["outcome"] == "OUTCOME_ANSWERED"
    assert "30 days" in finished["answer"]["text"]
    assert finished["answer"]["model"] == "gpt-4o"
    calls = finished["usage"]["model_calls"]
    operations = [call["operation"] for call in calls]
    graded = sum("passage_graded" in event for event in events)
    # Three passages in a call, at most (JUDGE_BATCH_SIZE).
    assert sorted(operations) == sorted(["grade_passage"] * math.ceil(graded / 3) + ["generate_answer", "check_claims"])
    for call in calls:
        assert call["model"] == ("gpt-4o" if call["operation"] == "generate_answer" else "gpt-4o-mini")
        assert int(call["cost_micros"]) > 0
        assert int(call["input_tokens"]) > int(call["output_tokens"]) > 0
        assert len(call["prompt_version"]) == 12
        assert call["attempts"] == 1
        assert not call.get("estimated", False)
    journal = model_suite.server.calls()
    assert len(journal) == len(calls)
    assert [exchange.request.model for exchange in model_suite.server.calls(Endpoint.EMBEDDINGS)] == ["text-embedding-3-small"]
    shown = model_suite.suite.errata("ask", QUESTION, "--collection", model_suite.collection)
    assert f"{len(calls)} model calls, " in shown.out
    assert " tokens, $0." in shown.out
    told = [line for _, line in model_suite.suite.log if QUESTION in line or "kept for 30 days" in line]
    assert told == [], "what people wrote is not for the log"


def test_a_draft_with_an_invented_option_is_corrected_through_the_model(
    model_suite: ModelSuite, rules: Callable[..., None]
) -> None:
    draft = "A backup is kept for 30 days. Set `backup.tape_mode=weekly` for penguins with lasers."
    done = model_suite.suite.errata(
        "ask", QUESTION, "--collection", model_suite.collection, "--json", "--draft", "-", stdin=draft
    )
    assert done.code == 0, done.out + done.err
    finished = json.loads(done.out.splitlines()[-1])["run_finished"]
    assert finished["outcome"] == "OUTCOME_ANSWERED_AFTER_REFINEMENT"
    assert "tape_mode" not in finished["answer"]["text"]
    operations = [call["operation"] for call in finished["usage"]["model_calls"]]
    # The claim that stays keeps its verdict: nobody is asked about it again.
    assert [operation for operation in operations if operation != "grade_passage"] == ["check_claims", "refine_answer"]
    [refined] = [event["answer_refined"] for event in map(json.loads, done.out.splitlines()) if "answer_refined" in event]
    [edit] = refined["edits"]
    assert "tape_mode" in edit["before"] and "kept for 30 days" not in edit["before"]


@pytest.mark.parametrize("status", [500, 401])
def test_a_model_that_fails_is_a_failure_and_no_refusal(
    model_suite: ModelSuite, rules: Callable[..., None], status: int
) -> None:
    rules(Rule(Reply(status=status), name="fault", schema="PassageGradesOutput"))
    done = model_suite.suite.errata("ask", QUESTION, "--collection", model_suite.collection, "--json")
    assert done.code == 1, done.out + done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    finished = events[-1]["run_finished"]
    assert finished["outcome"] == "OUTCOME_FAILED"
    reason = {500: "ERROR_REASON_MODEL_UNAVAILABLE", 401: "ERROR_REASON_MODEL_AUTHENTICATION"}[status]
    assert finished["error"]["reason"] == "ERROR_REASON_JUDGEMENT_INCOMPLETE"
    assert {event["passage_graded"]["error"]["reason"] for event in events if "passage_graded" in event} == {reason}
    assert "answer" not in finished
    assert "faithfulness_score" not in finished


@pytest.mark.parametrize("how", ["the caller goes away", "CancelRun"])
@pytest.mark.parametrize("operation", list(HANGING))
def test_a_cancelled_run_closes_the_models_connection(
    model_suite: ModelSuite, rules: Callable[..., None], operation: str, how: str
) -> None:
    rules(HANGING[operation])
    with model_suite.suite.channel("orchestrator") as channel:
        stub = pb2_grpc.OrchestratorServiceStub(channel)
        request = pb2.AskRequest(question=QUESTION, collection=model_suite.collection)
        call: Any = stub.Ask(request, timeout=30)
        run_id = next(call).event.run_id
        events = Drained(call)
        hung = wait_for(model_suite, lambda exchange: exchange.rule == "hang", 10)
        assert hung.open
        if how == "CancelRun":
            run = stub.CancelRun(pb2.CancelRunRequest(run_id=run_id), timeout=5).run
            assert run.outcome == trace_pb2.OUTCOME_CANCELLED
        else:
            call.cancel()
        wait_for(model_suite, lambda exchange: exchange is hung and exchange.closed_by_client, 2)
        assert events.code() is grpc.StatusCode.CANCELLED
        watched = [reply.event for reply in stub.WatchRun(pb2.WatchRunRequest(run_id=run_id), timeout=5)]
        assert [event.sequence for event in watched] == list(range(1, len(watched) + 1))
        assert watched[-1].run_finished.outcome == trace_pb2.OUTCOME_CANCELLED
        # Nobody tries again for a run that was given up.
        asked = len(model_suite.server.calls())
        model_suite.background.run(asyncio.sleep(0.5))
        assert len(model_suite.server.calls()) == asked


class Drained:
    """Reads a stream to its end in a thread, as a client that shows it would."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for _ in self._call:
                pass

    def code(self) -> grpc.StatusCode:
        """The status at the end."""
        self._thread.join(5)
        assert not self._thread.is_alive()
        return self._call.code()  # type: ignore[no-any-return]  # the stub is untyped
