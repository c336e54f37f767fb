"""What every service does alike when it can't answer: status, reason, details, admission, health and ports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import grpc
import pytest
from errata.judge.v1 import judge_service_pb2 as pb2
from errata.judge.v1 import judge_service_pb2_grpc as pb2_grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from errata_kit import errors
from errata_kit.errors import ErrataError, FieldViolation, InvalidFields, Reason
from errata_kit.metrics import Metrics
from errata_kit.rpc.channels import open_channel
from errata_kit.rpc.server import PortTaken, Service, running
from errata_kit.rpc.status import STATUS_OF_REASON
from tests.harness.services import (
    CALL_SECONDS,
    Served,
    collected,
    failure_of,
    health_of,
    plain_settings,
    serving,
    until_serving,
)

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
NAME = "errata.judge.v1.JudgeService"
SECRET = "postgres://user:password@db"


class Servicer(pb2_grpc.JudgeServiceServicer):
    """Does what a test tells it, in both kinds of method."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act
        self.calls = 0

    async def GradeAnswer(self, request: pb2.GradeAnswerRequest, context: Any) -> pb2.GradeAnswerResponse:  # noqa: N802
        self.calls += 1
        result = self.act()
        if result is not None:
            await result
        return pb2.GradeAnswerResponse()

    async def GradePassages(  # noqa: N802
        self, request: pb2.GradePassagesRequest, context: Any
    ) -> AsyncIterator[pb2.GradePassagesResponse]:
        self.calls += 1
        yield pb2.GradePassagesResponse(passage_id="first")
        result = self.act()
        if result is not None:
            await result


def service_of(servicer: Servicer, **fields: Any) -> Service:
    service = Service(
        name="judge",
        port=0,
        metrics_port=0,
        proto_name=NAME,
        register=lambda server: pb2_grpc.add_JudgeServiceServicer_to_server(servicer, server),
        metrics=Metrics(),
    )
    return replace(service, **fields)


@contextlib.asynccontextmanager
async def acting(act: Callable[[], Any], **settings: Any) -> AsyncIterator[Served]:
    """A server whose methods do `act`."""
    async with serving(service_of(Servicer(act)), plain_settings(**settings), pb2_grpc.JudgeServiceStub) as served:
        yield served


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


def unary(served: Served) -> Any:
    return served.stub.GradeAnswer(pb2.GradeAnswerRequest(), timeout=CALL_SECONDS)


def stream(served: Served) -> Any:
    return served.stub.GradePassages(pb2.GradePassagesRequest(), timeout=CALL_SECONDS)


CALLS = pytest.mark.parametrize("call", [unary, stream])


def every_error() -> list[ErrataError]:
    """One of each class of the tree that has a reason of its own."""
    found: list[ErrataError] = []
    classes: list[Any] = [ErrataError]
    while classes:
        kind = classes.pop()
        classes.extend(kind.__subclasses__())
        if kind.__module__ != errors.__name__ or kind is errors.RemoteError:
            continue
        if issubclass(kind, errors.NotFound):
            found.append(kind("thing"))
        elif issubclass(kind, InvalidFields):
            found.append(kind((FieldViolation("a.b[3]", "must be less"),)))
        else:
            found.append(kind("A sentence.", {"key": "value"}, retry_after=1.5, detail=SECRET))
    return found


@CALLS
@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
async def test_an_error_becomes_its_status_with_its_reason(error: ErrataError, call: Callable[[Served], Any]) -> None:
    async with acting(raising(error)) as served:
        failure = await failure_of(call(served))
    assert failure.code is STATUS_OF_REASON[error.why]
    assert (failure.reason, failure.domain, failure.metadata) == (error.why.value, "errata", error.metadata)
    assert failure.message == error.message and SECRET not in str(failure)
    assert failure.retry_after == error.retry_after
    assert len(failure.received) == (call is stream)
    if isinstance(error, errors.NotFound):
        assert failure.resource == (error.resource_type, "thing")
    if isinstance(error, InvalidFields):
        assert failure.violations == {"a.b[3]": "must be less"}
    if error.why.startswith(("MODEL_", "EMBEDDING_", "JUDGEMENT_")):
        assert failure.trailers["grpc-retry-pushback-ms"] == "-1"


@CALLS
@pytest.mark.parametrize(
    "unforeseen",
    [ValueError(SECRET), KeyError(SECRET), RuntimeError(SECRET), AssertionError(SECRET), OSError(5, SECRET)],
    ids=repr,
)
async def test_an_unforeseen_exception_is_internal_and_says_nothing(
    unforeseen: Exception, call: Callable[[Served], Any]
) -> None:
    async with acting(raising(unforeseen)) as served:
        failure = await failure_of(call(served))
        again = await failure_of(call(served))
    assert (failure.code, failure.reason, failure.domain) == (grpc.StatusCode.INTERNAL, "INTERNAL", "errata")
    assert SECRET not in str(failure) and "Error" not in failure.message and failure.metadata == {}
    assert again.code is grpc.StatusCode.INTERNAL


async def test_many_violations_and_long_metadata_do_not_break_the_call() -> None:
    violations = tuple(FieldViolation(f"passages[{n}].{'f' * 300}", "must be " + "x" * 3000) for n in range(200))
    async with acting(raising(InvalidFields(violations))) as served:
        failure = await failure_of(unary(served))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and failure.reason == "INVALID_FIELD" and failure.violations
    wordy = ErrataError("ä" * 100_000, {f"key-{n}": "ü" * 100_000 for n in range(100)})
    async with acting(raising(wordy)) as served:
        failure = await failure_of(unary(served))
    assert (failure.code, failure.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL") and failure.message


@CALLS
async def test_a_model_error_is_not_retried_by_our_channels_and_unavailable_is(call: Callable[[Served], Any]) -> None:
    for error, calls in ((errors.ModelUnavailable(), 1), (errors.IndexUnavailable("gone"), 4)):
        servicer = Servicer(raising(error))
        async with serving(service_of(servicer), plain_settings(), pb2_grpc.JudgeServiceStub) as served:
            channel = open_channel(served.target)
            failure = await failure_of(call(replace(served, stub=pb2_grpc.JudgeServiceStub(channel))))
            await channel.close()
        assert failure.reason == error.why.value
        # A stream that has sent a message is never tried again.
        assert servicer.calls == (1 if call is stream else calls)


# --- admission --------------------------------------------------------------------------------------------------------


@CALLS
async def test_too_many_calls_are_refused_while_health_and_reflection_answer(call: Callable[[Served], Any]) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        await release.wait()

    async with acting(wait, max_concurrent_calls=1) as served:
        first = asyncio.create_task(collected(stream(served)))
        await asyncio.wait_for(entered.wait(), 5)
        failure = await failure_of(call(served))
        assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
        assert failure.retry_after == 1 and failure.received == ()
        assert await health_of(served.channel, NAME) == SERVING
        assert NAME in await reflected(served)
        release.set()
        assert len(await first) == 1
        # There is room again, and a refused call took none.
        await (collected(call(served)) if call is stream else call(served))


async def reflected(served: Served) -> set[str]:
    connect: Any = reflection_pb2_grpc.ServerReflectionStub
    stub = connect(served.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    [reply] = await collected(stub.ServerReflectionInfo(iter([request])))
    return {service.name for service in reply.list_services_response.service}


async def test_a_cancelled_call_gives_its_place_back() -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        try:
            await asyncio.sleep(60)
        finally:
            left.set()

    async with acting(wait, max_concurrent_calls=1) as served:
        for _ in range(3):
            entered.clear()
            left.clear()
            call = unary(served)
            await asyncio.wait_for(entered.wait(), 5)
            call.cancel()
            await asyncio.wait_for(left.wait(), 5)
            await asyncio.sleep(0.02)


@CALLS
async def test_a_draining_service_sends_new_calls_elsewhere_and_finishes_the_old(call: Callable[[Served], Any]) -> None:
    entered, release = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        entered.set()
        await release.wait()

    async with acting(wait) as served:
        under_way = asyncio.create_task(collected(stream(served)))
        await asyncio.wait_for(entered.wait(), 5)
        served.running.gate.draining = True
        failure = await failure_of(call(served))
        assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert failure.retry_after == 1 and not under_way.done()
        release.set()
        assert len(await under_way) == 1


# --- health and ports -------------------------------------------------------------------------------------------------


async def test_a_service_is_not_serving_until_it_is_ready() -> None:
    go = asyncio.Event()

    async def ready() -> None:
        await go.wait()

    service = service_of(Servicer(lambda: None), ready=ready)
    async with serving(service, plain_settings(), pb2_grpc.JudgeServiceStub, wait=False) as served:
        assert [await health_of(served.channel, name) for name in ("", NAME)] == [NOT_SERVING, NOT_SERVING]
        go.set()
        await until_serving(served.channel, NAME)
        assert await health_of(served.channel) == SERVING
        await served.running.health.enter_graceful_shutdown()
        assert [await health_of(served.channel, name) for name in ("", NAME)] == [NOT_SERVING, NOT_SERVING]


async def test_health_of_a_service_that_is_not_there_is_not_found() -> None:
    async with acting(lambda: None) as served:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health_of(served.channel, "errata.none.v1.None")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_second_server_on_the_same_port_is_told_that_it_is_taken() -> None:
    async with acting(lambda: None) as served:
        second = service_of(Servicer(lambda: None), port=served.running.port)
        with pytest.raises(PortTaken, match=str(served.running.port)):
            async with running(second, plain_settings()):
                pass
        # The first one is not disturbed.
        await unary(served)


async def test_a_taken_metrics_port_is_told_as_well_and_the_other_port_is_given_back() -> None:
    closed = asyncio.Event()

    async def close() -> None:
        closed.set()

    async with acting(lambda: None) as served:
        second = service_of(Servicer(lambda: None), metrics_port=served.running.metrics_port, close=close)
        with pytest.raises(PortTaken, match=f"metrics.*{served.running.metrics_port}"):
            async with running(second, plain_settings()):
                pass
    assert closed.is_set()


async def test_calls_are_counted_by_their_status() -> None:
    async with acting(raising(errors.IndexUnavailable("gone"))) as served:
        await failure_of(unary(served))
        await failure_of(stream(served))
        registry = served.service.metrics.registry
        for method, kind in (("GradeAnswer", "unary"), ("GradePassages", "server_stream")):
            labels = {"grpc_type": kind, "grpc_service": NAME, "grpc_method": method}
            assert registry.get_sample_value("grpc_server_started_total", labels) == 1
            assert registry.get_sample_value("grpc_server_handled_total", {**labels, "grpc_code": "UNAVAILABLE"}) == 1
        assert registry.get_sample_value("errata_calls_in_flight") == 0


def test_every_reason_of_the_tree_is_tried_here() -> None:
    assert {error.why for error in every_error()} == set(Reason)
