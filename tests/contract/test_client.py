"""The client over the wire: runs across lost connections, busy services, credentials, and how runs end."""

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.errors.v1 import errors_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_client import ApiKey, BearerToken, ErrataClient, Reason, Retries, Targets, Tls
from errata_client.following import LEAVE_SECONDS
from errata_kit.access.principals import Role
from errata_kit.errors import (
    DeadlineExceeded,
    Draining,
    ErrataError,
    NotAuthenticated,
    Overloaded,
    RateLimited,
    RunNotFound,
    ServiceUnavailable,
)
from tests.contract.client_orchestrator import (
    QUICK,
    RUN_ID,
    Cuttable,
    Drop,
    Held,
    How,
    Orchestrator,
    answer_trace,
    client_of,
    pairs,
    read,
    secure,
    served,
    stored,
)
from tests.harness.certificates import Authority, write
from tests.harness.secured import KeyRing

LOST: list[How] = [
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    Draining("The service is shutting down"),
    ServiceUnavailable("The database can't be reached"),
]
NAMES = ["unavailable", "cancelled", "draining", "database"]


# --- lost connections -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "how"), pairs(range(6), LOST), ids=[f"{name}-{at}" for at in range(6) for name in NAMES])
async def test_a_stream_that_drops_anywhere_gives_each_event_once_and_in_order(position: int, how: Any) -> None:
    orchestrator = Orchestrator(drops=[Drop(position, how)])
    async with client_of(orchestrator) as errata:
        events = errata.ask("How long is a backup kept?")
        seen = await read(events)
    assert stored(seen) == [1, 2, 3, 4]
    assert events.finished is not None
    assert events.finished.outcome == trace_pb2.OUTCOME_ANSWERED
    assert orchestrator.cancelled == []
    asks = [request for request in orchestrator.asked if isinstance(request, pb2.AskRequest)]
    assert {request.on_disconnect for request in asks} == {pb2.ON_DISCONNECT_CONTINUE}
    # However often the start was tried, it was the same one.
    assert len({request.request_id for request in asks}) == 1
    assert asks[0].request_id
    watched = [request.after_sequence for request in orchestrator.asked if isinstance(request, pb2.WatchRunRequest)]
    reached = {0: [], 1: [1], 2: [2], 3: [2], 4: [3], 5: []}[position]
    assert watched == reached
    assert events.reattached == len(reached)


@pytest.mark.parametrize("verified_only", [True, False])
async def test_who_wants_verified_text_only_still_does_when_the_connection_is_back(verified_only: bool) -> None:
    orchestrator = Orchestrator(drops=[Drop(2, grpc.StatusCode.UNAVAILABLE)])
    async with client_of(orchestrator) as errata:
        await read(errata.ask(pb2.AskRequest(question="How long?", verified_only=verified_only)))
    [watched] = [request for request in orchestrator.asked if isinstance(request, pb2.WatchRunRequest)]
    assert watched.verified_only is verified_only


@pytest.mark.parametrize("how", LOST, ids=NAMES)
async def test_streams_that_drop_again_and_again_come_to_their_end(how: Any) -> None:
    drops = [Drop(1, how), Drop(0, how), Drop(1, how), Drop(0, how), Drop(2, how)]
    async with client_of(Orchestrator(drops=drops)) as errata:
        assert stored(await read(errata.ask("How long?"))) == [1, 2, 3, 4]


@pytest.mark.parametrize("after", range(5))
async def test_a_watched_run_goes_on_behind_what_was_seen(after: int) -> None:
    orchestrator = Orchestrator(drops=[Drop(1, grpc.StatusCode.UNAVAILABLE)])
    async with client_of(orchestrator) as errata:
        events = errata.watch_run(RUN_ID, after=after)
        assert stored(await read(events)) == list(range(after + 1, 5))
        await events.aclose()
    assert orchestrator.cancelled == []


async def test_connections_that_are_cut_between_any_two_events_lose_nothing() -> None:
    orchestrator = Orchestrator()
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(orchestrator))
        relay = await stack.enter_async_context(Cuttable(running.target))
        errata = await stack.enter_async_context(ErrataClient(relay.target, retries=QUICK))
        seen = []
        async for item in errata.ask("How long?"):
            seen.append(item)
            # The next event is on its way, or behind the cut: both happen.
            relay.cut()
            await asyncio.sleep(0)
    assert stored(seen) == [1, 2, 3, 4]
    assert relay.accepted > 1


async def test_what_a_server_sends_twice_is_seen_once() -> None:
    drops = [Drop(2, grpc.StatusCode.UNAVAILABLE), Drop(4, grpc.StatusCode.UNAVAILABLE)]
    async with client_of(Orchestrator(drops=drops, forgets=True)) as errata:
        assert stored(await read(errata.ask("How long?"))) == [1, 2, 3, 4]


async def test_what_is_no_lost_connection_is_not_tried_again() -> None:
    orchestrator = Orchestrator(drops=[Drop(2, RunNotFound(RUN_ID))])
    async with client_of(orchestrator) as errata:
        events = errata.ask("How long?")
        with pytest.raises(ErrataError) as caught:
            await read(events)
    assert caught.value.why is Reason.RUN_NOT_FOUND
    assert caught.value.metadata["run_id"] == RUN_ID
    assert len([request for request in orchestrator.asked if not isinstance(request, pb2.CancelRunRequest)]) == 1


async def test_a_run_that_is_to_end_with_its_caller_is_not_taken_up_again() -> None:
    orchestrator = Orchestrator(drops=[Drop(2, grpc.StatusCode.UNAVAILABLE)])
    async with client_of(orchestrator) as errata:
        request = pb2.AskRequest(question="How long?", on_disconnect=pb2.ON_DISCONNECT_CANCEL)
        with pytest.raises(ServiceUnavailable):
            await read(errata.ask(request))
    assert orchestrator.asked[0].on_disconnect == pb2.ON_DISCONNECT_CANCEL
    assert not request.request_id, "the caller's own message is not written to"


async def test_an_orchestrator_out_of_reach_is_not_waited_for_until_the_deadline() -> None:
    async with served(Orchestrator()) as running:
        target = running.target
    async with ErrataClient(target, retries=Retries(start_seconds=0.3, jitter=0.0)) as errata:
        began = time.monotonic()
        with pytest.raises(ServiceUnavailable):
            await read(errata.ask("How long?"))
        assert time.monotonic() - began < 5


async def test_an_outage_ends_with_the_deadline() -> None:
    async with contextlib.AsyncExitStack() as stack:
        running = await stack.enter_async_context(served(Orchestrator(before=Held(1))))
        errata = await stack.enter_async_context(ErrataClient(running.target, retries=QUICK))
        events = errata.ask("How long?", timeout=1.0)
        await anext(events)
        await running.running.server.stop(0)
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await read(events)
        # Then it tries to cancel the run, for a while.
        assert time.monotonic() - began < 1.0 + LEAVE_SECONDS + 1


async def test_fifty_runs_at_once_do_not_mix() -> None:
    orchestrator = Orchestrator(own=True, drops=[Drop(n % 5, grpc.StatusCode.UNAVAILABLE) for n in range(60)])
    async with client_of(orchestrator) as errata:
        runs = [errata.ask("How long?", request_id=f"run-{n}") for n in range(50)]
        for number, seen in enumerate(await asyncio.gather(*map(read, runs))):
            assert stored(seen) == [1, 2, 3, 4]
            assert {item.run_id for item in seen} == {f"run-{number}"}


# --- busy services ----------------------------------------------------------------------------------------------------


def busy(seconds: float = 0.05) -> list[ErrataError]:
    return [
        Overloaded("Too much", retry_after=seconds),
        RateLimited("Enough", {"limit": "requests_per_minute"}, retry_after=seconds),
    ]


async def test_a_busy_service_is_asked_again_when_it_says() -> None:
    orchestrator = Orchestrator(refusals=busy())
    async with client_of(orchestrator) as errata:
        began = time.monotonic()
        assert (await errata.get_run(RUN_ID)).run.run_id == RUN_ID
        assert time.monotonic() - began >= 0.1
        assert len(orchestrator.asked) == 3
        orchestrator.refusals += busy()
        assert stored(await read(errata.ask("How long?"))) == [1, 2, 3, 4]
        assert len({request.request_id for request in orchestrator.asked[3:]}) == 1
        # While a lost run is looked for, too.
        orchestrator.drops.append(Drop(2, grpc.StatusCode.UNAVAILABLE))
        events = errata.ask("How long?")
        await anext(events)
        orchestrator.refusals += busy()
        assert stored(await read(events)) == [2, 3, 4]


async def test_a_wait_that_would_outlast_the_deadline_is_not_begun() -> None:
    async with client_of(Orchestrator(refusals=busy(60.0))) as errata:
        began = time.monotonic()
        with pytest.raises(ErrataError) as caught:
            await errata.get_run(RUN_ID, timeout=5)
        assert (caught.value.why, caught.value.retry_after) == (Reason.OVERLOADED, 60.0)
        with pytest.raises(ErrataError) as caught:
            await read(errata.ask("How long?", timeout=5))
        assert (caught.value.why, caught.value.metadata["limit"]) == (Reason.RATE_LIMITED, "requests_per_minute")
        assert time.monotonic() - began < 2


async def test_waiting_for_a_busy_service_can_be_turned_off() -> None:
    orchestrator = Orchestrator(refusals=busy())
    async with client_of(orchestrator, Retries(when_busy=False)) as errata:
        with pytest.raises(ErrataError) as caught:
            await errata.get_run(RUN_ID)
        assert caught.value.retry_after == 0.05
        with pytest.raises(ErrataError):
            await read(errata.ask("How long?"))
    assert len(orchestrator.asked) == 2


# --- credentials ------------------------------------------------------------------------------------------------------


async def test_wrong_credentials_are_an_error_at_once() -> None:
    orchestrator = Orchestrator(refusals=[NotAuthenticated("Unknown key", {"cause": "unknown_key"})])
    async with client_of(orchestrator, credentials=ApiKey("wrong")) as errata:
        with pytest.raises(ErrataError) as caught:
            await read(errata.ask("How long?"))
    assert (caught.value.why, caught.value.metadata["cause"]) == (Reason.UNAUTHENTICATED, "unknown_key")
    assert orchestrator.tokens == ["Bearer wrong"]


async def test_every_call_shows_the_token_of_its_moment() -> None:
    made: list[str] = []

    async def fresh() -> str:
        made.append(f"t{len(made)}")
        return made[-1]

    orchestrator = Orchestrator(drops=[Drop(2, grpc.StatusCode.UNAVAILABLE)])
    async with client_of(orchestrator, credentials=BearerToken(fresh)) as errata:
        await read(errata.ask("How long?"))
        await errata.get_run(RUN_ID)
    assert orchestrator.tokens == ["Bearer t0", "Bearer t1", "Bearer t2"]


# --- the end of a run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", ["FAILED", "DEADLINE_EXCEEDED", "CANCELLED"])
async def test_a_failed_run_raises_its_reason_where_its_end_is_asked_for(outcome: str) -> None:
    trace = answer_trace()
    end = trace[-1].run_finished
    end.MergeFrom(trace_pb2.RunFinished(outcome=f"OUTCOME_{outcome}"))
    end.error.reason, end.error.message = errors_pb2.ERROR_REASON_MODEL_REFUSED, "The model refused"
    orchestrator = Orchestrator(trace=trace)
    orchestrator.drops += [Drop(5, RunNotFound("as the call ends"))] * 2
    async with client_of(orchestrator) as errata:
        assert stored(await read(errata.ask("How long?"))) == [1, 2, 3, 4]
        with pytest.raises(ErrataError, match="The model refused") as caught:
            await errata.answer("How long?")
    assert caught.value.why is Reason.MODEL_REFUSED
    assert caught.value.metadata["run_id"] == RUN_ID


async def test_a_stream_that_ends_before_its_run_is_no_answer() -> None:
    async with client_of(Orchestrator(trace=answer_trace()[:-1])) as errata:
        with pytest.raises(ErrataError, match="ended before the run did"):
            await errata.answer("How long?")


async def test_watching_behind_the_end_is_no_error() -> None:
    async with client_of(Orchestrator()) as errata:
        assert stored(await read(errata.watch_run(RUN_ID, after=4))) == []


@pytest.mark.parametrize(("limit", "sizes"), [(None, [0, 0, 0]), (120, [120]), (3, [3]), (0, [])])
async def test_pages_are_fetched_as_far_as_needed(limit: int | None, sizes: list[int]) -> None:
    orchestrator = Orchestrator(runs=123)
    async with client_of(orchestrator) as errata:
        listed = [run.run_id async for run in errata.list_runs(limit=limit)]
    assert listed == [str(number) for number in range(123 if limit is None else limit)]
    assert [request.page_size for request in orchestrator.asked] == sizes


async def test_a_service_that_does_not_know_the_call_is_not_away() -> None:
    # The judge's address is that of another service.
    async with served(Orchestrator()) as running, ErrataClient(Targets(judge=running.target)) as errata:
        began = time.monotonic()
        with pytest.raises(ErrataError, match="does not know this call") as caught:
            await errata.judge.grade_answer("How long?", "For 30 days.", [])
        assert caught.value.why is Reason.INTERNAL
        assert time.monotonic() - began < 1


# --- over TLS, with keys ----------------------------------------------------------------------------------------------


async def test_a_key_over_tls_opens_what_its_roles_allow(tmp_path: Path) -> None:
    authority, keys = Authority(), KeyRing(tmp_path / "keys")
    files = write(tmp_path / "server", authority.issue("orchestrator"), authority.pem)
    asker, other = keys.caller("ann"), keys.caller("bob", "default", Role.INGEST)
    orchestrator = Orchestrator(drops=[Drop(2, grpc.StatusCode.UNAVAILABLE)])
    settings = {**keys.settings, "tls_cert_file": files.cert, "tls_key_file": files.key, "tls_ca_file": files.ca}
    async with secure(orchestrator, **settings) as target:
        tls = write(tmp_path / "client", authority.issue("client"), authority.pem)
        async with ErrataClient(target, credentials=ApiKey(asker.key), tls=tls, retries=QUICK) as errata:
            assert stored(await read(errata.ask("How long?"))) == [1, 2, 3, 4]
        for key, why in ((other.key, Reason.PERMISSION_DENIED), ("errata_no_key", Reason.UNAUTHENTICATED)):
            async with ErrataClient(target, credentials=ApiKey(key), tls=tls, retries=QUICK) as errata:
                with pytest.raises(ErrataError) as caught:
                    await errata.answer("How long?")
                assert caught.value.why is why
        without_cert = Tls(ca=tls.ca)
        async with ErrataClient(target, tls=without_cert, retries=Retries(start_seconds=0.0)) as errata:
            with pytest.raises(ServiceUnavailable):
                await errata.answer("How long?")
    assert len(orchestrator.asked) == 2
