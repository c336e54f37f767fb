"""Vectors of an OpenAI-compatible API, remembered in Redis: replicas of the retriever pay for a text once between them."""

from __future__ import annotations

import asyncio
import contextlib
from array import array
from collections.abc import AsyncIterator, Iterator

import pytest

from errata_kit.access.principals import Principal
from errata_kit.calls import enter_call
from errata_kit.errors import ModelRateLimited
from errata_kit.metrics import Metrics
from services.retriever.embedding.base import ServedEmbedder
from services.retriever.opening import open_embedder
from services.retriever.settings import RetrieverSettings
from tests.harness.model_rules import ApiError, Endpoint, Reply, Rule
from tests.harness.model_server import ModelServer
from tests.harness.redis_server import RedisServer, redis_server

TEXTS = [f"Backups of kind {number} are kept for 30 days." for number in range(10)]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@contextlib.asynccontextmanager
async def replicas(model: ModelServer, url: str, count: int = 2) -> AsyncIterator[list[tuple[ServedEmbedder, Metrics]]]:
    """Embedders as that many processes of the retriever open them."""
    settings = RetrieverSettings.model_validate(
        {
            "RETRIEVER_EMBEDDING_PROVIDER": "openai",
            "OPENAI_BASE_URL": model.base_url,
            "ERRATA_REDIS_URL": url,
            "ERRATA_LLM_MAX_ATTEMPTS": 1,
        }
    )
    async with contextlib.AsyncExitStack() as stack:
        opened = []
        for _ in range(count):
            metrics = Metrics()
            embedder = open_embedder(settings, metrics)
            stack.push_async_callback(embedder.close)
            await embedder.warm_up()
            opened.append((embedder, metrics))
        yield opened


def bits(vectors: object) -> list[bytes]:
    assert isinstance(vectors, list)
    return [array("d", vector).tobytes() for vector in vectors]


async def test_what_one_replica_embedded_the_other_finds_bit_by_bit(server: RedisServer) -> None:
    await server.command("FLUSHALL")
    async with ModelServer() as model, replicas(model, server.url) as [(first, _), (second, metrics)]:
        made = await first.embed_passages(TEXTS)
        assert len(model.journal) == 1
        assert bits(await second.embed_passages([*TEXTS[5:], "Another one.", *TEXTS[:5]]))[:5] == bits(made)[5:]
        assert len(model.journal) == 2
        assert await first.embed_query(TEXTS[0]) == await second.embed_query(TEXTS[0]) == made[0]
        assert len(model.journal) == 3
        hits = metrics.cache_requests.labels("embeddings", "hit")._value.get()
        misses = metrics.cache_requests.labels("embeddings", "miss")._value.get()
        assert (hits, misses) == (11, 1)
    # Nothing of a text stands in a key.
    keys = (await server.command("KEYS", "*")).decode()
    assert keys.count("errata:1:embedding:") == 12 and "Backups" not in keys


async def test_another_tenant_pays_itself(server: RedisServer) -> None:
    await server.command("FLUSHALL")

    async def ask(embedder: ServedEmbedder, tenant: str) -> None:
        enter_call("", "", None, principal=Principal("somebody", tenant))
        await embedder.embed_query("How long are backups kept?")

    async with ModelServer() as model, replicas(model, server.url) as [(first, _), (second, _)]:
        for embedder, tenant in ((first, "acme"), (second, "acme"), (second, "globex"), (first, "globex")):
            await asyncio.create_task(ask(embedder, tenant))
        assert len(model.journal) == 2


async def test_without_redis_everything_is_embedded_and_nothing_fails(server: RedisServer) -> None:
    await server.command("FLUSHALL")
    async with ModelServer() as model, replicas(model, server.url, 1) as [(embedder, _)]:
        made = await embedder.embed_passages(TEXTS)
        with server.frozen():
            assert bits(await embedder.embed_passages(TEXTS)) == bits(made)
            assert await embedder.embed_query(TEXTS[0]) == made[0]
        assert len(model.journal) == 3


async def test_a_failed_request_leaves_nothing_behind(server: RedisServer) -> None:
    await server.command("FLUSHALL")
    limited = Rule(Reply(status=429, error=ApiError("slow down")), endpoint=Endpoint.EMBEDDINGS, times=1)
    async with ModelServer([limited]) as model, replicas(model, server.url, 1) as [(embedder, _)]:
        with pytest.raises(ModelRateLimited):
            await embedder.embed_passages(TEXTS)
        assert await server.command("DBSIZE") == b"0"
        assert len(await embedder.embed_passages(TEXTS)) == len(TEXTS)
