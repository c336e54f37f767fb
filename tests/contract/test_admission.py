"""Who is let in when there is no room, over the wire: runs at once, calls a minute, tokens a day, and health always."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_kit.errors import ModelUnavailable
from tests.contract.test_access import waiting
from tests.harness.services import (
    Below,
    Failure,
    FakeGenerator,
    FakeJudge,
    Served,
    failure_of,
    fakes,
    health_of,
    orchestrator,
    read_failure,
    scripted,
)
from tests.harness.traces import Hook, ask, cancel_run, compose, decide, get_run, listed, outcome, trace_of, until, watch

RUNS = "concurrent_runs"


def held() -> tuple[Hook, Below]:
    """Services whose generator waits."""
    hook = Hook()
    return hook, Below(generator=FakeGenerator(before=hook))


async def began(served: Served, **fields: Any) -> tuple[str, Any]:
    """The id of a run that has started, and its stream."""
    call = ask(served, **fields)
    return (await call.read()).event.run_id, call


def limited(refused: Failure, limit: str, scope: str) -> None:
    """The failure is that this limit is used up, and says when to try again."""
    assert (refused.code, refused.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "RATE_LIMITED")
    assert refused.metadata == {"limit": limit, "scope": scope} and refused.received == ()
    assert refused.retry_after is not None and refused.retry_after > 0
    assert refused.trailers["grpc-retry-pushback-ms"] == str(max(1, int(refused.retry_after * 1000)))


async def in_flight(served: Served, count: int) -> None:
    """Wait until the orchestrator works on so many runs."""
    gauge = served.service.metrics.runs_in_flight
    async with asyncio.timeout(10):
        while sum(sample.value for sample in next(iter(gauge.collect())).samples) != count:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


# --- runs at once -----------------------------------------------------------------------------------------------------


async def test_of_fifty_asks_at_once_exactly_three_are_let_in() -> None:
    hook, below = held()
    async with scripted(below, max_runs=3) as served:
        ends = await asyncio.gather(*(first_word(ask(served)) for _ in range(50)))
        refused = [end for end in ends if isinstance(end, Failure)]
        assert len(refused) == 47
        for failure in refused:
            limited(failure, RUNS, "all")
        assert len((await listed(served)).runs) == 3
        counted = served.service.metrics.rejected_calls.labels(RUNS, "all")._value.get()
        assert counted == 47
        hook.release.set()
        for call in ends:
            if not isinstance(call, Failure):
                assert (await until(call, "run_finished"))[-1].run_finished.answer.text
        await in_flight(served, 0)
        assert len([end for end in await asyncio.gather(*(trace_of(ask(served)) for _ in range(3))) if end]) == 3


async def first_word(call: Any) -> Any:
    """The call once it has said something, or its failure."""
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return read_failure(error)
    return call


async def test_a_refusal_takes_no_time_while_all_is_full() -> None:
    _, below = held()
    async with scripted(below, max_runs=1) as served:
        _, call = await began(served)
        took = []
        for _ in range(30):
            started = time.monotonic()
            limited(await failure_of(ask(served)), RUNS, "all")
            took.append(time.monotonic() - started)
        assert sorted(took)[len(took) // 2] < 0.1
        call.cancel()


async def test_the_place_comes_back_when_the_run_ends() -> None:
    hook, below = held()
    async with scripted(below, max_runs=1) as served:
        _, call = await began(served)
        limited(await failure_of(ask(served)), RUNS, "all")
        hook.release.set()
        await until(call, "run_finished")
        await in_flight(served, 0)
        assert outcome(await trace_of(ask(served))) == "ANSWERED"


async def test_the_place_comes_back_when_the_run_is_cancelled() -> None:
    hook, below = held()
    async with scripted(below, max_runs=1) as served:
        for leave in (False, True, False):
            run_id, call = await began(served)
            limited(await failure_of(compose(served)), RUNS, "all")
            if leave:
                call.cancel()
            else:
                await cancel_run(served, run_id)
                call.cancel()
            await in_flight(served, 0)
        hook.release.set()
        assert outcome(await trace_of(ask(served))) == "ANSWERED"


async def test_the_place_comes_back_when_the_run_fails() -> None:
    below = Below(judge=FakeJudge(answers=[ModelUnavailable()]))
    async with scripted(below, max_runs=1) as served:
        for _ in range(3):
            assert (await failure_of(ask(served))).reason == "MODEL_UNAVAILABLE"
            await in_flight(served, 0)


async def test_the_place_comes_back_when_the_call_is_not_valid_or_repeats_another() -> None:
    async with scripted(Below(), max_runs=1) as served:
        first = await trace_of(ask(served, request_id="one"))
        await in_flight(served, 0)
        for _ in range(3):
            assert (await failure_of(ask(served, question=""))).reason == "INVALID_FIELD"
            assert (await failure_of(compose(served, max_cost_micros=0))).reason == "INVALID_FIELD"
            assert (await failure_of(ask(served, question="Another?", request_id="one"))).reason == "REQUEST_ID_REUSED"
            assert await trace_of(ask(served, request_id="one")) == [event for event in first if event.sequence]
        assert outcome(await trace_of(ask(served))) == "ANSWERED"


async def test_a_run_that_waits_for_a_person_takes_no_place() -> None:
    async with scripted(Below(), max_runs=1) as served:
        call = compose(served, require_approval=True)
        run_id = await waiting(call)
        await in_flight(served, 0)
        assert outcome(await trace_of(ask(served))) == "ANSWERED"
        await in_flight(served, 0)
        await decide(served, run_id, "APPROVE")
        assert outcome(await watch(served, run_id)) == "APPROVED"


async def test_a_decision_is_never_refused() -> None:
    hook, below = held()
    async with scripted(below, max_runs=1) as served:
        hook.release.set()
        run_id = await waiting(compose(served, require_approval=True))
        await in_flight(served, 0)
        hook.release.clear()
        _, call = await began(served)
        await decide(served, run_id, "APPROVE")
        assert outcome(await watch(served, run_id)) == "APPROVED"
        limited(await failure_of(ask(served)), RUNS, "all")
        call.cancel()


async def test_each_principal_has_the_own_limit() -> None:
    _, below = held()
    async with scripted(below, max_runs=3, principal_max_runs=2) as served:
        calls = [(await began(served, principal="ann"))[1] for _ in range(2)]
        limited(await failure_of(ask(served, principal="ann")), RUNS, "principal")
        calls.append((await began(served, principal="bob"))[1])
        limited(await failure_of(ask(served, principal="bob")), RUNS, "all")
        # While nobody has a place, it is told before it is known who asks.
        limited(await failure_of(ask(served, principal="ann")), RUNS, "all")
        for call in calls:
            call.cancel()


async def test_while_all_is_full_everything_else_still_answers() -> None:
    _, below = held()
    async with scripted(below, max_runs=1, health_port=0) as served:
        run_id, call = await began(served)
        assert (await get_run(served, run_id)).run.run_id == run_id
        assert [run.run_id for run in (await listed(served)).runs] == [run_id]
        watching = served.stub.WatchRun(pb2.WatchRunRequest(run_id=run_id), timeout=10)
        assert (await watching.read()).event.run_id == run_id
        watching.cancel()
        assert await health_of(served.channel) == 1
        assert (await cancel_run(served, run_id)).outcome == trace_pb2.OUTCOME_CANCELLED
        call.cancel()


async def test_who_comes_back_to_a_run_takes_no_further_place() -> None:
    hook, below = held()
    async with scripted(below, max_runs=2) as served:
        _, call = await began(served, request_id="one")
        await asyncio.wait_for(hook.reached.wait(), 5)
        _, again = await began(served, request_id="one")
        _, other = await began(served)
        for one in (call, again, other):
            one.cancel()


async def test_a_run_is_taken_up_however_full_it_is(tmp_path: Path) -> None:
    hook, below = held()
    own: dict[str, Any] = {"data_dir": tmp_path, "lease_seconds": 0.6, "max_runs": 1, "principal_max_runs": 1}
    async with fakes(below) as targets, orchestrator(**targets, **own) as second:
        async with orchestrator(**targets, **own) as first:
            run_id, call = await began(first, on_disconnect="ON_DISCONNECT_CONTINUE")
            _, busy = await began(second)
            limited(await failure_of(ask(second)), RUNS, "all")
        await in_flight(second, 2)
        hook.release.set()
        assert outcome(await watch(second, run_id)) == "ANSWERED"
        await until(busy, "run_finished")
        assert (await get_run(second, run_id)).run.takeovers == 1
        call.cancel()


# --- calls a minute ---------------------------------------------------------------------------------------------------


async def test_calls_a_minute_are_counted_for_each_principal_and_in_all() -> None:
    async with scripted(Below(), requests_per_minute=8, principal_requests_per_minute=5) as served:
        for _ in range(5):
            await said(served, "ann")
        limited(await failure_of(said(served, "ann")), "requests_per_minute", "principal")
        for _ in range(3):
            await said(served, "bob")
        refused = await failure_of(said(served, "bob"))
        limited(refused, "requests_per_minute", "all")
        assert refused.retry_after is not None and refused.retry_after <= 60 / 8
        limited(await failure_of(said(served, "ann")), "requests_per_minute", "principal")


def said(served: Served, principal: str) -> Any:
    return served.stub.ListRuns(pb2.ListRunsRequest(), metadata=(("errata-principal", principal),), timeout=10)


async def test_health_checks_and_refused_calls_cost_nothing_and_are_never_refused() -> None:
    settings = {"requests_per_minute": 2, "max_concurrent_calls": 1, "max_runs": 1, "health_port": 0}
    hook, below = held()
    async with scripted(below, **settings) as served:
        _, call = await began(served)
        port = served.running.health_port
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as probe:
            for channel in (served.channel, probe):
                told = await asyncio.gather(*(health_of(channel, name) for name in ("", "liveness") * 30))
                assert set(told) == {1}
            assert (await failure_of(said(served, "ann"))).reason == "OVERLOADED"
            hook.release.set()
            await until(call, "run_finished")
            async with asyncio.timeout(5):
                while served.running.gate._in_flight:  # noqa: ASYNC110 - nobody is told
                    await asyncio.sleep(0.01)
            # One of two is used; what was OVERLOADED does not count.
            await said(served, "ann")
            limited(await failure_of(said(served, "ann")), "requests_per_minute", "all")
            assert await health_of(probe) == await health_of(served.channel) == 1


# --- tokens a day -----------------------------------------------------------------------------------------------------


def paid() -> Below:
    """Services whose every call costs 110 tokens: with two passages, an answer costs 440."""
    return Below(judge=FakeJudge(paid=True), generator=FakeGenerator(paid=True))


TOKENS = "tokens_per_day"


@pytest.mark.parametrize(("limit", "scope"), [("tokens_per_day", "all"), ("principal_tokens_per_day", "principal")])
async def test_once_the_days_tokens_are_used_no_run_starts(limit: str, scope: str) -> None:
    async with scripted(paid(), **{limit: 500}) as served:
        for _ in range(2):
            # The second one starts with room for 60 tokens, and is not broken off.
            events = await trace_of(ask(served, principal="ann"))
            usage = events[-1].run_finished.usage
            assert sum(call.input_tokens + call.output_tokens for call in usage.model_calls) == 440
        refused = await failure_of(ask(served, principal="ann"))
        limited(refused, TOKENS, scope)
        assert refused.retry_after is not None and refused.retry_after <= 86_400
        limited(await failure_of(compose(served, principal="ann")), TOKENS, scope)
        assert len((await listed(served)).runs) == 2
        if scope == "principal":
            assert outcome(await trace_of(ask(served, principal="bob"))) == "ANSWERED"
        else:
            limited(await failure_of(ask(served, principal="bob")), TOKENS, "all")


async def test_what_one_replica_spends_the_others_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.runs.admission._RECOUNT_SECONDS", 0.05)
    own: dict[str, Any] = {"data_dir": tmp_path, "principal_tokens_per_day": 400}
    async with fakes(paid()) as targets, orchestrator(**targets, **own) as first, orchestrator(**targets, **own) as second:
        assert outcome(await trace_of(ask(first, principal="ann"))) == "ANSWERED"
        limited(await eventually(lambda: ask(second, question="", principal="ann")), TOKENS, "principal")
        assert outcome(await trace_of(ask(second, principal="bob"))) == "ANSWERED"
        # A replica that starts later knows it, too.
        async with orchestrator(**targets, **own) as third:
            limited(await eventually(lambda: ask(third, question="", principal="ann")), TOKENS, "principal")


async def eventually(call: Callable[[], Any]) -> Failure:
    """The first failure that is not about the fields of the request."""
    async with asyncio.timeout(5):
        while (refused := await failure_of(call())).reason == "INVALID_FIELD":  # noqa: ASYNC110 - the same
            await asyncio.sleep(0.02)
    return refused
