"""Watching, describing, listing and keeping runs of the orchestrator, over the wire."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from google.protobuf.timestamp_pb2 import Timestamp

from errata_kit.errors import (
    ModelUnavailable,
)
from tests.harness.services import (
    CALL_SECONDS,
    Below,
    FakeGenerator,
    FakeJudge,
    failure_of,
    faithful,
    scripted,
)
from tests.harness.traces import (
    QUESTION,
    Hook,
    ask,
    compose,
    end,
    failed_trace,
    get_run,
    listed,
    outcome,
    trace_of,
    until,
    watch,
)

# --- watching ---------------------------------------------------------------------------------------------------------


async def test_a_run_that_has_ended_is_replayed_from_any_sequence() -> None:
    async with scripted(Below()) as served:
        stored = [event for event in await trace_of(ask(served)) if event.sequence]
        run_id = stored[0].run_id
        for after in range(len(stored) + 2):
            assert await watch(served, run_id, after) == stored[after:]
        assert await watch(served, run_id.upper()) == stored


async def test_watchers_join_at_any_sequence_and_go_on_live() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        asking = asyncio.create_task(trace_of(ask(served)))
        await asyncio.wait_for(hook.reached.wait(), 5)
        [run] = (await served.stub.ListRuns(pb2.ListRunsRequest())).runs
        watching = [asyncio.create_task(watch(served, run.run_id, after)) for after in range(5)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in watching)
        hook.release.set()
        events = await asking
        for after, task in enumerate(watching):
            seen = await task
            assert [event for event in seen if event.sequence] == [event for event in events if event.sequence > after]
            assert [event.answer_delta.text for event in seen if not event.sequence] == [
                event.answer_delta.text for event in events if not event.sequence
            ]


async def test_a_failed_run_ends_its_watchers_well() -> None:
    async with scripted(Below(judge=FakeJudge(answers=[ModelUnavailable()]))) as served:
        events, _ = await failed_trace(ask(served))
        assert outcome(await watch(served, events[0].run_id)) == "FAILED"


async def test_a_watcher_that_leaves_does_not_end_the_run() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        asking = asyncio.create_task(trace_of(ask(served)))
        await asyncio.wait_for(hook.reached.wait(), 5)
        [run] = (await served.stub.ListRuns(pb2.ListRunsRequest())).runs
        call = served.stub.WatchRun(pb2.WatchRunRequest(run_id=run.run_id))
        await call.read()
        call.cancel()
        hook.release.set()
        assert outcome(await asking) == "ANSWERED"


async def test_a_slow_watcher_does_not_slow_the_run() -> None:
    hook = Hook()
    text = " ".join(f"word-{number:04}-{'x' * 2000}" for number in range(20)) + " [1]"
    below = Below(generator=FakeGenerator(answer=text, before=hook), judge=FakeJudge(answers=[faithful("word-0000")]))
    async with scripted(below) as served:
        asking = asyncio.create_task(trace_of(ask(served)))
        await asyncio.wait_for(hook.reached.wait(), 5)
        [run] = (await served.stub.ListRuns(pb2.ListRunsRequest())).runs
        slow = served.stub.WatchRun(pb2.WatchRunRequest(run_id=run.run_id), timeout=CALL_SECONDS)
        first = await slow.read()
        started = time.monotonic()
        hook.release.set()
        events = await asyncio.wait_for(asking, 5)
        assert time.monotonic() - started < 3
        # It reads on only now, and misses no stored event.
        rest = [first]
        while (reply := await slow.read()) is not grpc.aio.EOF:
            rest.append(reply)
    stored = [event for event in events if event.sequence]
    assert [reply.event for reply in rest if reply.event.sequence] == stored


# --- runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GetRun", "CancelRun", "WatchRun"])
async def test_an_unknown_run_is_not_found(method: str) -> None:
    run_id = "01890000-0000-7000-8000-000000000000"
    async with scripted(Below()) as served:
        failure = await failure_of(getattr(served.stub, method)(getattr(pb2, f"{method}Request")(run_id=run_id), timeout=5))
    assert (failure.code, failure.reason) == (grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND")
    assert failure.metadata == {"run_id": run_id} and failure.resource == ("run", run_id)


async def test_a_run_is_described_while_it_runs_and_after() -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook))) as served:
        asking = asyncio.create_task(trace_of(ask(served, collection="notes")))
        await asyncio.wait_for(hook.reached.wait(), 5)
        [only] = (await served.stub.ListRuns(pb2.ListRunsRequest())).runs
        during = await get_run(served, only.run_id)
        hook.release.set()
        events = await asking
        after = await get_run(served, only.run_id)
    assert (
        during.run.state == pb2.RUN_STATE_RUNNING and not during.HasField("result") and not during.run.HasField("finish_time")
    )
    assert (during.run.outcome, during.run.last_sequence) == (trace_pb2.OUTCOME_UNSPECIFIED, 4)
    assert after.result == end(events) and after.run.last_sequence == events[-1].sequence
    assert (after.run.workflow, after.run.collection, after.run.question) == ("answer", "notes", QUESTION)
    assert after.run.create_time == during.run.create_time and after.run.finish_time == events[-1].create_time


async def test_runs_are_listed_newest_first_in_pages_and_by_filter() -> None:
    below = Below(judge=FakeJudge(answers=[faithful(), ModelUnavailable(), faithful(), faithful(), faithful()]))
    ids: list[str] = []
    async with scripted(below) as served:
        for _ in range(5):
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for reply in ask(served):
                    if reply.event.sequence == 1:
                        ids.append(reply.event.run_id)
        newest = ids[::-1]
        assert ids == sorted(ids)
        first = await listed(served, page_size=2)
        second = await listed(served, page_size=2, page_token=first.next_page_token)
        third = await listed(served, page_size=2, page_token=second.next_page_token)
        assert [[run.run_id for run in page.runs] for page in (first, second, third)] == [newest[:2], newest[2:4], newest[4:]]
        assert third.next_page_token == ""
        failed = await listed(served, outcome="OUTCOME_FAILED")
        assert [run.run_id for run in failed.runs] == [ids[1]]
        assert not (await listed(served, state="RUN_STATE_RUNNING")).runs
        assert len((await listed(served, state="RUN_STATE_FINISHED", page_size=1000)).runs) == 5
        assert not (await listed(served, state="RUN_STATE_FINISHED", page_size=5)).next_page_token
        for state, ended in (("RUN_STATE_FINISHED", None), (None, "OUTCOME_FAILED")):
            request = pb2.ListRunsRequest(page_token=first.next_page_token, state=state, outcome=ended)
            failure = await failure_of(served.stub.ListRuns(request))
            assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["page_token"]


async def test_runs_are_listed_by_workflow_state_principal_and_time() -> None:
    hook = Hook()
    below = Below()
    async with scripted(below) as served:
        first = (await trace_of(ask(served, principal="ada")))[0].run_id
        second = (await trace_of(compose(served, principal="ada")))[0].run_id
        waiting = compose(served, principal="grace", require_approval=True)
        third = (await until(waiting, "approval_requested"))[0].run_id
        below.retriever.before = hook
        running = ask(served)
        fourth = (await until(running, "run_started"))[0].run_id

        async def ids(**fields: Any) -> list[str]:
            return [run.run_id for run in (await listed(served, **fields)).runs]

        assert await ids() == [fourth, third, second, first]
        assert await ids(workflow="answer") == [fourth, first] and await ids(workflow="nothing") == []
        assert await ids(state="RUN_STATE_WAITING") == [third] and await ids(state="RUN_STATE_RUNNING") == [fourth]
        assert await ids(principal="ada") == [second, first] and await ids(principal="ad") == []
        assert await ids(principal="ada", workflow="compose", outcome="OUTCOME_APPROVED") == [second]
        # From the first moment on, up to the last one without it.
        moments = {run.run_id: run.create_time for run in (await listed(served)).runs}
        assert await ids(create_time_from=moments[second]) == [fourth, third, second]
        assert await ids(create_time_before=moments[third]) == [second, first]
        assert await ids(create_time_from=moments[second], create_time_before=moments[third]) == [second]
        hook.release.set()
        waiting.cancel()
        assert outcome(await until(running, "run_finished")) == "ANSWERED"


async def test_a_page_token_is_bound_to_its_query() -> None:
    others: list[dict[str, Any]] = [
        {"workflow": "compose"},
        {"principal": "ada"},
        {"state": "RUN_STATE_FINISHED"},
        {"outcome": "OUTCOME_ANSWERED"},
        {"create_time_from": Timestamp(seconds=1)},
        {"create_time_before": Timestamp(seconds=2**33)},
    ]
    async with scripted(Below()) as served:
        await asyncio.gather(*(trace_of(ask(served)) for _ in range(2)))
        token = (await listed(served, page_size=1)).next_page_token
        # Another size of the pages is no other query.
        assert len((await listed(served, page_size=7, page_token=token)).runs) == 1
        for other in others:
            failure = await failure_of(served.stub.ListRuns(pb2.ListRunsRequest(page_token=token, **other)))
            assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == ["page_token"], other


async def test_many_runs_at_once_keep_their_traces_apart() -> None:
    async with scripted(Below()) as served:
        traces = await asyncio.gather(*(trace_of(ask(served, question=f"Question {number}?")) for number in range(12)))
    assert len({events[0].run_id for events in traces}) == 12
    assert [events[0].run_started.question for events in traces] == [f"Question {number}?" for number in range(12)]
