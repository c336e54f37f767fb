"""What an OpenAI-compatible endpoint sends, read strictly where an answer depends on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from errata_kit.llm.usage import TokenCount

if TYPE_CHECKING:
    import httpx2
    from openai import APIStatusError, AsyncStream

    from errata_kit.llm.openai_connection import Endpoint


class Part(BaseModel):
    """The base of everything that an endpoint sends; what it adds to the API is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class PromptTokensDetails(Part):
    """How much of the prompt came from the provider's cache."""

    cached_tokens: int | None = Field(default=None, ge=0)


class Usage(Part):
    """The tokens of one request. An embeddings answer has no `completion_tokens`."""

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(default=0, ge=0)
    prompt_tokens_details: PromptTokensDetails | None = None

    def count(self) -> TokenCount:
        """The same, as usage records take it."""
        details = self.prompt_tokens_details
        return TokenCount(self.prompt_tokens, (details and details.cached_tokens) or 0, self.completion_tokens)


def _readable_or_none(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    # An answer is not thrown away for its bill: tokens that can't be read are estimated.
    try:
        return read(value)
    except ValidationError:
        return None


OptionalUsage = Annotated[Usage | None, WrapValidator(_readable_or_none)]


class Reply(Part):
    """What every answer may carry."""

    model: str | None = None
    usage: OptionalUsage = None
    error: Any = None

    @property
    def tokens(self) -> TokenCount | None:
        """The tokens that the endpoint reports, if it does."""
        return self.usage.count() if self.usage is not None else None


class Message(Part):
    """An answer, or the next piece of one."""

    content: str | None = None
    refusal: str | None = None


class Choice(Part):
    """One whole answer."""

    message: Message
    finish_reason: str | None = None


class ChatReply(Reply):
    """A whole chat completion. Without choices it is malformed, unless it has an error in their place."""

    choices: list[Choice] | None = None


class ChunkChoice(Part):
    """What a piece of a stream adds to an answer."""

    delta: Message | None = None
    finish_reason: str | None = None


class ChatChunk(Reply):
    """A piece of a streamed chat completion. The last one has the usage, and no choices."""

    choices: list[ChunkChoice] | None = None


class Vector(Part):
    """An embedding: numbers, or their bytes as 32-bit floats, the lowest byte first, in base64."""

    embedding: str | list[float]
    index: int | None = None


class EmbeddingsReply(Reply):
    """The embeddings of one batch."""

    data: list[Vector] | None = None


class MalformedReplyError(Exception):
    """An answer in the right form that lacks what was asked for."""


R = TypeVar("R", bound=Reply)


async def ask(endpoint: Endpoint, path: str, body: Mapping[str, Any], schema: type[R]) -> R:
    """Post a request and read its whole answer.

    This goes past the library's client, which builds each request three times over; its errors are kept.

    Raises:
        openai.APIError: the request failed, or the body is an error in spite of its status.
        httpx2.HTTPError: no answer arrived.
        ValidationError: the body is not what the API promises.
    """
    import openai

    content = json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    response = await endpoint.http.post(endpoint.url + path, content=content, headers=endpoint.headers)
    if not response.is_success:
        raise _status_error(response)
    reply = schema.model_validate_json(response.content)
    if reply.error:
        message = reply.error.get("message") if isinstance(reply.error, dict) else reply.error
        raise openai.APIError(str(message), response.request, body=reply.error)
    return reply


def _status_error(response: httpx2.Response) -> APIStatusError:
    """What the library's client would raise. An error's code stands in its `error` object, or in the body itself."""
    import openai

    try:
        body = response.json()
    except (ValueError, RecursionError):
        body = response.text
    error = body.get("error", body) if isinstance(body, dict) else body
    message = error.get("message") if isinstance(error, dict) else None
    said = f" - {message}" if isinstance(message, str) and message else ""
    return openai.APIStatusError(f"Error code: {response.status_code}{said}", response=response, body=error)


async def ask_stream(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> AsyncStream[object]:
    """Post a request and return its server-sent events as parsed JSON; close it when giving up early.

    Raises:
        openai.APIError: here if the request failed, from the stream if that carries an error.
    """
    import openai

    return await endpoint.client.post(
        path, cast_to=object, body={**body, "stream": True}, stream=True, stream_cls=openai.AsyncStream[object]
    )
