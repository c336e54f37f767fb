"""How the command line shows who calls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.retriever.v1 import retriever_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as pb2_grpc

from errata_cli.connecting import connect
from errata_cli.terminal import UsageError


class Noting(pb2_grpc.RetrieverServiceServicer):
    """Notes what calls show."""

    def __init__(self) -> None:
        self.shown: list[str | bytes | None] = []

    def _note(self, context: Any) -> None:
        self.shown.append(dict(context.invocation_metadata()).get("authorization"))

    async def Search(self, request: Any, context: Any) -> pb2.SearchResponse:  # noqa: N802
        """Unary."""
        self._note(context)
        return pb2.SearchResponse()

    async def IngestDocuments(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Streams both ways."""
        self._note(context)
        async for request in request_iterator:
            yield pb2.IngestDocumentsResponse(document_id=request.document.document_id)


@pytest.fixture
async def noting() -> AsyncIterator[tuple[Noting, str]]:
    """A server that notes, and its address."""
    servicer, server = Noting(), grpc.aio.server()
    pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield servicer, f"127.0.0.1:{port}"
    await server.stop(None)


async def _call(target: str) -> None:
    async with connect(target) as channel:
        stub = pb2_grpc.RetrieverServiceStub(channel)
        await stub.Search(pb2.SearchRequest(), timeout=5)

        async def one() -> AsyncIterator[pb2.IngestDocumentsRequest]:
            yield pb2.IngestDocumentsRequest(document=pb2.Document(document_id="d"))

        assert [reply.document_id async for reply in stub.IngestDocuments(one(), timeout=5)] == ["d"]


async def test_every_call_shows_the_key(noting: tuple[Noting, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    servicer, target = noting
    await _call(target)
    monkeypatch.setenv("ERRATA_API_KEY", "k1")
    await _call(target)
    (tmp_path / "key").write_text("k2\n")
    monkeypatch.setenv("ERRATA_API_KEY_FILE", str(tmp_path / "key"))
    await _call(target)
    assert servicer.shown == [None, None, "Bearer k1", "Bearer k1", "Bearer k2", "Bearer k2"]


async def test_a_key_stays_on_this_machine_without_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERRATA_API_KEY", "hunter2")
    with pytest.raises(UsageError, match="unencrypted") as refused:
        connect("errata.example:50051")
    assert "hunter2" not in str(refused.value)
    monkeypatch.setenv("ERRATA_TLS", "1")
    await connect("errata.example:50051").close()


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
async def test_a_key_file_that_can_t_be_read_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("ERRATA_API_KEY_FILE", str(path))
    with pytest.raises(UsageError, match=str(path)):
        connect("127.0.0.1:1")
