"""The example of the client, while the orchestrator below it is restarted, or killed and started again."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc

from errata_cli.stack import StackPlan
from tests.harness.model_responder import respond
from tests.harness.model_rules import Rule
from tests.harness.model_server import with_latency
from tests.harness.suite import Suite, end, environment
from tests.system.conftest import ModelSuite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("models")]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ask_through_a_restart.py"
QUESTION = "How long is a backup kept?"
# Time enough to send a signal between two steps.
MODEL_SECONDS = 0.7
# A drain that finishes no run, and a lease that is soon over.
HASTY = {"ERRATA_DRAIN_GRACE_SECONDS": "0.1", "ERRATA_DRAIN_PAUSE_SECONDS": "0.1", "ORCHESTRATOR_LEASE_SECONDS": "1"}


@pytest.fixture(scope="module")
def hasty(model_suite: ModelSuite) -> Iterator[ModelSuite]:
    suite = model_suite.suite
    usual = suite.stack.plan

    async def change(*rules: Rule) -> None:
        model_suite.server.rules.replace(rules)

    model_suite.background.run(change(Rule(with_latency(respond, MODEL_SECONDS), name="slow")))
    with_plan(suite, replace(usual, variables={**usual.variables, **HASTY}))
    yield model_suite
    with_plan(suite, usual)
    model_suite.background.run(change())


def with_plan(suite: Suite, plan: StackPlan) -> None:
    suite.signal("orchestrator", signal.SIGTERM)
    assert suite.exit_code("orchestrator") == 0
    suite.stack.plan = plan
    suite.start_again("orchestrator")


def example(models: ModelSuite) -> "subprocess.Popen[str]":
    here = EXAMPLE.parents[1]
    command = [str(EXAMPLE), QUESTION, "--collection", models.collection, "--target", models.suite.target("orchestrator")]
    return subprocess.Popen(
        [sys.executable, *command, "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"PYTHONPATH": os.pathsep.join([str(here), str(here / "gen")]), "ERRATA_API_KEY": None}),
    )


def rest_of(running: "subprocess.Popen[str]", seconds: float) -> tuple[str, str]:
    """What a process still prints until it ends. communicate() would lose what has been read ahead behind the last line."""
    assert running.stdout is not None and running.stderr is not None
    late = threading.Timer(seconds, running.kill)
    late.start()
    try:
        with running.stdout, running.stderr:
            out, err = running.stdout.read(), running.stderr.read()
        running.wait()
    finally:
        late.cancel()
    return out, err


def stored_trace(suite: Suite) -> list[str]:
    """The newest run's trace as the example prints it."""
    with suite.channel("orchestrator") as channel:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        newest = stub.ListRuns(pb2.ListRunsRequest(page_size=1), timeout=10).runs[0]
        described = stub.GetRun(pb2.GetRunRequest(run_id=newest.run_id), timeout=10)
    return [f"{event.sequence} {event.WhichOneof('payload')}" for event in described.trace]


@pytest.mark.parametrize("step", ["passage_graded", "answer_drafted"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: str(number.name))
def test_the_example_survives_a_restart(hasty: ModelSuite, number: signal.Signals, step: str) -> None:
    running = example(hasty)
    try:
        assert running.stdout is not None
        printed = []
        for line in running.stdout:
            printed.append(line.rstrip())
            if line.endswith(f" {step}\n"):
                break
        hasty.suite.signal("orchestrator", number)
        hasty.suite.exit_code("orchestrator")
        hasty.suite.start_again("orchestrator")
        out, err = rest_of(running, 40)
    finally:
        end(running)
    printed += out.splitlines()
    events = [line for line in printed if re.fullmatch(r"\d+ \w+", line)]
    assert running.returncode == 0, err
    assert "30 days" in printed[-1]
    assert [line.split()[0] for line in events] == [str(sequence) for sequence in range(1, len(events) + 1)]
    assert events == stored_trace(hasty.suite)
    assert any(line.endswith(" run_resumed") for line in events)
    assert err == "the connection was lost, and is back\n"
