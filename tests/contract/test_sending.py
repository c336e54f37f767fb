"""A client that sends large messages is told why it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from errata.retriever.v1 import retriever_service_pb2 as pb2

from errata_kit.errors import Reason
from errata_kit.rpc.channels import sending
from tests.harness import services
from tests.harness.services import CALL_SECONDS, failure_of

LARGE = "word " * 400_000


def documents(sent: list[str], number: int = 3) -> AsyncIterator[pb2.IngestDocumentsRequest]:
    """Large documents; what is asked for is noted."""

    async def each() -> AsyncIterator[pb2.IngestDocumentsRequest]:
        for place in range(number):
            sent.append(str(place))
            yield pb2.IngestDocumentsRequest(document=pb2.Document(document_id=str(place), text=LARGE))

    return each()


async def test_a_refusal_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"version": 1, "keys": []}')
    sent: list[str] = []
    async with services.retriever(tmp_path / "index", auth="api-key", api_keys_file=keys) as served:
        failure = await failure_of(sending(served.stub.IngestDocuments, documents(sent), timeout=CALL_SECONDS))
    assert failure.reason == Reason.UNAUTHENTICATED.value
    assert sent == []


async def test_what_is_sent_arrives(tmp_path: Path) -> None:
    sent: list[str] = []
    async with services.retriever(tmp_path / "index") as served:
        call = sending(served.stub.IngestDocuments, documents(sent, 2), timeout=CALL_SECONDS)
        replies = [reply.document_id async for reply in call]
    assert sorted(replies) == ["0", "1"] == sorted(sent)
    assert not [task for task in asyncio.all_tasks() if "_until_let_in" in repr(task)]


@pytest.mark.parametrize("number", [0, 1])
async def test_an_empty_stream_ends(tmp_path: Path, number: int) -> None:
    async with services.retriever(tmp_path / "index") as served:
        call = sending(served.stub.IngestDocuments, documents([], number), timeout=CALL_SECONDS)
        assert len([reply async for reply in call]) == number
