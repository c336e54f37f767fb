"""How the model clients behave when the endpoint works: usage, deadlines, cancelling, concurrency."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import aclosing, suppress

import pytest

from errata_kit.errors import (
    ModelDeadlineExceeded,
    ModelError,
    ModelRateLimited,
    ModelUnavailable,
    Reason,
)
from errata_kit.llm.chat import StreamEnd, TextDelta
from errata_kit.llm.openai_chat import OpenAIChat
from errata_kit.usage import ModelCall
from tests.contract.model_clients import SIZE, Grade, chat_model, collect, embedder, request, settings
from tests.harness.model_faults import rate_limited
from tests.harness.model_rules import (
    ChatRequest,
    EmbeddingsRequest,
    Endpoint,
    Exchange,
    Fault,
    Reply,
    Rule,
    TokenCounts,
    overlapping,
)
from tests.harness.model_server import ModelServer, with_latency
from tests.harness.model_wire import vector_of

ANSWER = '{"score": 0.9, "relevant": true, "reasoning": "yes"}'
HANG = Rule(Reply(fault=Fault.HANG))


def closed(exchange: Exchange) -> bool:
    return exchange.closed_by_client


async def test_a_completion_is_asked_for_by_schema_at_temperature_zero() -> None:
    async with ModelServer([Rule(Reply(ANSWER))]) as server, chat_model(server) as model:
        completion = await model.complete(request(max_output_tokens=50), Grade)
        asked = server.journal[0].request
    assert completion.value == Grade(score=0.9, relevant=True, reasoning="yes")
    assert isinstance(asked, ChatRequest)
    assert asked.schema_name == "Grade" and asked.temperature == 0 and not asked.stream
    assert asked.raw["response_format"]["json_schema"]["strict"] is True
    assert asked.raw["max_completion_tokens"] == 50
    assert [message.role for message in asked.messages] == ["system", "user"]


@pytest.mark.parametrize(
    ("of_the_operator", "of_the_call", "sent"), [(None, None, None), (40, None, 40), (40, 50, 40), (60, 50, 50)]
)
async def test_the_longest_answer_is_bounded_by_the_operator_and_by_the_call(
    of_the_operator: int | None, of_the_call: int | None, sent: int | None
) -> None:
    async with ModelServer([Rule(Reply(ANSWER))]) as server, chat_model(server, max_output_tokens=of_the_operator) as model:
        await model.complete(request(max_output_tokens=of_the_call), Grade)
        await collect(model, request(max_output_tokens=of_the_call), [])
    for exchange in server.journal:
        assert isinstance(exchange.request, ChatRequest)
        assert exchange.request.raw.get("max_completion_tokens") == sent


async def test_an_address_without_a_key_works_and_a_key_is_sent() -> None:
    async with ModelServer([Rule(Reply(ANSWER))]) as server:
        async with chat_model(server) as model:
            await model.complete(request(), Grade)
        async with chat_model(server, api_key="sk-test") as model:
            await model.complete(request(), Grade)
        keys = [exchange.headers["authorization"] for exchange in server.journal]
    assert keys == ["Bearer no-key-needed", "Bearer sk-test"]


async def test_usage_names_tokens_cached_tokens_and_cost() -> None:
    usages: list[ModelCall] = []
    reply = Reply(ANSWER, usage=TokenCounts(1000, 100, 400), model="gpt-4o-mini-2024-07-18")
    async with ModelServer([Rule(reply)]) as server, chat_model(server, usages) as model:
        completion = await model.complete(request(), Grade)
        end = await collect(model, request(), [])
    assert usages == [completion.usage, end.usage]
    for usage in usages:
        assert (usage.input_tokens, usage.cached_input_tokens, usage.output_tokens) == (1000, 400, 100)
        # gpt-4o-mini, dollars per million tokens: input 0.15, cached input 0.075, output 0.60.
        assert usage.cost_micros == 180 and not usage.estimated
        assert usage.model == "gpt-4o-mini" and usage.served_model == "gpt-4o-mini-2024-07-18"
        assert usage.operation == "grade_passage" and usage.prompt_version == "0123456789ab"
        assert usage.attempts == 1 and usage.error is None and usage.latency_seconds > 0


async def test_missing_usage_is_estimated_and_says_so() -> None:
    asked = request("x" * 4300)
    async with ModelServer([Rule(Reply(ANSWER, usage=None))]) as server, chat_model(server) as model:
        for usage in ((await model.complete(asked, Grade)).usage, (await collect(model, asked, [])).usage):
            assert usage.estimated and usage.input_tokens == pytest.approx(1000, abs=5)
            assert usage.output_tokens == pytest.approx(len(ANSWER) / 4.3, abs=1)
            assert usage.cost_micros is not None and usage.cost_micros > 0


async def test_an_unknown_model_has_no_price() -> None:
    async with ModelServer([Rule(Reply(ANSWER))]) as server, chat_model(server, model="house-7b") as model:
        completion = await model.complete(request(), Grade)
    assert completion.usage.cost_micros is None and completion.usage.input_tokens > 0


@pytest.mark.parametrize("finish", ["length", "content_filter"])
async def test_a_failed_call_reports_what_it_consumed(finish: str) -> None:
    usages: list[ModelCall] = []
    counted = Reply("{", finish_reason=finish, usage=TokenCounts(90, 40, 10))
    async with ModelServer([Rule(counted)]) as server, chat_model(server, usages) as model:
        with pytest.raises(ModelError) as whole:
            await model.complete(request(), Grade)
        with pytest.raises(ModelError) as streamed:
            await collect(model, request(), [])
    assert usages == [whole.value.model_calls[0], streamed.value.model_calls[0]]
    assert [(u.input_tokens, u.cached_input_tokens, u.output_tokens) for u in usages] == [(90, 10, 40)] * 2
    assert all(not usage.estimated and usage.cost_micros for usage in usages)


async def test_a_refused_request_consumed_nothing() -> None:
    async with ModelServer([Rule(rate_limited())]) as server, chat_model(server) as model:
        with pytest.raises(ModelRateLimited) as caught:
            await model.complete(request(), Grade)
    usage = caught.value.model_calls[0]
    assert usage is not None and usage.input_tokens == 0 and usage.cost_micros == 0 and not usage.estimated


async def test_a_stream_delivers_text_as_it_comes() -> None:
    reply = Reply("one two three", first_token_delay=0.05, tokens_per_second=20)
    async with ModelServer([Rule(reply)]) as server, chat_model(server) as model:
        moments = []
        async with aclosing(model.stream(request())) as events:
            seen = []
            async for event in events:
                seen.append(event)
                moments.append(time.monotonic())
    assert seen[:-1] == [TextDelta("one"), TextDelta(" two"), TextDelta(" three")]
    assert isinstance(seen[-1], StreamEnd) and seen[-1].text == "one two three"
    assert moments[1] - moments[0] > 0.02


async def test_cancelling_a_completion_closes_its_request() -> None:
    usages: list[ModelCall] = []
    async with ModelServer([HANG]) as server, chat_model(server, usages) as model:
        call = asyncio.create_task(model.complete(request(), Grade))
        await server.wait_for(lambda exchange: exchange.open)
        started = time.monotonic()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.wait_for(closed, timeout=1)
        assert time.monotonic() - started < 1
    assert [usage.error for usage in usages] == [Reason.CANCELLED]
    assert usages[0].estimated and usages[0].input_tokens > 0


@pytest.mark.parametrize("deltas_before", [0, 2])
async def test_cancelling_a_stream_closes_its_request(deltas_before: int) -> None:
    usages: list[ModelCall] = []
    fault = Fault.HANG_MID_BODY if deltas_before else Fault.HANG
    reply = Reply("a b c d e f", fault=fault)
    delivered = asyncio.Semaphore(0)

    async def read(model: OpenAIChat) -> None:
        async with aclosing(model.stream(request())) as events:
            async for _ in events:
                delivered.release()

    async with ModelServer([Rule(reply)]) as server, chat_model(server, usages) as model:
        call = asyncio.create_task(read(model))
        await server.wait_for(lambda exchange: exchange.open)
        for _ in range(deltas_before):
            await delivered.acquire()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.wait_for(closed, timeout=1)
    assert [usage.error for usage in usages] == [Reason.CANCELLED]


async def test_leaving_a_stream_early_closes_its_request() -> None:
    usages: list[ModelCall] = []
    reply = Reply("word " * 1000, tokens_per_second=50)
    async with ModelServer([Rule(reply)]) as server, chat_model(server, usages) as model:
        async with aclosing(model.stream(request())) as events:
            async for _ in events:
                break
        await server.wait_for(closed, timeout=1)
    assert [usage.error for usage in usages] == [Reason.CANCELLED]


async def test_a_call_during_the_pause_between_attempts_can_be_cancelled() -> None:
    rules = [Rule(rate_limited("30"))]
    async with ModelServer(rules) as server, chat_model(server, timeout_seconds=60) as model:
        call = asyncio.create_task(model.complete(request(), Grade))
        await server.wait_for(lambda exchange: not exchange.open)
        await asyncio.sleep(0.05)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(server.journal) == 1


async def test_the_callers_deadline_is_not_the_models_slowness() -> None:
    async with ModelServer([HANG]) as server, chat_model(server, timeout_seconds=0.2) as model:
        with pytest.raises(ModelDeadlineExceeded) as callers:
            await model.complete(request(timeout_seconds=0.1), Grade)
        with pytest.raises(ModelUnavailable) as own:
            await model.complete(request(timeout_seconds=10), Grade)
        with pytest.raises(ModelDeadlineExceeded):
            await collect(model, request(timeout_seconds=0.1), [])
        with pytest.raises(ModelDeadlineExceeded) as late:
            await model.complete(request(timeout_seconds=-1), Grade)
        assert all(exchange.closed_by_client for exchange in server.journal)
    assert callers.value.reason is Reason.DEADLINE_EXCEEDED
    assert own.value.metadata == {"cause": "timeout"}
    assert late.value.model_calls[0].attempts <= 1


async def test_a_consumer_that_dawdles_is_not_cancelled_by_the_deadline() -> None:
    async with ModelServer([Rule(Reply("a b c"))]) as server, chat_model(server) as model:
        with pytest.raises(ModelDeadlineExceeded):
            async with aclosing(model.stream(request(timeout_seconds=0.1))) as events:
                async for _ in events:
                    await asyncio.sleep(0.15)


async def test_retry_after_is_waited_for() -> None:
    rules = [Rule(rate_limited("0.3"), times=1), Rule(Reply(ANSWER))]
    async with ModelServer(rules) as server, chat_model(server) as model:
        completion = await model.complete(request(), Grade)
        first, second = server.journal
        assert first.finished is not None and 0.3 <= second.started - first.finished < 0.6
    assert completion.usage.attempts == 2 and completion.usage.latency_seconds >= 0.3


async def test_retry_after_beyond_the_deadline_fails_at_once() -> None:
    async with ModelServer([Rule(rate_limited("20"))]) as server, chat_model(server) as model:
        for failing in (model.complete(request(), Grade), collect(model, request(), [])):
            started = time.monotonic()
            with pytest.raises(ModelRateLimited) as caught:
                await failing
            assert time.monotonic() - started < 1 and caught.value.retry_after == 20
        assert len(server.journal) == 2


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    slow = with_latency(lambda _: Reply(ANSWER), 0.05)
    async with ModelServer(default=slow) as server, chat_model(server, max_concurrency=3) as model:
        whole = [model.complete(request(), Grade) for _ in range(6)]
        streams = [collect(model, request(), []) for _ in range(6)]
        await asyncio.gather(*whole, *streams)
        assert len(server.journal) == 12 and overlapping(server.journal) == 3
        assert server.connections <= 3


async def test_a_failed_or_cancelled_call_gives_its_slot_back() -> None:
    rules = [Rule(Reply(fault=Fault.HANG), times=2), Rule(Reply("no JSON"), times=1), Rule(Reply(ANSWER))]
    async with ModelServer(rules) as server, chat_model(server, max_concurrency=1) as model:
        brief = request(timeout_seconds=0.1)
        for failing in (model.complete(brief, Grade), collect(model, brief, [])):
            with pytest.raises(ModelDeadlineExceeded):
                await failing
        with suppress(ModelError):
            await model.complete(request(), Grade)
        assert (await model.complete(request(timeout_seconds=2), Grade)).value.relevant


async def test_waiting_for_a_slot_counts_against_the_deadline() -> None:
    async with ModelServer([HANG]) as server, chat_model(server, max_concurrency=1) as model:
        first = asyncio.create_task(model.complete(request(timeout_seconds=0.5), Grade))
        await server.wait_for(lambda exchange: exchange.open)
        with pytest.raises(ModelDeadlineExceeded) as caught:
            await model.complete(request(timeout_seconds=0.1), Grade)
        with pytest.raises(ModelDeadlineExceeded):
            await first
    assert caught.value.model_calls[0].attempts == 0
    assert caught.value.model_calls[0].input_tokens == 0


async def test_connections_are_kept_alive() -> None:
    async with ModelServer([Rule(Reply(ANSWER))]) as server, chat_model(server) as model:
        for _ in range(3):
            await model.complete(request(), Grade)
            await collect(model, request(), [])
        assert server.connections == 1


def test_one_client_serves_several_event_loops() -> None:
    async def run(model: OpenAIChat | None) -> OpenAIChat:
        # The second time the server takes the same port again, so that the client's settings still hold.
        async with server:
            model = model or OpenAIChat(settings(server))
            await model.complete(request(), Grade)
            await model.aclose()
            return model

    server = ModelServer([Rule(Reply(ANSWER))])
    asyncio.run(run(asyncio.run(run(None))))
    assert len(server.journal) == 2


async def test_nothing_is_built_before_the_first_call() -> None:
    async with ModelServer() as server:
        model = OpenAIChat(settings(server))
        await model.aclose()
        assert not server.journal


async def test_embeddings_come_in_order_in_bounded_batches() -> None:
    usages: list[ModelCall] = []
    texts = [f"text number {number}" for number in range(200)]
    async with ModelServer() as server, embedder(server, usages) as client:
        embedded = await client.embed(texts)
        assert (await client.embed([])).vectors == ()
        asked = [exchange.request for exchange in server.calls(Endpoint.EMBEDDINGS)]
        sizes = [len(one.inputs) for one in asked if isinstance(one, EmbeddingsRequest)]
        assert sorted(sizes) == [8, 96, 96]
    assert len(embedded.vectors) == 200 and client.dimensions == SIZE
    for text, vector in zip(texts, embedded.vectors, strict=True):
        assert vector == pytest.approx(list(vector_of(text, SIZE)), abs=1e-6)
    assert set(usages) == set(embedded.usages) and all(usage.cost_micros and not usage.estimated for usage in usages)


async def test_a_failed_batch_stops_the_others() -> None:
    rules = [
        Rule(Reply(fault=Fault.VECTOR_NAN), endpoint=Endpoint.EMBEDDINGS, times=1),
        Rule(Reply(fault=Fault.HANG), endpoint=Endpoint.EMBEDDINGS),
    ]
    async with ModelServer(rules) as server, embedder(server) as client:
        async with asyncio.timeout(2):
            with pytest.raises(ModelError) as caught:
                await client.embed(["text"] * 200)
        assert caught.value.reason is Reason.EMBEDDING_FAILED
        hung = server.journal[1:]
        await server.wait_for(lambda _: all(map(closed, hung)), timeout=1)


async def test_cancelling_an_embedding_closes_its_requests() -> None:
    rules = [Rule(Reply(fault=Fault.HANG), endpoint=Endpoint.EMBEDDINGS)]
    async with ModelServer(rules) as server, embedder(server) as client:
        call = asyncio.create_task(client.embed(["text"] * 100))
        await server.wait_for(lambda _: len(server.journal) == 2)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.wait_for(lambda _: all(map(closed, server.journal)), timeout=1)


async def test_no_task_outlives_the_calls() -> None:
    async with ModelServer([HANG]) as server, chat_model(server) as model:
        with suppress(ModelError):
            await model.complete(request(timeout_seconds=0.05), Grade)
        with suppress(ModelError):
            await collect(model, request(timeout_seconds=0.05), [])
    await asyncio.sleep(0.05)
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
