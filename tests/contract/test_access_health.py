"""Health and reflection where callers must say who they are, the port for probes, and where nobody must."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from errata_kit.rpc import server as rpc_server
from services.judge import server as judge_server
from services.judge.settings import JudgeSettings
from tests.harness.secured import KeyRing, Metadata
from tests.harness.services import Below, failure_of, health_of, scripted
from tests.harness.suite import environment
from tests.harness.traces import NOWHERE

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
NAME = "errata.orchestrator.v1.OrchestratorService"
V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path / "keys")


@contextlib.asynccontextmanager
async def probe(port: int | None) -> AsyncIterator[grpc.aio.Channel]:
    assert port
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel


async def explored(channel: grpc.aio.Channel, metadata: Metadata = (), method: str = "") -> set[str]:
    """The services that reflection lists; method: v1 instead of v1alpha."""
    anything: Any = channel
    call: Any = reflection_pb2_grpc.ServerReflectionStub(anything).ServerReflectionInfo
    if method:
        call = channel.stream_stream(
            method,
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
    wanted = reflection_pb2.ServerReflectionRequest(list_services="")
    replies = [reply async for reply in call(iter([wanted]), metadata=metadata, timeout=5)]
    return {service.name for reply in replies for service in reply.list_services_response.service}


@pytest.mark.parametrize("method", ["", V1])
async def test_who_may_use_reflection(keys: KeyRing, method: str) -> None:
    ann = keys.caller("ann")
    async with scripted(Below(), reflection_access="open", **keys.settings) as served:
        assert NAME in await explored(served.channel, (), method)
    async with scripted(Below(), **keys.settings) as served:
        assert NAME in await explored(served.channel, ann.metadata, method)
        for metadata in ((), (("authorization", "Bearer nonsense"),)):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await explored(served.channel, metadata, method)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    async with scripted(Below(), reflection_access="closed", **keys.settings) as served:
        with pytest.raises(grpc.aio.AioRpcError) as closed:
            await explored(served.channel, ann.metadata, method)
        assert closed.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_health_needs_no_key_and_can_be_closed_on_the_main_port(keys: KeyRing) -> None:
    keys.caller("ann")
    async with scripted(Below(), health_port=0, **keys.settings) as served:
        for name in ("", NAME, "liveness"):
            assert await health_of(served.channel, name) == SERVING
    async with scripted(Below(), health_port=0, health_access="closed", wait=False, **keys.settings) as served:
        with pytest.raises(grpc.aio.AioRpcError) as closed:
            await health_of(served.channel)
        assert closed.value.code() is grpc.StatusCode.UNIMPLEMENTED
        async with probe(served.running.health_port) as channel, asyncio.timeout(10):
            while await health_of(channel, NAME) != SERVING:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.02)


async def test_the_port_for_probes_does_nothing_but_health(keys: KeyRing) -> None:
    ann = keys.caller("ann")
    async with (
        scripted(Below(), health_port=0, **keys.settings) as served,
        probe(served.running.health_port) as channel,
    ):
        assert served.running.health_port not in {served.running.port, served.running.metrics_port}
        stub: Any = type(served.stub)(channel)
        reflection: Any = channel.stream_stream(V1)
        for call in (
            stub.ListRuns(pb2.ListRunsRequest(), metadata=ann.metadata, timeout=5),
            reflection(iter(()), metadata=ann.metadata, timeout=5),
        ):
            assert (await failure_of(call)).code is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await health_of(channel, "no.such.Service")
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND


async def test_without_the_setting_there_is_no_such_port() -> None:
    async with scripted(Below()) as served:
        assert served.running.health_port is None


async def test_a_process_lives_before_it_is_ready(keys: KeyRing) -> None:
    keys.caller("ann")
    async with (
        scripted(Below(), retriever=NOWHERE, wait=False, health_port=0, **keys.settings) as served,
        probe(served.running.health_port) as channel,
    ):
        for place in (channel, served.channel):
            assert await health_of(place, "liveness") == SERVING
            for name in ("", NAME):
                assert await health_of(place, name) == NOT_SERVING


async def test_a_process_lives_while_it_drains() -> None:
    # serve() stops at a signal to this very process, which this loop alone handles.
    chosen: dict[str, Any] = {"port": 0, "metrics_port": 0, "health_port": 0, "chosen_provider": "offline"}
    built = JudgeSettings(**chosen, drain_pause_seconds=0.4, drain_grace_seconds=1.0)
    service = await judge_server.build(built)
    started: list[rpc_server.RunningServer] = []
    running = rpc_server.running

    @contextlib.asynccontextmanager
    async def noted(*arguments: Any) -> AsyncIterator[rpc_server.RunningServer]:
        async with running(*arguments) as server:
            started.append(server)
            yield server

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc_server, "running", noted)
        serving = asyncio.create_task(rpc_server.serve(replace(service, ready=_at_once), built))
        async with asyncio.timeout(20):
            while not started or not started[0].announced.done():  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.02)
            async with probe(started[0].health_port) as channel:
                assert [await health_of(channel, name) for name in ("", "liveness")] == [SERVING, SERVING]
                os.kill(os.getpid(), signal.SIGTERM)
                while await health_of(channel) == SERVING:  # noqa: ASYNC110 - the same
                    await asyncio.sleep(0.01)
                assert await health_of(channel, service.proto_name) == NOT_SERVING
                assert await health_of(channel, "liveness") == SERVING
            await serving


async def _at_once() -> None:
    return


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_service_that_everybody_reaches_does_not_start_without_authentication(host: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "services.generator"],
        env=environment({"ERRATA_HOST": host, "ERRATA_DATA_DIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 2
    [sentence] = done.stderr.strip().splitlines()
    assert sentence.startswith("errata: ") and f"ERRATA_HOST is {host}" in sentence
    assert "set ERRATA_AUTH to api-key or oidc" in sentence and sentence.endswith(".")
