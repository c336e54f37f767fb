"""Client spans: one for each call of a channel, from its start to its status."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from errata_kit import tracing
from errata_kit.rpc.spans import client_interceptors
from tests.harness.spans import exported, kept_spans

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is exported, without a network."""
    with kept_spans("orchestrator", monkeypatch) as kept:
        yield kept


class Lamp:
    """A service with one call of each kind that the orchestrator makes."""

    def __init__(self) -> None:
        self.traceparents: list[str] = []

    def _note(self, context: Any) -> None:
        self.traceparents.append(dict(context.invocation_metadata()).get("traceparent", ""))

    async def get(self, request: bytes, context: Any) -> bytes:
        self._note(context)
        if request == b"missing":
            await context.abort(grpc.StatusCode.NOT_FOUND, "somebody's words")
        return request

    async def stream(self, request: bytes, context: Any) -> AsyncGenerator[bytes, None]:
        self._note(context)
        yield b"1"
        if request == b"endless":
            await asyncio.sleep(30)
        yield b"2"


@pytest.fixture
async def lamp() -> AsyncGenerator[tuple[Lamp, Any], None]:
    """The service, and a channel to it as the services open them."""
    service, server = Lamp(), grpc.aio.server()
    handlers: dict[str, Any] = {
        "Get": grpc.unary_unary_rpc_method_handler(service.get),
        "List": grpc.unary_stream_rpc_method_handler(service.stream),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("a.Lamp", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", interceptors=client_interceptors()) as channel:
        yield service, channel
    await server.stop(0)


async def client_spans(spans: InMemorySpanExporter, number: int) -> list[tuple[str, str, bool]]:
    for _ in range(200):
        exported(spans)
        found = [span for span in spans.get_finished_spans() if span.name.startswith("a.Lamp")]
        if len(found) == number:
            return [
                (span.name, str(dict(span.attributes or {})["rpc.response.status_code"]), span.status.is_unset)
                for span in found
            ]
        await asyncio.sleep(0.01)
    raise AssertionError("a call has no span")


async def test_each_call_of_a_channel_is_a_span_that_ends_with_its_status(
    spans: InMemorySpanExporter, lamp: tuple[Lamp, Any]
) -> None:
    service, channel = lamp
    get, listing = channel.unary_unary("/a.Lamp/Get"), channel.unary_stream("/a.Lamp/List")
    with tracing.span("step") as step:
        assert await get(b"x", metadata=(("traceparent", TRACEPARENT), ("errata-run-id", "run"))) == b"x"
        with pytest.raises(grpc.aio.AioRpcError, match="somebody's words"):
            await get(b"missing")
        assert [item async for item in listing(b"")] == [b"1", b"2"]
        left = listing(b"endless")
        assert await left.read() == b"1"
        left.cancel()
        late = listing(b"endless", timeout=0.1)
        with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
            [item async for item in late]
    assert await client_spans(spans, 5) == [
        ("a.Lamp/Get", "OK", True),
        ("a.Lamp/Get", "NOT_FOUND", False),
        ("a.Lamp/List", "OK", True),
        ("a.Lamp/List", "CANCELLED", False),
        ("a.Lamp/List", "DEADLINE_EXCEEDED", False),
    ]
    # Each was told a parent of its own, in the step's trace and not in the one that the metadata named.
    assert len(set(service.traceparents)) == 5
    assert {text.split("-")[1] for text in service.traceparents} == {step.trace_id}
    assert "somebody" not in "".join(span.to_json() for span in spans.get_finished_spans())


async def test_a_call_that_is_cancelled_before_it_is_sent_has_ended_too(
    spans: InMemorySpanExporter, lamp: tuple[Lamp, Any]
) -> None:
    _, channel = lamp
    call = channel.unary_stream("/a.Lamp/List")(b"endless")
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.sleep(0.05)
    found = [span for span in exported(spans).values() if span.name == "a.Lamp/List"]
    assert len(found) <= 1
    assert all(span.attributes["rpc.response.status_code"] == "CANCELLED" for span in found)


def test_without_tracing_a_channel_has_no_interceptor() -> None:
    assert client_interceptors() == ()
