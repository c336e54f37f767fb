"""Clients of the model double for the contract tests, and what these tests ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from pydantic import Field

from errata_kit.llm.chat import ChatRequest, ModelOutput, StreamEnd
from errata_kit.llm.openai_chat import OpenAIChat
from errata_kit.llm.openai_embeddings import EmbeddingSize, OpenAIEmbedder
from errata_kit.llm.prompts import RenderedPrompt
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings
from errata_kit.usage import ModelCall
from tests.harness.model_server import ModelServer

ATTEMPTS = 3
SIZE = 32
VALID = {"score": 0.9, "relevant": True, "reasoning": "It names the option."}


class Grade(ModelOutput):
    """A schema like those of the judge."""

    score: float = Field(ge=0, le=1)
    relevant: bool
    reasoning: str


def settings(server: ModelServer, **more: Any) -> ModelSettings:
    """Settings that point at the double."""
    wanted = {"base_url": server.base_url, "timeout_seconds": 5.0, "max_attempts": ATTEMPTS}
    return ModelSettings(**{**wanted, **more})


def impatient() -> RetryPolicy:
    """The usual policy with pauses of at most 10 ms."""
    return RetryPolicy(max_attempts=ATTEMPTS, base_seconds=0.005, cap_seconds=0.01)


@asynccontextmanager
async def chat_model(server: ModelServer, usages: list[ModelCall] | None = None, **more: Any) -> AsyncIterator[OpenAIChat]:
    """A chat client whose libraries are loaded; closed at the end."""
    record = usages.append if usages is not None else (lambda usage: None)
    model = OpenAIChat(settings(server, **more), record=record, retry=impatient())
    await model.warm_up()
    try:
        yield model
    finally:
        await model.aclose()


@asynccontextmanager
async def embedder(server: ModelServer, usages: list[ModelCall] | None = None, **more: Any) -> AsyncIterator[OpenAIEmbedder]:
    """An embedding client whose libraries are loaded; closed at the end."""
    record = usages.append if usages is not None else (lambda usage: None)
    wanted = settings(server, **{"model": "text-embedding-3-small", **more})
    client = OpenAIEmbedder(wanted, EmbeddingSize(SIZE, shortened=True), record=record, retry=impatient())
    await client.warm_up()
    try:
        yield client
    finally:
        await client.aclose()


def request(user: str = "Is it relevant?", **more: Any) -> ChatRequest:
    """A question with a fixed prompt version."""
    return ChatRequest("grade_passage", RenderedPrompt("grade", "0123456789ab", "You judge.", user), **more)


async def collect(model: OpenAIChat, asked: ChatRequest, deltas: list[str]) -> StreamEnd:
    """Read a stream to its end, keeping its deltas even if it fails."""
    async with aclosing(model.stream(asked)) as events:
        async for event in events:
            if isinstance(event, StreamEnd):
                return event
            deltas.append(event.text)
    raise AssertionError("a stream without an end")
