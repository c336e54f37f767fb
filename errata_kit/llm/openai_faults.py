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
    ModelTruncated,
    ModelUnavailable,
)
from errata_kit.llm.retry import retry_after_seconds
from errata_kit.llm.usage import TokenCount

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})
_KEY_CODES = frozenset({"invalid_api_key", "account_deactivated", "authentication_error"})
_RATE_CODES = frozenset({"rate_limit_exceeded", "rate_limit_error"})
_WORTH_REPEATING = frozenset({408, 409, 425})
_DETAIL_LIMIT = 2000


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed request means.

    Attributes:
        error: for the caller.
        retryable: the same request may succeed later.
        billable: the model may have worked, so that tokens were consumed although none were reported.
        tokens: what was consumed, where the endpoint said so.
    """

    error: ModelError
    retryable: bool = False
    billable: bool = False
    tokens: TokenCount | None = None


class ResponseTooLargeError(Exception):
    """A response body went over the client's bound."""


class StreamCutError(Exception):
    """A stream ended without saying why it did, so what it carried is not the whole."""


def classify(error: Exception) -> Failure:
    """Find out what an exception of the model libraries means; an unknown one means a malformed response."""
    import httpx2
    import openai
    from langchain_core.exceptions import ContextOverflowError

    links = list(_chain(error))
    detail = f"{type(error).__name__}: {error}"[:_DETAIL_LIMIT]
    if any(isinstance(link, ResponseTooLargeError) for link in links):
        return Failure(ModelOutputInvalid(metadata={"cause": "too_large"}, detail=detail), billable=True)
    if isinstance(error, StreamCutError):
        return _unavailable("stream_cut", detail, billable=True)
    if any(isinstance(link, ContextOverflowError) for link in links):
        return Failure(ModelContextExceeded(detail=detail))
    if isinstance(error, openai.LengthFinishReasonError):
        return Failure(ModelTruncated(detail=detail), billable=True, tokens=_reported(error))
    if isinstance(error, openai.ContentFilterFinishReasonError):
        return Failure(ModelFiltered(detail=detail), billable=True, tokens=_reported(error))
    for link in links:
        if isinstance(link, openai.APIStatusError):
            return _status_failure(link, detail)
        if isinstance(link, openai.APIConnectionError | httpx2.HTTPError):
            return _connection_failure(links, detail)
        if isinstance(link, openai.APIError):
            return _coded(_codes(link), detail) or _unavailable("error_in_body", detail, billable=True)
    return _malformed(error, detail)


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
    coded = _coded(_codes(error), detail, wait)
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


def _codes(error: Any) -> frozenset[str]:
    return frozenset(str(code) for code in (error.code, error.type) if code)


def _coded(codes: frozenset[str], detail: str, wait: float | None = None) -> Failure | None:
    if codes & _QUOTA_CODES:
        return Failure(ModelQuotaExhausted(detail=detail))
    if codes & _RATE_CODES:
        return Failure(ModelRateLimited(retry_after=wait, detail=detail), retryable=True)
    if codes & _FILTER_CODES:
        return Failure(ModelFiltered(detail=detail))
    if codes & _KEY_CODES:
        return Failure(ModelAuthenticationFailed(detail=detail))
    if "context_length_exceeded" in codes:
        return Failure(ModelContextExceeded(detail=detail))
    return None


def _malformed(error: Exception, detail: str) -> Failure:
    body = _body_of(error)
    problem = body.get("error")
    if isinstance(problem, dict):
        codes = frozenset(str(problem[key]) for key in ("code", "type") if problem.get(key))
        return _coded(codes, detail) or _unavailable("error_in_body", detail, billable=True)
    return _unavailable("malformed_response", detail, billable=True)


def _reported(error: Exception) -> TokenCount | None:
    usage = _body_of(error).get("usage")
    if not isinstance(usage, dict):
        return None
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return TokenCount(usage.get("prompt_tokens") or 0, cached, usage.get("completion_tokens") or 0)


def _body_of(error: Exception) -> dict[str, Any]:
    # langchain-openai hangs the response on errors that its parsing raises; nothing else keeps the usage.
    response = getattr(error, "response", None)
    try:
        body = response.json() if response is not None else {}
    except (ValueError, RuntimeError):
        return {}
    return body if isinstance(body, dict) else {}
