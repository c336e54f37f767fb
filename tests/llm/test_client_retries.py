"""llmock fails on demand, watches what our client makes of it, and has nothing to find fault with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from errata_kit.errors import ModelError, ModelUnavailable, Reason
from errata_kit.llm.chat import ChatRequest, ModelOutput, StreamEnd
from errata_kit.llm.openai_chat import OpenAIChat
from errata_kit.llm.prompts import RenderedPrompt
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings

ATTEMPTS = 4
# With full jitter a second pause is shorter than the first one now and then, and llmock calls that a constant interval. So the
# draw is held still here: pauses of 0.2, 0.4 and 0.8 s.
POLICY = RetryPolicy(max_attempts=ATTEMPTS, base_seconds=0.25, draw=lambda: 0.8)


class AnswerOutput(ModelOutput):
    """What is asked for."""

    answer: str


class Grader:
    """llmock's own interface."""

    def __init__(self, url: str) -> None:
        self._where = urlsplit(url).netloc

    def fails(self, **behaviour: Any) -> None:
        """What the next requests meet; everything before is forgotten."""
        self._call("POST", "/reset")
        self._call("POST", "/scenario", {"behaviors": [behaviour]})

    def counts(self) -> tuple[int, int]:
        """Requests since then, and how many of them met a failure."""
        verdict = self._call("GET", "/verdict")
        return verdict["attempts"], verdict["faults_injected"]

    def findings(self) -> list[str]:
        """What it finds wrong, warnings too."""
        return [found["code"] for found in self._call("GET", "/verdict")["findings"]]

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        with closing(HTTPConnection(self._where, timeout=10)) as http:
            http.request(method, f"/_llmock{path}", body=json.dumps(body or {}))
            reply = http.getresponse()
            assert reply.status < 300, reply.read()
            return dict(json.load(reply))


@pytest.fixture
def grader(llmock_url: str) -> Grader:
    """The grader of a test."""
    return Grader(llmock_url)


@pytest.fixture
async def model(llmock_url: str) -> AsyncIterator[OpenAIChat]:
    """Our client, before a server that fails."""
    async for client in opened(llmock_url, POLICY):
        yield client


async def opened(url: str, policy: RetryPolicy, seconds: float = 30.0) -> AsyncIterator[OpenAIChat]:
    """A client, closed at the end."""
    settings = ModelSettings(base_url=f"{url.rstrip('/')}/v1", model="gpt-4o-mini", timeout_seconds=seconds)
    client = OpenAIChat(settings, retry=policy)
    try:
        yield client
    finally:
        await client.aclose()


def request_for(words: str) -> ChatRequest:
    """A request; one with other words is another call to the grader."""
    return ChatRequest("test", RenderedPrompt("test", "0123456789ab", "You answer in one sentence.", words))


async def streamed(model: OpenAIChat, words: str) -> StreamEnd:
    """The end of a stream."""
    events = [event async for event in model.stream(request_for(words))]
    end = events[-1]
    assert isinstance(end, StreamEnd)
    return end


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
async def test_a_passing_failure_is_waited_out(model: OpenAIChat, grader: Grader, status: int) -> None:
    grader.fails(type="fail", status=status, times=ATTEMPTS - 1)
    completion = await model.complete(request_for(f"status {status}"), AnswerOutput)
    assert completion.usage.attempts == ATTEMPTS
    assert grader.counts() == (ATTEMPTS, ATTEMPTS - 1)
    assert grader.findings() == []


@pytest.mark.parametrize("status", [429, 503])
async def test_the_time_that_the_server_asks_for_is_kept(model: OpenAIChat, grader: Grader, status: int) -> None:
    grader.fails(type="fail", status=status, retry_after=1.0, times=2)
    await model.complete(request_for(f"later {status}"), AnswerOutput)
    assert grader.counts() == (3, 2)
    assert grader.findings() == []


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_no_repetition_mends_is_asked_once(model: OpenAIChat, grader: Grader, status: int) -> None:
    grader.fails(type="fail", status=status, times=None)
    with pytest.raises(ModelError):
        await model.complete(request_for(f"refused {status}"), AnswerOutput)
    assert grader.counts() == (1, 1)
    assert grader.findings() == []


async def test_an_outage_is_given_up_after_the_set_number_of_attempts(model: OpenAIChat, grader: Grader) -> None:
    grader.fails(type="fail", status=503, times=None)
    with pytest.raises(ModelUnavailable) as caught:
        await model.complete(request_for("outage"), AnswerOutput)
    assert caught.value.model_calls[0].attempts == ATTEMPTS
    assert grader.counts() == (ATTEMPTS, ATTEMPTS)
    assert grader.findings() == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_before_any_text_is_asked_for_again(model: OpenAIChat, grader: Grader, kind: str) -> None:
    # The first chunk has the role alone.
    grader.fails(type="stream_fault", kind=kind, after_chunks=1, times=2)
    end = await streamed(model, f"early {kind}")
    assert end.text
    assert end.usage.attempts == 3
    assert grader.counts() == (3, 2)
    assert grader.findings() == []


@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_stream_that_breaks_amid_the_text_is_an_error_and_never_an_answer(
    model: OpenAIChat, grader: Grader, kind: str
) -> None:
    grader.fails(type="stream_fault", kind=kind, after_chunks=3, times=1)
    # Text that was handed on can't be taken back, so the repetition is the caller's.
    with pytest.raises(ModelUnavailable) as caught:
        await streamed(model, f"late {kind}")
    assert caught.value.model_calls[0].attempts == 1
    # llmock hears that a stream was left with its next chunk, and takes only what comes behind that for a repetition.
    await asyncio.sleep(0.3)
    assert (await streamed(model, f"late {kind}")).text
    assert grader.counts() == (2, 1)
    assert grader.findings() == []


async def test_a_stream_that_stalls_is_left_at_the_deadline(llmock_url: str, grader: Grader) -> None:
    grader.fails(type="stream_fault", kind="stall", after_chunks=2, stall_seconds=20, times=1)
    async for client in opened(llmock_url, POLICY, seconds=1.5):
        with pytest.raises(ModelUnavailable) as caught:
            await streamed(client, "stall")
        assert caught.value.reason is Reason.MODEL_UNAVAILABLE
        assert caught.value.model_calls[0].latency_seconds < 3
    assert grader.findings() == []


async def test_the_grader_finds_a_client_that_never_gives_up(llmock_url: str, grader: Grader) -> None:
    # So that a report without findings means something.
    grader.fails(type="fail", status=503, times=None)
    async for client in opened(llmock_url, RetryPolicy(max_attempts=12, draw=lambda: 0.0)):
        with pytest.raises(ModelUnavailable):
            await client.complete(request_for("storm"), AnswerOutput)
    assert "retry_storm" in grader.findings()
