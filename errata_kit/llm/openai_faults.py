"""Everything an OpenAI-compatible endpoint does wrong, translated into the one error that says so."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from errata_kit.errors import (
    ModelAuthenticationFailed,
    ModelContextExceeded,
    ModelError,
    ModelFiltered,
    ModelOutputInvalid,
    ModelQuotaExhausted,
    ModelRateLimited,
    ModelRequestRejected,
    ModelUnavailable,
)
from errata_kit.llm.retry import retry_after_seconds

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})
_KEY_CODES = frozenset({"invalid_api_key", "account_deactivated", "authentication_error"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error"})
_CONTEXT_CODE = "context_length_exceeded"
# Servers that have no code for it say it in words: OpenAI in a stream, LiteLLM, Anthropic, vLLM.
_CONTEXT_WORDS = (
    _CONTEXT_CODE,
    "Input tokens exceed the configured limit",
    "exceeds the context window",
    "prompt is too long",
    "ContextWindowExceededError",
    "maximum context length",
)
_WORTH_REPEATING = frozenset({408, 409, 425})
_DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed request means.

    Attributes:
        error: for the caller.
        retryable: the same request may succeed later.
        billable: the model may have worked, so that tokens were consumed although none were reported.
    """

    error: ModelError
    retryable: bool = False
    billable: bool = False


class ResponseTooLargeError(Exception):
    """A response body went over the client's bound."""


class StreamCutError(Exception):
    """A stream ended without saying why it did, so what it carried is not the whole."""


def classify(error: Exception) -> Failure:
    """Find out what an exception of the model libraries means; an unknown one means a malformed response."""
    import httpx2
    import openai

    links = list(_chain(error))
    detail = f"{type(error).__name__}: {error}"[:_DETAIL_LIMIT]
    if any(isinstance(link, ResponseTooLargeError) for link in links):
        return Failure(ModelOutputInvalid(metadata={"cause": "too_large"}, detail=detail), billable=True)
    if isinstance(error, StreamCutError):
        return _unavailable("stream_cut", detail, billable=True)
    for link in links:
        if isinstance(link, openai.APIStatusError):
            return _status_failure(link, detail)
        if isinstance(link, openai.APIConnectionError | httpx2.HTTPError):
            return _connection_failure(links, detail)
        if isinstance(link, openai.APIError):
            return _coded(link, detail) or _unavailable("error_in_body", detail, billable=True)
    return _unavailable("malformed_response", detail, billable=True)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _unavailable(cause: str, detail: str, *, billable: bool = False, wait: float | None = None) -> Failure:
    error = ModelUnavailable(metadata={"cause": cause}, retry_after=wait, detail=detail)
    return Failure(error, retryable=True, billable=billable)


def _status_failure(error: Any, detail: str) -> Failure:
    status: int = error.status_code
    wait = retry_after_seconds(error.response.headers)
    coded = _coded(error, detail, wait)
    if coded is not None:
        return coded
    if status == 402:
        return Failure(ModelQuotaExhausted(detail=detail))
    if status in (401, 403):
        return Failure(ModelAuthenticationFailed(detail=detail))
    if status == 429:
        return Failure(ModelRateLimited(retry_after=wait, detail=detail), retryable=True)
    if status in _WORTH_REPEATING or status >= 500:
        return _unavailable(f"http_{status}", detail, wait=wait)
    return Failure(ModelRequestRejected(metadata={"status": str(status)}, detail=detail))


def _connection_failure(links: list[BaseException], detail: str) -> Failure:
    import httpx2

    # Nothing reached the endpoint when the connection was never made, so nothing can have been billed.
    unsent = any(isinstance(link, httpx2.ConnectError | httpx2.ConnectTimeout) for link in links)
    return _unavailable("unreachable" if unsent else "connection_lost", detail, billable=not unsent)


def _coded(error: Any, detail: str, wait: float | None = None) -> Failure | None:
    codes = {str(code) for code in (error.code, error.type) if code}
    if _CONTEXT_CODE in codes or any(words in error.message for words in _CONTEXT_WORDS):
        return Failure(ModelContextExceeded(detail=detail))
    if codes & _QUOTA_CODES:
        return Failure(ModelQuotaExhausted(detail=detail))
    if codes & _RATE_CODES:
        return Failure(ModelRateLimited(retry_after=wait, detail=detail), retryable=True)
    if codes & _FILTER_CODES:
        return Failure(ModelFiltered(detail=detail))
    if codes & _KEY_CODES:
        return Failure(ModelAuthenticationFailed(detail=detail))
    return None
