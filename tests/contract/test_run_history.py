"""What the orchestrator keeps about its runs, over the wire: grades, calls, costs and prompts, and for how long."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import pytest
from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.usage.v1 import usage_pb2

from errata_kit.errors import (
    DeadlineExceeded,
    ErrataError,
    ModelOutputInvalid,
    ModelRefused,
    Reason,
)
from errata_kit.usage import ModelCall
from tests.harness.scripted import model_call
from tests.harness.services import (
    Below,
    FakeGenerator,
    FakeJudge,
    Served,
    failure_of,
    faithful,
    scripted,
    unfaithful,
)
from tests.harness.traces import (
    Fails,
    Hook,
    ask,
    compose,
    decide,
    end,
    failed_trace,
    get_run,
    listed,
    outcome,
    trace_of,
    until,
    watch,
)

# --- what a run has found and cost ------------------------------------------------------------------------------------


async def test_a_run_shows_its_grades_calls_and_prompts() -> None:
    below = Below(
        judge=FakeJudge(scores={"p2": 0.3}, answers=[unfaithful(score=0.4), faithful()], paid=True),
        generator=FakeGenerator(paid=True),
    )
    async with scripted(below) as served:
        events = await trace_of(ask(served))
        run = await get_run(served, events[0].run_id)
        bare = await get_run(served, events[0].run_id, without_trace=True)
    assert list(run.trace) == [event for event in events if event.sequence] and not run.trace_truncated
    assert list(bare.trace) == [] and bare.result == run.result == end(events) and bare.evaluations == run.evaluations
    graded = [(item.kind, item.subject, item.iteration, round(item.score, 2), item.passed) for item in run.evaluations]
    assert graded == [
        ("passage", "p1", 1, 1.0, True),
        ("passage", "p2", 1, 0.3, False),
        ("answer", "", 0, 0.4, False),
        ("claim", "c1", 0, 1.0, True),
        ("claim", "c2", 0, 0.0, False),
        ("answer", "", 1, 1.0, True),
        ("claim", "c1", 1, 1.0, True),
    ]
    assert [item.verdict for item in run.evaluations if item.kind == "claim"] == ["SUPPORTED", "UNSUPPORTED", "SUPPORTED"]
    by_sequence = {event.sequence: event.WhichOneof("payload") for event in events}
    kinds = {"passage": "passage_graded", "answer": "answer_graded", "claim": "answer_graded"}
    assert all(by_sequence[item.sequence] == kinds[item.kind] for item in run.evaluations)
    operations = ["grade_passage", "grade_passage", "generate_answer", "grade_answer", "refine_answer", "grade_answer"]
    assert [call.operation for call in run.usage.model_calls] == operations
    assert run.usage == end(events).usage
    prompts = [(item.operation, item.version) for item in run.prompt_versions]
    assert prompts == [(name, "0123456789ab") for name in dict.fromkeys(operations)]
    totals = run.run.totals
    assert (totals.model_calls, totals.failed_calls, totals.input_tokens, totals.cached_input_tokens) == (6, 0, 600, 240)
    assert (totals.output_tokens, totals.cost_micros, list(totals.models)) == (60, 150, ["scripted-1"])
    assert (run.run.score, run.run.corrections, run.run.approved) == (1.0, 1, False)
    assert 0 <= run.run.elapsed.ToMilliseconds() - end(events).elapsed.ToMilliseconds() < 500


async def test_an_unknown_price_stays_unknown() -> None:
    class Unpriced(FakeGenerator):
        def usage(self, operation: str) -> usage_pb2.Usage:
            call = model_call(operation, estimated=True)
            call.ClearField("cost_micros")
            return usage_pb2.Usage(model_calls=[call])

    async with scripted(Below(judge=FakeJudge(paid=True), generator=Unpriced())) as served:
        events = await trace_of(ask(served))
        run = await get_run(served, events[0].run_id)
        [listed_run] = (await listed(served)).runs
    assert [call.HasField("cost_micros") for call in run.usage.model_calls] == [True, True, False, True]
    assert not run.run.totals.HasField("cost_micros") and run.run.totals.estimated
    assert listed_run == run.run


def failed(error: ErrataError, *calls: ModelCall) -> ErrataError:
    """The error with what was paid before it came."""
    error.model_calls = calls
    return error


PAID_IN_VAIN = ModelCall("scripted-1", "grade_answer", "0123456789ab", 200, 0, 7, cost_micros=31, error=Reason.MODEL_REFUSED)


@pytest.mark.parametrize("step", ["search", "grade_answer", "generate"])
async def test_the_calls_of_a_step_that_failed_are_on_the_account(step: str) -> None:
    error = failed(ModelRefused(), PAID_IN_VAIN, PAID_IN_VAIN)
    below = Below(judge=FakeJudge(paid=True))
    match step:
        case "search":
            below.retriever.before = Fails(lambda: error)
        case "grade_answer":
            below.judge.before_answer = Fails(lambda: error)
        case _:
            below.generator.before = Fails(lambda: error)
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
        run = await get_run(served, events[0].run_id)
    assert (outcome(events), failure.reason) == ("FAILED", "MODEL_REFUSED")
    calls = end(events).usage.model_calls
    assert [errors_pb2.ErrorReason.Name(call.error) for call in calls][-2:] == ["ERROR_REASON_MODEL_REFUSED"] * 2
    assert [(call.input_tokens, call.output_tokens, call.cost_micros) for call in calls][-2:] == [(200, 7, 31)] * 2
    assert run.usage == end(events).usage and run.run.totals.failed_calls == 2
    assert run.run.totals.model_calls == (2 if step == "search" else 4)


async def test_a_passage_that_failed_has_cost_something_too() -> None:
    below = Below(judge=FakeJudge(scores={"p1": ModelOutputInvalid()}, paid=True))
    async with scripted(below) as served:
        events = await trace_of(ask(served))
    assert [call.operation for call in end(events).usage.model_calls] == ["grade_passage", "grade_passage", "grade_answer"]


async def test_every_passage_that_ran_out_of_time_is_on_the_account() -> None:
    late = DeadlineExceeded()
    below = Below(judge=FakeJudge(scores={"p1": late, "p2": late}, paid=True))
    async with scripted(below) as served:
        events, failure = await failed_trace(ask(served))
    assert (outcome(events), failure.reason) == ("DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED")
    assert [call.operation for call in end(events).usage.model_calls] == ["grade_passage", "grade_passage"]


# --- how long runs are kept -------------------------------------------------------------------------------------------


async def gone(served: Served, run_id: str) -> bool:
    try:
        await get_run(served, run_id)
    except grpc.aio.AioRpcError as error:
        return error.code() is grpc.StatusCode.NOT_FOUND
    return False


async def soon(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await condition():  # noqa: ASYNC110 - the housekeeping tells nobody
            await asyncio.sleep(0.02)


async def test_runs_that_ended_long_enough_ago_are_deleted_and_others_are_not() -> None:
    hook = Hook()
    below = Below()
    async with scripted(below, run_retention_seconds=0.0, housekeeping_seconds=0.05) as served:
        ended = (await trace_of(ask(served)))[0].run_id
        waiting = (await until(compose(served, require_approval=True), "approval_requested"))[0].run_id
        below.retriever.before = hook
        running = asyncio.create_task(trace_of(ask(served)))
        await hook.reached.wait()
        await soon(lambda: gone(served, ended))
        assert [run.state for run in (await listed(served)).runs] == [pb2.RUN_STATE_RUNNING, pb2.RUN_STATE_WAITING]
        failure = await failure_of(served.stub.WatchRun(pb2.WatchRunRequest(run_id=ended)))
        assert failure.reason == "RUN_NOT_FOUND"
        hook.release.set()
        assert outcome(await running) == "ANSWERED"
        await decide(served, waiting, "APPROVE")
        await soon(lambda: gone(served, waiting))


async def test_of_an_old_trace_the_end_is_kept_with_grades_and_costs() -> None:
    below = Below(judge=FakeJudge(paid=True))
    async with scripted(below, event_retention_seconds=0.0, housekeeping_seconds=0.05) as served:
        events = await trace_of(ask(served))
        run_id = events[0].run_id

        async def pruned() -> bool:
            return len((await get_run(served, run_id)).trace) == 1

        await soon(pruned)
        run = await get_run(served, run_id)
        assert list(run.trace) == [events[-1]] and run.result == end(events) and not run.trace_truncated
        assert len(run.evaluations) == 4 and len(run.usage.model_calls) == 3
        assert await watch(served, run_id) == [events[-1]]


async def test_the_checkpoints_of_ended_runs_are_pruned_and_those_of_waiting_runs_are_not(tmp_path: Path) -> None:
    settings = {"data_dir": tmp_path, "checkpoint_retention_seconds": 0.0, "housekeeping_seconds": 0.05}

    def threads() -> set[str]:
        with contextlib.closing(sqlite3.connect(tmp_path / "checkpoints.sqlite3")) as connection:
            return {
                row[0] for row in connection.execute("SELECT thread_id FROM checkpoints UNION SELECT thread_id FROM writes")
            }

    async with scripted(Below(), **settings) as served:
        waiting = (await until(compose(served, require_approval=True), "approval_requested"))[0].run_id
        ended = (await trace_of(ask(served)))[0].run_id

        async def pruned() -> bool:
            return await asyncio.to_thread(threads) == {waiting}

        await soon(pruned)
        # The trace is another matter, and the run that waits goes on.
        assert len((await get_run(served, ended)).trace) == 8
        await decide(served, waiting, "APPROVE")
        assert outcome(await watch(served, waiting)) == "APPROVED"
