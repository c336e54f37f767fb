"""What the caller gets for every fault of a model endpoint: one error, its attempts, its usage, no leaks."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import pytest

from errata_kit.errors import ErrataError, ModelError, Reason
from tests.contract.model_clients import ATTEMPTS, VALID, Grade, chat_model, collect, embedder, request
from tests.harness.model_faults import (
    COMPLETION_FAULTS,
    EMBEDDING_FAULTS,
    HTTP_FAULTS,
    SECRET,
    TRANSPORT_FAULTS,
    content_faults,
)
from tests.harness.model_rules import Endpoint, Fault, Reply, Rule
from tests.harness.model_server import ModelServer


@dataclass(frozen=True)
class Expected:
    """What a fault comes to. `cause` is compared with the metadata where it is given."""

    reason: Reason
    attempts: int = 1
    cause: str | None = None


def once(reason: Reason, cause: str | None = None) -> Expected:
    return Expected(reason, 1, cause)


def repeated(reason: Reason, cause: str | None = None) -> Expected:
    return Expected(reason, ATTEMPTS, cause)


SHARED = {
    "http_400": once(Reason.MODEL_REQUEST_REJECTED),
    "http_400_content_filter": once(Reason.MODEL_FILTERED),
    "http_400_bad_schema": once(Reason.MODEL_REQUEST_REJECTED),
    "http_401": once(Reason.MODEL_AUTHENTICATION),
    "http_403": once(Reason.MODEL_AUTHENTICATION),
    "http_404": once(Reason.MODEL_REQUEST_REJECTED),
    "http_408": repeated(Reason.MODEL_UNAVAILABLE, "http_408"),
    "http_422": once(Reason.MODEL_REQUEST_REJECTED),
    "http_429": repeated(Reason.MODEL_RATE_LIMITED),
    "http_429_retry_after": repeated(Reason.MODEL_RATE_LIMITED),
    "http_429_retry_after_garbage": repeated(Reason.MODEL_RATE_LIMITED),
    "insufficient_quota": once(Reason.MODEL_QUOTA_EXHAUSTED),
    "http_500": repeated(Reason.MODEL_UNAVAILABLE, "http_500"),
    "http_502": repeated(Reason.MODEL_UNAVAILABLE, "http_502"),
    "http_503": repeated(Reason.MODEL_UNAVAILABLE, "http_503"),
    "context_length_exceeded": once(Reason.MODEL_CONTEXT_EXCEEDED),
    "close_before_headers": repeated(Reason.MODEL_UNAVAILABLE, "connection_lost"),
    "close_after_headers": repeated(Reason.MODEL_UNAVAILABLE, "connection_lost"),
    "close_mid_body": repeated(Reason.MODEL_UNAVAILABLE, "connection_lost"),
    "hang": once(Reason.MODEL_UNAVAILABLE, "timeout"),
    "hang_mid_body": once(Reason.MODEL_UNAVAILABLE, "timeout"),
    "slow_drip": once(Reason.MODEL_UNAVAILABLE, "timeout"),
    "html": repeated(Reason.MODEL_UNAVAILABLE, "malformed_response"),
}
COMPLETION = {
    "missing_choices": repeated(Reason.MODEL_UNAVAILABLE, "malformed_response"),
    "empty_choices": repeated(Reason.MODEL_UNAVAILABLE, "malformed_response"),
    "null_choices": repeated(Reason.MODEL_UNAVAILABLE, "malformed_response"),
    "huge_body": once(Reason.MODEL_OUTPUT_INVALID, "too_large"),
    "error_in_body": repeated(Reason.MODEL_UNAVAILABLE, "error_in_body"),
    "error_in_body_rate_limit": repeated(Reason.MODEL_RATE_LIMITED),
    "error_in_body_quota": once(Reason.MODEL_QUOTA_EXHAUSTED),
    "finish_length": once(Reason.MODEL_TRUNCATED),
    "content_filter": once(Reason.MODEL_FILTERED),
    "refusal": once(Reason.MODEL_REFUSED),
}
CONTENT = {
    "invalid_json": "json_invalid",
    "prose": "json_invalid",
    "empty_content": "empty",
    "fenced_json": "json_invalid",
    "json_array": "model_type",
    "json_null": "model_type",
    "missing_key": "missing",
    "wrong_type": "float_parsing",
    "extra_key": "extra_forbidden",
    "score_nan": "finite_number",
    "score_infinite": "finite_number",
    "score_above_one": "less_than_equal",
    "score_below_zero": "greater_than_equal",
    "score_in_percent": "less_than_equal",
}
STREAM = {
    **SHARED,
    **COMPLETION,
    # Once text was delivered a stream is not repeated.
    **{name: once(SHARED[name].reason, SHARED[name].cause) for name in ("close_mid_body",)},
    **{name: once(COMPLETION[name].reason) for name in ("error_in_body", "error_in_body_rate_limit")},
    "html": repeated(Reason.MODEL_UNAVAILABLE),
    "missing_choices": repeated(Reason.MODEL_UNAVAILABLE),
    "empty_choices": repeated(Reason.MODEL_UNAVAILABLE),
    "null_choices": repeated(Reason.MODEL_UNAVAILABLE),
}
EMBEDDING = {
    **SHARED,
    "vector_missing": once(Reason.EMBEDDING_FAILED, "count"),
    "vector_size": once(Reason.EMBEDDING_MISMATCH),
    "vector_nan": once(Reason.EMBEDDING_FAILED, "not_finite"),
    "vector_null": repeated(Reason.MODEL_UNAVAILABLE, "malformed_response"),
    "error_in_body": repeated(Reason.MODEL_UNAVAILABLE),
}
REPLIES = {**HTTP_FAULTS, **TRANSPORT_FAULTS, **COMPLETION_FAULTS}
INVALID = content_faults(VALID, "score")
SLOW = frozenset({"hang", "hang_mid_body", "slow_drip"})


def limit_for(name: str) -> dict[str, Any]:
    return {"timeout_seconds": 0.3} if name in SLOW else {}


def check(error: ModelError, expected: Expected, server: ModelServer, endpoint: Endpoint) -> None:
    assert error.reason is expected.reason, traceback.format_exception(error)
    assert len(server.calls(endpoint)) == expected.attempts
    if expected.cause is not None:
        assert error.metadata["cause"] == expected.cause
    for shown in (error.message, str(error), repr(error), *error.metadata.values(), *error.metadata):
        assert SECRET not in shown and "127.0.0.1" not in shown and "Error code" not in shown
    assert error.model_calls[0].attempts == expected.attempts
    assert error.model_calls[0].error is expected.reason


def test_every_fault_of_the_double_is_expected_here() -> None:
    assert {**SHARED, **COMPLETION}.keys() == REPLIES.keys()
    assert CONTENT.keys() == INVALID.keys()
    assert EMBEDDING.keys() == {**HTTP_FAULTS, **TRANSPORT_FAULTS, **EMBEDDING_FAULTS}.keys()


@pytest.mark.parametrize("name", sorted(REPLIES))
async def test_a_structured_answer_fails_with_one_reason(name: str) -> None:
    expected = {**SHARED, **COMPLETION}[name]
    async with ModelServer([Rule(REPLIES[name])]) as server, chat_model(server, **limit_for(name)) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request(), Grade)
        check(caught.value, expected, server, Endpoint.CHAT)


@pytest.mark.parametrize("name", sorted(INVALID))
async def test_content_that_is_no_instance_is_never_a_verdict(name: str) -> None:
    async with ModelServer([Rule(INVALID[name])]) as server, chat_model(server) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request(), Grade)
        check(caught.value, once(Reason.MODEL_OUTPUT_INVALID, CONTENT[name]), server, Endpoint.CHAT)
        assert caught.value.model_calls[0].output_tokens > 0


@pytest.mark.parametrize("name", sorted(REPLIES))
async def test_a_stream_fails_with_one_reason(name: str) -> None:
    deltas: list[str] = []
    async with ModelServer([Rule(REPLIES[name])]) as server, chat_model(server, **limit_for(name)) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model, request(), deltas)
        check(caught.value, STREAM[name], server, Endpoint.CHAT)
    assert not deltas or STREAM[name].attempts == 1


@pytest.mark.parametrize("name", sorted(EMBEDDING))
async def test_an_embedding_fails_with_one_reason(name: str) -> None:
    reply = {**REPLIES, **EMBEDDING_FAULTS}[name]
    rules = [Rule(reply, endpoint=Endpoint.EMBEDDINGS)]
    async with ModelServer(rules) as server, embedder(server, **limit_for(name)) as client:
        with pytest.raises(ModelError) as caught:
            await client.embed(["one text", "another text"])
        check(caught.value, EMBEDDING[name], server, Endpoint.EMBEDDINGS)


async def test_an_unreachable_endpoint_is_unavailable_and_costs_nothing() -> None:
    async with ModelServer() as server:
        pass
    async with chat_model(server) as model:
        with pytest.raises(ModelError) as caught:
            await model.complete(request(), Grade)
    usage = caught.value.model_calls[0]
    assert caught.value.reason is Reason.MODEL_UNAVAILABLE
    assert caught.value.metadata == {"cause": "unreachable"}
    assert usage is not None and usage.attempts == ATTEMPTS and usage.input_tokens == 0


async def test_a_stream_cut_without_finish_reason_is_an_error_after_its_deltas() -> None:
    deltas: list[str] = []
    rules = [Rule(Reply("one two three four", fault=Fault.STREAM_CUT))]
    async with ModelServer(rules) as server, chat_model(server) as model:
        with pytest.raises(ModelError) as caught:
            await collect(model, request(), deltas)
        check(caught.value, once(Reason.MODEL_UNAVAILABLE, "stream_cut"), server, Endpoint.CHAT)
    assert deltas and caught.value.model_calls[0].estimated


@pytest.mark.parametrize("name", ["http_429", "http_503", "close_before_headers", "html", "null_choices"])
async def test_a_passing_fault_is_invisible_to_the_caller(name: str) -> None:
    rules = [
        Rule(REPLIES[name], times=ATTEMPTS - 1),
        Rule(Reply('{"score":1,"relevant":true,"reasoning":""}')),
    ]
    async with ModelServer(rules) as server, chat_model(server) as model:
        completion = await model.complete(request(), Grade)
        assert completion.value.score == 1 and completion.usage.attempts == ATTEMPTS
    async with ModelServer(rules) as server, chat_model(server) as model:
        deltas: list[str] = []
        end = await collect(model, request(), deltas)
        assert end.text == "".join(deltas) and end.usage.attempts == ATTEMPTS


def test_the_message_of_an_error_is_its_own() -> None:
    error = ErrataError(detail=SECRET)
    assert SECRET not in str(error) and error.metadata == {} and error.retry_after is None
