"""How services end, and what the others make of it: drains on SIGTERM, runs that are let go, and services that are killed."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from errata_cli.stack import StackPlan
from tests.harness.model_responder import respond
from tests.harness.model_rules import Rule
from tests.harness.model_server import with_latency
from tests.harness.suite import Suite, eventually
from tests.system.conftest import ModelSuite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("models")]

QUESTION = "How long is a backup kept?"
# Longer than the suite's pause between NOT_SERVING and refusing, so that a call is under way all the time.
MODEL_SECONDS = 3.0
PASSAGE = passage_pb2.Passage(passage_id="p1", text="A backup is kept for 30 days.")


class InFlight:
    """A streaming call that is read in a thread: its replies and its status."""

    def __init__(self, call: Any) -> None:
        self.replies: list[Any] = []
        self.code: grpc.StatusCode | None = None
        self.reason = ""
        self._call = call
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            self.replies.extend(self._call)
            self.code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            self.code, self.reason = self._call.code(), reason_of(error)

    def ended(self, seconds: float = 20) -> grpc.StatusCode | None:
        """Wait for the end."""
        self._thread.join(seconds)
        return self.code


@pytest.fixture
def slow_model(model_suite: ModelSuite) -> Iterator[ModelSuite]:
    """The model suite with a double that takes its time for every chat."""

    async def change(*rules: Rule) -> None:
        model_suite.server.rules.replace(rules)
        model_suite.server.journal.clear()

    model_suite.background.run(change(Rule(with_latency(respond, MODEL_SECONDS), name="slow")))
    yield model_suite
    model_suite.background.run(change())


@pytest.fixture(scope="module")
def hasty(model_suite: ModelSuite) -> Iterator[None]:
    """An orchestrator that waits a second for services, and a moment for its runs. Tests that use it come last."""
    stack = model_suite.suite.stack
    usual = stack.plan
    variables = {"ERRATA_DRAIN_GRACE_SECONDS": "0.2", "ORCHESTRATOR_OUTAGE_SECONDS": "1", "ERRATA_DRAIN_PAUSE_SECONDS": "0.1"}
    started_again(model_suite.suite, replace(usual, variables={**usual.variables, **variables}))
    yield
    started_again(model_suite.suite, usual)


def started_again(suite: Suite, plan: StackPlan) -> None:
    suite.signal("orchestrator", signal.SIGTERM)
    assert suite.exit_code("orchestrator") == 0
    suite.stack.plan = plan
    suite.start_again("orchestrator")


def until_the_model_is_asked(model_suite: ModelSuite) -> None:
    model_suite.background.run(model_suite.server.wait_for(lambda exchange: exchange.rule == "slow", 10))


def ask(channel: grpc.Channel, collection: str) -> Any:
    return pb2_grpc.OrchestratorServiceStub(channel).Ask(pb2.AskRequest(question=QUESTION, collection=collection), timeout=40)


def reason_of(error: grpc.RpcError) -> str:
    """The ErrorInfo's reason of a failed call, or nothing."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # a failed call is a Call, too
    for packed in status.details if status is not None else ():
        if packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            info = error_details_pb2.ErrorInfo()
            packed.Unpack(info)
            return str(info.reason)
    return ""


def refusal(suite: Suite, collection: str) -> str:
    """The reason with which a new Ask is refused; nothing when its run starts."""
    with suite.channel("orchestrator") as channel:
        call = ask(channel, collection)
        try:
            next(call)
        except grpc.RpcError as error:
            assert call.code() is grpc.StatusCode.UNAVAILABLE
            return reason_of(error)
        finally:
            call.cancel()
    return ""


def test_the_orchestrator_drains(slow_model: ModelSuite) -> None:
    suite = slow_model.suite
    with suite.channel("orchestrator") as channel:
        running = InFlight(ask(channel, slow_model.collection))
        until_the_model_is_asked(slow_model)
        suite.signal("orchestrator", signal.SIGTERM)
        try:
            eventually(lambda: suite.health("orchestrator") == "NOT_SERVING", 0.8, "health says NOT_SERVING")
            eventually(lambda: refusal(suite, slow_model.collection) == "DRAINING", 3, "a new call is refused")
            assert running.code is None, "the run is still under way"
            assert running.ended() is grpc.StatusCode.OK
            assert running.replies[-1].event.run_finished.outcome == trace_pb2.OUTCOME_ANSWERED
            assert suite.exit_code("orchestrator") == 0
        finally:
            suite.exit_code("orchestrator", 40)
            suite.start_again("orchestrator")
    assert '"draining"' in "".join(line for name, line in suite.log if name == "orchestrator")


def grade(channel: grpc.Channel) -> Any:
    request = judge_pb2.GradePassagesRequest(question=QUESTION, passages=[PASSAGE])
    return judge_grpc.JudgeServiceStub(channel).GradePassages(request, timeout=20)


def generate(channel: grpc.Channel) -> Any:
    request = generator_pb2.GenerateAnswerRequest(question=QUESTION, passages=[PASSAGE])
    return generator_grpc.GeneratorServiceStub(channel).GenerateAnswer(request, timeout=20)


@pytest.mark.parametrize(("name", "start", "result"), [("judge", grade, "grade"), ("generator", generate, "answer")])
def test_judge_and_generator_finish_the_call_under_way(
    slow_model: ModelSuite, name: str, start: Callable[[grpc.Channel], Any], result: str
) -> None:
    suite = slow_model.suite
    with suite.channel(name) as channel:
        running = InFlight(start(channel))
        until_the_model_is_asked(slow_model)
        suite.signal(name, signal.SIGTERM)
        try:
            eventually(lambda: suite.health(name) == "NOT_SERVING", 0.8, "health says NOT_SERVING")
            eventually(lambda: refused(suite, name, start), 3, "a new call is refused")
            assert running.code is None, "the call is still under way"
            assert running.ended() is grpc.StatusCode.OK
            assert running.replies[-1].WhichOneof("result") == result
            assert suite.exit_code(name) == 0
        finally:
            suite.exit_code(name, 40)
            suite.start_again(name)


def refused(suite: Suite, name: str, start: Callable[[grpc.Channel], Any]) -> bool:
    """Whether a new call gets UNAVAILABLE before any reply."""
    with suite.channel(name) as channel:
        call = start(channel)
        threading.Timer(0.3, call.cancel).start()
        try:
            next(call)
        except grpc.RpcError:
            return bool(call.code() is grpc.StatusCode.UNAVAILABLE)
    return False


def watch(suite: Suite, run_id: str) -> list[trace_pb2.TraceEvent]:
    """The stored trace of a run, once it has ended."""
    with suite.channel("orchestrator") as channel:
        request = pb2.WatchRunRequest(run_id=run_id)
        replies = pb2_grpc.OrchestratorServiceStub(channel).WatchRun(request, timeout=60)
        return [reply.event for reply in replies if reply.event.sequence]


def test_a_killed_judge_costs_no_run_when_it_comes_back(slow_model: ModelSuite) -> None:
    suite = slow_model.suite
    with suite.channel("orchestrator") as channel:
        running = InFlight(ask(channel, slow_model.collection))
        until_the_model_is_asked(slow_model)
        suite.signal("judge", signal.SIGKILL)
        try:
            assert suite.exit_code("judge") == -signal.SIGKILL
            assert running.code is None, "the run waits for the judge"
        finally:
            suite.exit_code("judge")
            suite.start_again("judge")
        assert running.ended(40) is grpc.StatusCode.OK
    finished = running.replies[-1].event.run_finished
    assert finished.outcome == trace_pb2.OUTCOME_ANSWERED
    graded = [reply.event.passage_graded for reply in running.replies if reply.event.HasField("passage_graded")]
    assert graded
    assert not any(item.HasField("error") for item in graded), "a service that is away is no finding about a passage"


@pytest.mark.usefixtures("hasty")
def test_without_the_retriever_a_question_fails_and_works_again_with_it(model_suite: ModelSuite) -> None:
    suite = model_suite.suite
    command = ("ask", QUESTION, "--collection", model_suite.collection)
    suite.signal("retriever", signal.SIGKILL)
    assert suite.exit_code("retriever") == -signal.SIGKILL
    try:
        done = suite.errata(*command)
        assert done.code == 1
        assert "FAILED" in done.out
        assert [line.strip() for line in done.out.splitlines() if "can't be reached" in line] == [
            "! The retriever can't be reached"
        ]
        assert "Traceback" not in done.out + done.err
        machine = suite.errata(*command, "--json")
        assert machine.code == 1
        error = json.loads(machine.out.splitlines()[-1])["run_finished"]["error"]
        assert (error["reason"], error["metadata"]["service"]) == ("ERROR_REASON_SERVICE_UNAVAILABLE", "retriever")
        listed = suite.errata("documents", "--collection", model_suite.collection)
        assert listed.code == 1
        target = suite.target("retriever")
        sentence = f"The retriever can't be reached at {target}. Is the suite up? Start it with: errata up"
        assert listed.complaint == f"errata: {sentence}"
    finally:
        suite.start_again("retriever")
    # What was acknowledged before the kill is still there.
    done = suite.errata(*command)
    assert done.code == 0, done.out + done.err
    assert "30 days" in done.out


@pytest.mark.usefixtures("hasty")
def test_a_run_that_is_not_done_within_the_grace_goes_on_after_the_restart(slow_model: ModelSuite) -> None:
    suite = slow_model.suite
    with suite.channel("orchestrator") as channel:
        running = InFlight(ask(channel, slow_model.collection))
        until_the_model_is_asked(slow_model)
        suite.signal("orchestrator", signal.SIGTERM)
        try:
            assert running.ended() is grpc.StatusCode.UNAVAILABLE
            assert suite.exit_code("orchestrator") == 0
        finally:
            suite.exit_code("orchestrator", 40)
            suite.start_again("orchestrator")
    # The caller is told where the run is: elsewhere. It was neither cancelled nor failed.
    assert running.reason == "DRAINING"
    seen = [reply.event for reply in running.replies if reply.event.sequence]
    assert not any(event.HasField("run_finished") for event in seen)
    events = watch(suite, seen[0].run_id)
    assert events[: len(seen)] == seen
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.WhichOneof("payload") for event in events].count("run_resumed") == 1
    assert events[-1].run_finished.outcome == trace_pb2.OUTCOME_ANSWERED
