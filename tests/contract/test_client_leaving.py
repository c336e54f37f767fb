"""Deadlines of runs, and leaving them early: what becomes of the call and of the run."""

import asyncio
import contextlib
import gc
import time
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2

from errata_client import ErrataClient
from errata_client.following import LEAVE_SECONDS
from errata_kit.errors import DeadlineExceeded, Draining, RunCancelled
from tests.contract.client_orchestrator import (
    QUICK,
    RUN_ID,
    Drop,
    Held,
    Orchestrator,
    client_of,
    event,
    read,
    served,
    soon,
)


@pytest.mark.parametrize("at", [0, 1, 3])
@pytest.mark.parametrize("keep_going", [False, True])
async def test_a_deadline_ends_the_run_unless_it_is_to_go_on(at: int, keep_going: bool) -> None:
    orchestrator = Orchestrator(before=Held(at))
    async with client_of(orchestrator) as errata:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await errata.answer("How long?", timeout=0.5, keep_going=keep_going)
        assert 0.4 < time.monotonic() - began < 0.5 + LEAVE_SECONDS
    # Without an event nobody knows the run.
    assert orchestrator.cancelled == ([RUN_ID] if at and not keep_going else [])


async def leave_by_break(errata: ErrataClient) -> None:
    async for item in errata.ask("How long?"):
        if item.sequence == 2:
            break


async def leave_by_closing(errata: ErrataClient) -> None:
    async with errata.ask("How long?") as events:
        await anext(events)


async def leave_by_error(errata: ErrataClient) -> None:
    with contextlib.suppress(KeyError):
        async for _ in errata.ask("How long?"):
            raise KeyError


async def leave_by_cancelling(errata: ErrataClient) -> None:
    task = asyncio.create_task(read(errata.ask("How long?")))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


async def leave_by_timeout(errata: ErrataClient) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await errata.answer("How long?")


@pytest.mark.parametrize(
    "leave",
    [leave_by_break, leave_by_closing, leave_by_error, leave_by_cancelling, leave_by_timeout],
    ids=lambda leave: leave.__name__,
)
async def test_leaving_early_cancels_the_call_and_the_run(leave: Any) -> None:
    held = Held(3)
    orchestrator = Orchestrator(before=held)
    async with client_of(orchestrator) as errata:
        await leave(errata)
        gc.collect()
        await soon(lambda: orchestrator.cancelled)
    assert orchestrator.cancelled == [RUN_ID]


async def test_leaving_gives_the_call_up_where_the_run_goes_on() -> None:
    held = Held(3)
    orchestrator = Orchestrator(before=held)
    async with client_of(orchestrator) as errata:
        for events in (errata.ask("How long?", keep_going=True), errata.watch_run(RUN_ID)):
            held.reached.clear()
            async with events:
                await anext(events)
                await held.reached.wait()
        await soon(lambda: orchestrator.given_up == 2)
    assert orchestrator.cancelled == []


async def test_closing_the_client_leaves_its_runs() -> None:
    orchestrator = Orchestrator(before=Held(3))
    async with served(orchestrator) as running:
        async with ErrataClient(running.target, retries=QUICK) as errata:
            events, other = errata.ask("How long?"), errata.ask("How long?", keep_going=True)
            reading = asyncio.create_task(read(events))
            await anext(other)
            await soon(lambda: events.sequence == 2)
        with pytest.raises(RunCancelled, match="closed"):
            await reading
        with pytest.raises(RunCancelled, match="closed"):
            await read(other)
        with pytest.raises(RuntimeError, match="outside"):
            errata.ask("How long?")
    assert orchestrator.cancelled == [RUN_ID]


async def test_a_run_that_is_left_before_its_first_event_is_cancelled_by_its_name() -> None:
    held = Held(0)
    orchestrator = Orchestrator(before=held)
    async with client_of(orchestrator) as errata:
        task = asyncio.create_task(read(errata.ask("How long?")))
        await held.reached.wait()
        task.cancel()
        await asyncio.sleep(0.05)
        held.free.set()
        await asyncio.wait([task])
    assert task.cancelled()
    assert orchestrator.cancelled == [RUN_ID]


async def test_leaving_during_an_outage_cancels_the_run_once_it_is_over() -> None:
    orchestrator = Orchestrator(drops=[Drop(2, grpc.StatusCode.UNAVAILABLE)], before=Held(3))
    async with client_of(orchestrator) as errata:
        events = errata.ask("How long?")
        await anext(events)
        # As many as the channel itself tries.
        orchestrator.refusals = [Draining("Not now")] * 4
        await events.aclose()
    assert orchestrator.cancelled == [RUN_ID]


async def test_a_run_that_has_ended_and_one_that_is_to_go_on_are_not_cancelled() -> None:
    orchestrator = Orchestrator()
    async with client_of(orchestrator) as errata:
        await read(errata.ask("How long?"))
        async with errata.ask("How long?", keep_going=True) as events:
            await anext(events)
        request = pb2.AskRequest(question="How long?", on_disconnect=pb2.ON_DISCONNECT_CONTINUE)
        async with errata.ask(request) as events:
            await anext(events)
        async with errata.watch_run(RUN_ID) as events:
            await anext(events)
    assert orchestrator.cancelled == []


async def test_a_run_that_waits_for_a_person_is_left_as_it_is() -> None:
    waiting = [event(1, run_started={}), event(2, approval_requested={"approval": 1}), event(3, approval_decided={})]
    orchestrator = Orchestrator(trace=waiting, before=Held(2))
    async with client_of(orchestrator) as errata:
        async with errata.compose("Write.", require_approval=True) as events:
            async for item in events:
                if item.HasField("approval_requested"):
                    break
        assert orchestrator.asked[0].require_approval
        assert orchestrator.cancelled == []
        orchestrator.before = Held(3)
        async with errata.compose("Write.", require_approval=True) as events:
            for _ in range(3):
                await anext(events)
    assert orchestrator.cancelled == [RUN_ID]
