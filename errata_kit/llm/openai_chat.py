"""Chat models behind an OpenAI-compatible API, through langchain-openai."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from errata_kit.errors import (
    ModelFiltered,
    ModelOutputInvalid,
    ModelRefused,
    ModelTruncated,
)
from errata_kit.llm.call import Call, CallPlan, CallRules
from errata_kit.llm.chat import ChatRequest, Completion, M, ModelOutput, StreamEnd, StreamEvent, TextDelta
from errata_kit.llm.openai_connection import Endpoint, OpenAIConnection
from errata_kit.llm.openai_faults import StreamCutError
from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings
from errata_kit.llm.usage import TokenCount, UsageRecorder, ignore_usage

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_openai import ChatOpenAI

_MAX_RESPONSE_BYTES = 8 * 1024 * 1024


class OpenAIChat:
    """A `ChatModel` over HTTP. Nothing is imported or connected before the first call, or `warm_up`.

    Requests that failed for a passing reason are repeated within the deadline; an answer that does not fit
    its schema is not, since the same prompt at temperature 0 gives the same answer.

    Args:
        settings: where the model is, and the bounds of a call.
        temperature: 0 to 2; None leaves it out, for models that take none.
        record: gets the usage of every call once.
        retry: overrides the policy that the settings describe.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        temperature: float | None = 0.0,
        record: UsageRecorder = ignore_usage,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._temperature = temperature
        policy = retry or RetryPolicy(max_attempts=settings.max_attempts)
        self._rules = CallRules(policy, PriceList(settings.base_url), record)
        self._connection: OpenAIConnection[ChatOpenAI] = OpenAIConnection(
            settings, self._build, max_response_bytes=_MAX_RESPONSE_BYTES
        )
        self._formats: dict[type[ModelOutput], Any] = {}

    @property
    def name(self) -> str:
        """The model that is asked for."""
        return self._settings.model

    async def warm_up(self) -> None:
        """Load the libraries (1.5 to 2 s, in a thread) before the first call needs them."""
        await self._connection.warm_up()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._connection.aclose()

    async def complete(self, request: ChatRequest, schema: type[M]) -> Completion[M]:
        """See `ChatModel.complete`."""
        with Call.begin(self._plan(request), self._rules) as call:
            value = await call.retrying(lambda: self._complete_once(call, request, schema))
            return Completion(value, call.close())

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamEvent, None]:
        """See `ChatModel.stream`. A request is repeated only while nothing was delivered."""
        with Call.begin(self._plan(request), self._rules) as call:
            texts: list[str] = []
            while True:
                try:
                    async with aclosing(self._stream_once(call, request)) as deltas:
                        async for text in deltas:
                            texts.append(text)
                            yield TextDelta(text)
                    break
                except Exception as error:
                    await self._after_stream_failure(call, error, delivered=bool(texts))
            yield StreamEnd("".join(texts), call.close())

    async def _after_stream_failure(self, call: Call, error: Exception, *, delivered: bool) -> None:
        async with call.within_deadline():
            await call.pause_after(error, repeatable=not delivered)

    async def _complete_once(self, call: Call, request: ChatRequest, schema: type[M]) -> M:
        async with self._connection.slot() as client:
            call.sending()
            options = {**self._options(request), "response_format": self._format(schema)}
            message = await client.ainvoke(_messages(request), **options)
        text = message.text
        call.received_characters = len(text)
        call.tokens = _tokens(message)
        call.served_model = str(message.response_metadata.get("model_name") or "")
        refusal = message.additional_kwargs.get("refusal")
        if refusal:
            raise ModelRefused(detail=str(refusal))
        return _validated(text, schema)

    async def _stream_once(self, call: Call, request: ChatRequest) -> AsyncGenerator[str, None]:
        refusal, finish, empty = "", "", True
        chunks = self._chunks(call, request)
        async with aclosing(chunks):
            async for chunk in chunks:
                call.tokens = _tokens(chunk) or call.tokens
                refusal += chunk.additional_kwargs.get("refusal") or ""
                finish = chunk.response_metadata.get("finish_reason") or finish
                call.served_model = str(chunk.response_metadata.get("model_name") or call.served_model)
                if text := chunk.text:
                    empty = False
                    call.received_characters += len(text)
                    yield text
        _check_end(finish, refusal, empty=empty)

    async def _chunks(self, call: Call, request: ChatRequest) -> AsyncGenerator[BaseMessage, None]:
        # The deadline is set anew for each step: a timeout that stays open over a yield would cancel
        # the consumer's own work.
        async with call.within_deadline():
            slot = self._connection.slot()
            client = await slot.__aenter__()
        try:
            call.sending()
            source = client.astream(_messages(request), **self._options(request))
            chunks = cast("AsyncGenerator[BaseMessage, None]", source)
            async with aclosing(chunks):
                while True:
                    async with call.within_deadline():
                        chunk = await anext(chunks, None)
                    if chunk is None:
                        return
                    yield chunk
        finally:
            await slot.__aexit__(None, None, None)

    def _plan(self, request: ChatRequest) -> CallPlan:
        prompt = request.prompt
        return CallPlan(
            model=self._settings.model,
            operation=request.operation,
            prompt_version=prompt.version,
            prompt_characters=len(prompt.system) + len(prompt.user),
            timeout_seconds=self._settings.timeout_seconds,
            caller_seconds=request.timeout_seconds,
        )

    def _build(self, endpoint: Endpoint) -> ChatOpenAI:
        # This runs in a thread: whatever is slow the first time is done here, not in the event loop.
        import openai.lib  # noqa: F401

        from errata_kit.llm.refusal_aware import RefusalAwareChatOpenAI

        self._rules.prices.load()
        return RefusalAwareChatOpenAI(
            model=self._settings.model,
            base_url=endpoint.base_url,
            api_key=endpoint.key,
            http_async_client=endpoint.http,
            timeout=endpoint.timeout,
            temperature=self._temperature,
            max_retries=0,
            stream_usage=True,
            stream_chunk_timeout=None,
            use_responses_api=False,
            openai_proxy=None,
            http_socket_options=(),
        )

    def _options(self, request: ChatRequest) -> dict[str, Any]:
        return {"max_tokens": request.max_output_tokens} if request.max_output_tokens else {}

    def _format(self, schema: type[ModelOutput]) -> Any:
        if schema not in self._formats:
            from openai.lib import type_to_response_format_param

            self._formats[schema] = type_to_response_format_param(schema)
        return self._formats[schema]


def _messages(request: ChatRequest) -> list[BaseMessage]:
    from langchain_core.messages import HumanMessage, SystemMessage

    return [SystemMessage(request.prompt.system), HumanMessage(request.prompt.user)]


def _tokens(message: BaseMessage) -> TokenCount | None:
    usage = getattr(message, "usage_metadata", None)
    if not usage:
        return None
    cached = usage.get("input_token_details", {}).get("cache_read", 0)
    return TokenCount(usage["input_tokens"], cached, usage["output_tokens"])


def _validated(text: str, schema: type[M]) -> M:
    if not text.strip():
        raise ModelOutputInvalid("The model's answer is empty.", metadata={"cause": "empty"})
    try:
        return schema.model_validate_json(text)
    except ValidationError as error:
        # pydantic's names for what is wrong are safe to pass on; keys and values are the model's own words.
        kinds = {str(problem["type"]) for problem in error.errors(include_url=False)}
        raise ModelOutputInvalid(metadata={"cause": ",".join(sorted(kinds)[:5])}, detail=str(error)[:2000]) from error


def _check_end(finish: str, refusal: str, *, empty: bool) -> None:
    if refusal:
        raise ModelRefused(detail=refusal)
    if finish == "length":
        raise ModelTruncated()
    if finish == "content_filter":
        raise ModelFiltered()
    if not finish:
        raise StreamCutError("no finish_reason")
    if empty:
        raise ModelOutputInvalid("The model's answer is empty.", metadata={"cause": "empty"})
