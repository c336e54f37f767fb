"""Every way a model endpoint is known to misbehave, by name, as replies of the model double."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from tests.harness.model_rules import ApiError, Fault, Reply, Rule, TokenCounts

SECRET = "sk-driver-secret-text"
"""Stands in every error text of the catalogue, so that a test can show it reaches no caller."""

_QUOTA = ApiError(f"You exceeded your current quota {SECRET}", "insufficient_quota", "insufficient_quota")
_LIMIT = ApiError(f"Rate limit reached {SECRET}", "requests", "rate_limit_exceeded")
_CONTEXT = ApiError(
    f"This model's maximum context length is 128000 tokens {SECRET}",
    "invalid_request_error",
    "context_length_exceeded",
)


def http_error(status: int, kind: str = "server_error", code: str | None = None) -> Reply:
    """An HTTP error with an OpenAI error body."""
    return Reply(status=status, error=ApiError(f"failed with {status} {SECRET}", kind, code))


def rate_limited(retry_after: str | None = None) -> Reply:
    """429 because of too many requests; `retry_after` is the header's text."""
    return Reply(status=429, error=_LIMIT, retry_after=retry_after)


def quota_exhausted() -> Reply:
    """429 because the account has no money left: waiting does not help."""
    return Reply(status=429, error=_QUOTA)


def context_exceeded() -> Reply:
    """400 because the prompt is longer than the model's window."""
    return Reply(status=400, error=_CONTEXT)


HTTP_FAULTS: Mapping[str, Reply] = {
    "http_400": http_error(400, "invalid_request_error"),
    "http_400_content_filter": http_error(400, "invalid_request_error", "content_filter"),
    "http_400_bad_schema": Reply(
        status=400,
        error=ApiError(f"Invalid schema for response_format {SECRET}", "invalid_request_error"),
    ),
    "http_401": http_error(401, "invalid_request_error", "invalid_api_key"),
    "http_403": http_error(403, "permission_denied"),
    "http_404": http_error(404, "invalid_request_error", "model_not_found"),
    "http_408": http_error(408),
    "http_422": http_error(422, "invalid_request_error"),
    "http_429": rate_limited(),
    "http_429_retry_after": rate_limited("0"),
    "http_429_retry_after_garbage": rate_limited("soon"),
    "insufficient_quota": quota_exhausted(),
    "http_500": http_error(500),
    "http_502": http_error(502),
    "http_503": http_error(503),
    "context_length_exceeded": context_exceeded(),
}
"""Answers with an HTTP status other than 200; the same for unary calls, streams and embeddings."""

TRANSPORT_FAULTS: Mapping[str, Reply] = {
    "close_before_headers": Reply(fault=Fault.CLOSE_BEFORE_HEADERS),
    "close_after_headers": Reply(fault=Fault.CLOSE_AFTER_HEADERS),
    "close_mid_body": Reply("one two three four five six", fault=Fault.CLOSE_MID_BODY),
    "hang": Reply(fault=Fault.HANG),
    "hang_mid_body": Reply("one two three four five six", fault=Fault.HANG_MID_BODY),
    "slow_drip": Reply("one two three four five six", fault=Fault.SLOW_DRIP, drip=0.05),
    "html": Reply(fault=Fault.HTML),
}
"""The connection or the body's framing breaks; the same for unary calls, streams and embeddings."""

COMPLETION_FAULTS: Mapping[str, Reply] = {
    "missing_choices": Reply("{}", fault=Fault.MISSING_CHOICES),
    "empty_choices": Reply("{}", fault=Fault.EMPTY_CHOICES),
    "null_choices": Reply("{}", fault=Fault.NULL_CHOICES),
    "huge_body": Reply("{}", fault=Fault.HUGE_BODY),
    "error_in_body": Reply("a b c d", fault=Fault.ERROR_IN_BODY, error=ApiError(f"engine {SECRET}")),
    "error_in_body_rate_limit": Reply("a b c d", fault=Fault.ERROR_IN_BODY, error=_LIMIT),
    "error_in_body_quota": Reply("a b c d", fault=Fault.ERROR_IN_BODY, error=_QUOTA),
    "finish_length": Reply(f'{{"a": "{SECRET} ', finish_reason="length", usage=TokenCounts(90, 40)),
    "content_filter": Reply(f"{SECRET}", finish_reason="content_filter", usage=TokenCounts(90, 40)),
    "refusal": Reply(refusal=f"I can't help with {SECRET}.", usage=TokenCounts(90, 40)),
}
"""A completion that has no usable answer in it, whole or streamed."""

EMBEDDING_FAULTS: Mapping[str, Reply] = {
    "vector_missing": Reply(fault=Fault.VECTOR_MISSING),
    "vector_size": Reply(fault=Fault.VECTOR_SIZE),
    "vector_nan": Reply(fault=Fault.VECTOR_NAN),
    "vector_null": Reply(fault=Fault.VECTOR_NULL),
    "error_in_body": Reply(fault=Fault.ERROR_IN_BODY, error=ApiError(f"engine {SECRET}")),
}
"""An embeddings answer with the wrong vectors in it."""


def content_faults(valid: Mapping[str, object], score: str) -> dict[str, Reply]:
    """Answers whose content is no instance of the schema.

    Args:
        valid: an instance that the schema accepts.
        score: the name of its number that is bounded to 0 to 1.
    """

    def changed(**values: object) -> Reply:
        return Reply(json.dumps({**valid, **values}))

    text = json.dumps(valid)
    return {
        "invalid_json": Reply(text[:-1] + f', "{SECRET}'),
        "prose": Reply(f"Sure! {SECRET} looks relevant, I would say 0.9."),
        "empty_content": Reply(""),
        "fenced_json": Reply(f"```json\n{text}\n```"),
        "json_array": Reply(f"[{text}]"),
        "json_null": Reply("null"),
        "missing_key": Reply(json.dumps({key: valid[key] for key in valid if key != score})),
        "wrong_type": changed(**{score: SECRET}),
        "extra_key": changed(**{SECRET: 1}),
        "score_nan": changed(**{score: float("nan")}),
        "score_infinite": changed(**{score: float("inf")}),
        "score_above_one": changed(**{score: 1.5}),
        "score_below_zero": changed(**{score: -0.1}),
        "score_in_percent": changed(**{score: 85}),
    }


def _flaky() -> list[Rule]:
    return [
        Rule(rate_limited("0"), "flaky-429", times=1),
        Rule(http_error(503), "flaky-503", times=1),
        Rule(Reply(fault=Fault.CLOSE_BEFORE_HEADERS), "flaky-close", times=1),
    ]


SCRIPTS: Mapping[str, Callable[[], list[Rule]]] = {
    "default": list,
    "flaky": _flaky,
    "hang": lambda: [Rule(Reply(fault=Fault.HANG), "hang")],
    "rate-limited": lambda: [Rule(rate_limited("1"), "rate-limited")],
    "quota": lambda: [Rule(quota_exhausted(), "quota")],
    "down": lambda: [Rule(http_error(503), "down")],
    "invalid": lambda: [Rule(Reply("not JSON at all"), "invalid")],
    "refusing": lambda: [Rule(Reply(refusal="I can't help with that."), "refusing")],
}
"""Rule sets that the command line knows by name; `flaky` fails three calls and then answers."""
