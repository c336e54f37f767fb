"""Embedding providers: the errors a caller sees, joined requests, and a loop that is never blocked."""

import asyncio
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from errata_kit.calls import enter_call, remaining_seconds
from errata_kit.errors import EmbeddingFailed
from errata_kit.minilm import MiniLM
from services.retriever.embedding.base import Vector
from services.retriever.embedding.coalescing import CoalescingEmbedder
from services.retriever.embedding.local import LocalEmbedder


class SlowModel(MiniLM):
    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        time.sleep(0.02 * len(texts))
        return np.full((len(texts), 384), float(len(texts)), dtype=np.float32)


class BrokenModel(MiniLM):
    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        raise RuntimeError("internals of the runtime")


class RecordingEmbedder:
    name: str = "recording"
    dimensions: int = 1

    def __init__(self) -> None:
        self.requests: list[list[str]] = []

    async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
        self.requests.append(list(texts))
        await asyncio.sleep(0.01)
        if "bad" in texts:
            raise EmbeddingFailed("no", {})
        return [[float(text)] for text in texts]

    async def embed_query(self, text: str) -> Vector:
        return [0.0]


async def test_the_local_model_leaves_the_loop_free_and_lets_queries_pass() -> None:
    embedder = LocalEmbedder(SlowModel())
    passages = asyncio.create_task(embedder.embed_passages(["text"] * 64))
    await asyncio.sleep(0.01)
    started = time.perf_counter()
    await embedder.embed_query("question")
    assert time.perf_counter() - started < 0.3
    assert not passages.done()
    assert len(await passages) == 64
    await embedder.close()


async def test_a_broken_local_model_is_embedding_failed_without_its_text() -> None:
    embedder = LocalEmbedder(BrokenModel())
    with pytest.raises(EmbeddingFailed) as caught:
        await embedder.embed_query("x")
    assert "internals" not in caught.value.message
    await embedder.close()


async def test_requests_that_wait_are_joined_and_everyone_gets_their_own() -> None:
    inner = RecordingEmbedder()
    embedder = CoalescingEmbedder(inner)
    calls = [embedder.embed_passages("acme", [str(n), str(n + 0.5)]) for n in range(100)]
    answers = await asyncio.gather(*calls)
    assert answers == [[[float(n)], [n + 0.5]] for n in range(100)]
    assert len(inner.requests) <= 3
    assert await embedder.embed_passages("acme", []) == []


async def test_a_failure_reaches_those_in_the_request_and_no_later_one() -> None:
    embedder = CoalescingEmbedder(RecordingEmbedder())
    results = await asyncio.gather(
        embedder.embed_passages("acme", ["1"]), embedder.embed_passages("acme", ["bad"]), return_exceptions=True
    )
    assert all(isinstance(result, EmbeddingFailed) for result in results)
    assert await embedder.embed_passages("acme", ["2"]) == [[2.0]]


async def test_a_cancelled_caller_is_left_out_of_the_next_request() -> None:
    inner = RecordingEmbedder()
    embedder = CoalescingEmbedder(inner)
    first = asyncio.create_task(embedder.embed_passages("acme", ["1"]))
    await asyncio.sleep(0.005)
    given_up = asyncio.create_task(embedder.embed_passages("acme", ["2"]))
    kept = asyncio.create_task(embedder.embed_passages("acme", ["3"]))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await first == [[1.0]]
    assert await kept == [[3.0]]
    assert inner.requests == [["1"], ["3"]]


async def test_tenants_share_no_request_so_that_nobodys_text_fails_another() -> None:
    inner = RecordingEmbedder()
    embedder = CoalescingEmbedder(inner)
    results = await asyncio.gather(
        embedder.embed_passages("acme", ["bad"]),
        embedder.embed_passages("globex", ["1"]),
        embedder.embed_passages("acme", ["2"]),
        embedder.embed_passages("globex", ["1"]),
        return_exceptions=True,
    )
    assert [isinstance(result, EmbeddingFailed) for result in results] == [True, False, True, False]
    assert results[1] == results[3] == [[1.0]]
    assert sorted(inner.requests) == [["1", "1"], ["bad", "2"]]


async def test_a_tenant_does_not_wait_for_anothers_requests() -> None:
    inner = RecordingEmbedder()
    embedder = CoalescingEmbedder(inner)
    busy = [asyncio.create_task(embedder.embed_passages("acme", ["1"] * 128)) for _ in range(20)]
    await asyncio.sleep(0.005)
    await embedder.embed_passages("globex", ["2"])
    assert sum(task.done() for task in busy) <= 3
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_a_request_has_the_time_of_the_caller_who_can_wait_longest() -> None:
    seconds: list[float | None] = []

    class TimedEmbedder(RecordingEmbedder):
        async def embed_passages(self, texts: Sequence[str]) -> Sequence[Vector]:
            seconds.append(remaining_seconds())
            return await super().embed_passages(texts)

    embedder = CoalescingEmbedder(TimedEmbedder())

    async def ask(text: str, patience: float | None) -> None:
        enter_call("", "", patience)
        await embedder.embed_passages("acme", [text])

    await asyncio.gather(ask("1", 0.001), ask("2", 50.0))
    await asyncio.gather(ask("3", 0.001), ask("4", None), ask("5", 50.0))
    # The first caller's time is long over, and says nothing about those who come later.
    first, second = seconds
    assert first is not None and 49 < first <= 50 and second is None


async def test_what_ended_leaves_nothing_behind() -> None:
    embedder = CoalescingEmbedder(RecordingEmbedder())
    await asyncio.gather(*(embedder.embed_passages(f"tenant-{n}", ["1"]) for n in range(50)))
    await asyncio.sleep(0)
    assert not embedder._waiting and not embedder._tasks
