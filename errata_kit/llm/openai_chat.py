"""Chat models behind an OpenAI-compatible API."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from pydantic import ValidationError

from errata_kit.errors import (
    ModelFiltered,
    ModelOutputInvalid,
    ModelRefused,
    ModelTruncated,
)
from errata_kit.llm.call import Call, CallPlan, CallRules
from errata_kit.llm.chat import ChatRequest, Completion, M, ModelOutput, StreamEnd, StreamEvent, TextDelta
from errata_kit.llm.openai_connection import OpenAIConnection
from errata_kit.llm.openai_faults import StreamCutError
from errata_kit.llm.openai_wire import ChatChunk, ChatReply, MalformedReplyError, ask, ask_stream
from errata_kit.llm.pricing import PriceList
from errata_kit.llm.retry import RetryPolicy
from errata_kit.llm.settings import ModelSettings
from errata_kit.llm.usage import QueueRecorder, UsageRecorder, ignore_queue, ignore_usage

_PATH = "/chat/completions"
_MAX_RESPONSE_BYTES = 8 * 1024 * 1024
# OpenAI's reasoning models refuse every temperature but their own; the o series takes no system message.
_FIXED_TEMPERATURE = re.compile(r"o\d|gpt-5(?!.*chat)", re.IGNORECASE)
_DEVELOPER_ROLE = re.compile(r"o\d")
_NOTES = frozenset({"title", "description"})
_NAMING = frozenset({"properties", "$defs"})


class OpenAIChat:
    """A `ChatModel` over HTTP. Nothing is imported or connected before the first call, or `warm_up`.

    Requests that failed for a passing reason are repeated within the deadline; an answer that does not fit
    its schema is not, since the same prompt at temperature 0 gives the same answer.

    Args:
        settings: where the model is, and the bounds of a call.
        temperature: 0 to 2; None leaves it out. OpenAI's reasoning models take none and are sent none.
        record: gets the usage of every call once.
        queue: hears of requests that wait and that are under way.
        retry: overrides the policy that the settings describe.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        temperature: float | None = 0.0,
        record: UsageRecorder = ignore_usage,
        queue: QueueRecorder = ignore_queue,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._settings = settings
        self._fixed: dict[str, Any] = {"model": settings.model}
        if temperature is not None and not _FIXED_TEMPERATURE.match(settings.model):
            self._fixed["temperature"] = temperature
        policy = retry or RetryPolicy(max_attempts=settings.max_attempts)
        self._rules = CallRules(policy, PriceList(settings.base_url), record)
        self._connection = OpenAIConnection(settings, self._prepare, max_response_bytes=_MAX_RESPONSE_BYTES, queue=queue)
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
        async with self._connection.slot() as endpoint:
            call.sending()
            body = {**self._body(request), "response_format": self._format(schema)}
            reply = await ask(endpoint, _PATH, body, ChatReply)
        call.tokens = reply.tokens
        call.served_model = reply.model or ""
        if not reply.choices:
            raise MalformedReplyError("no choices")
        choice = reply.choices[0]
        text = choice.message.content or ""
        call.received_characters = len(text)
        _check_finish(choice.finish_reason, choice.message.refusal)
        return _validated(text, schema)

    async def _stream_once(self, call: Call, request: ChatRequest) -> AsyncGenerator[str, None]:
        refusal, finish, empty = "", "", True
        async with aclosing(self._chunks(call, request)) as chunks:
            async for chunk in chunks:
                call.tokens = chunk.tokens or call.tokens
                call.served_model = chunk.model or call.served_model
                for choice in (chunk.choices or ())[:1]:
                    finish = choice.finish_reason or finish
                    if choice.delta is None:
                        continue
                    refusal += choice.delta.refusal or ""
                    if text := choice.delta.content:
                        empty = False
                        call.received_characters += len(text)
                        yield text
        _check_finish(finish, refusal)
        if not finish:
            raise StreamCutError("no finish_reason")
        if empty:
            raise ModelOutputInvalid("The model's answer is empty.", metadata={"cause": "empty"})

    async def _chunks(self, call: Call, request: ChatRequest) -> AsyncGenerator[ChatChunk, None]:
        # The deadline is set anew for each step: a timeout that stays open over a yield would cancel
        # the consumer's own work.
        async with AsyncExitStack() as opened:
            async with call.within_deadline():
                endpoint = await opened.enter_async_context(self._connection.slot())
                call.sending()
                body = {**self._body(request), "stream_options": {"include_usage": True}}
                events = await ask_stream(endpoint, _PATH, body)
                opened.push_async_callback(events.close)
            while True:
                async with call.within_deadline():
                    # What has already arrived is read without waiting; this lets a deadline, and others, have their turn.
                    await asyncio.sleep(0)
                    event = await anext(events, None)
                if event is None:
                    return
                yield ChatChunk.model_validate(event)

    def _plan(self, request: ChatRequest) -> CallPlan:
        prompt = request.prompt
        return CallPlan(
            model=self._settings.model,
            operation=request.operation,
            prompt_version=prompt.version,
            prompt_characters=len(prompt.system) + len(prompt.user),
            timeout_seconds=self._settings.timeout_seconds,
            caller_seconds=request.timeout_seconds,
            expected_output_tokens=min(
                request.expected_output_tokens, self._longest(request) or request.expected_output_tokens
            ),
        )

    def _prepare(self) -> None:
        # This runs in a thread: whatever is slow the first time is done here, not in the event loop.
        import openai.lib  # noqa: F401

        self._rules.prices.load()

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        system = "developer" if _DEVELOPER_ROLE.match(self._settings.model) else "system"
        messages = [
            {"role": system, "content": request.prompt.system},
            {"role": "user", "content": request.prompt.user},
        ]
        longest = self._longest(request)
        bound = {"max_completion_tokens": longest} if longest else {}
        return {**self._fixed, "messages": messages, **bound}

    def _longest(self, request: ChatRequest) -> int | None:
        """What an answer may have at most, in tokens; None when nobody says."""
        bounds = (request.max_output_tokens, self._settings.max_output_tokens)
        return min((bound for bound in bounds if bound is not None), default=None)

    def _format(self, schema: type[ModelOutput]) -> Any:
        if schema not in self._formats:
            from openai.lib import type_to_response_format_param

            wanted: Any = type_to_response_format_param(schema)
            described = wanted["json_schema"]
            self._formats[schema] = {**wanted, "json_schema": {**described, "schema": _brief(described["schema"])}}
        return self._formats[schema]


def _brief(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema in fewer words, which every call pays for.

    Without titles, which repeat names, and without what classes say about themselves to who reads the code: instructions to a
    model stand in its prompt, whose version is recorded. A definition that is used once stands where it is used.
    """
    definitions: dict[str, Any] = schema.get("$defs", {})
    text = json.dumps(schema)
    # One that is recursive is used within itself, and from outside.
    once = {name: part for name, part in definitions.items() if text.count(json.dumps(f"#/$defs/{name}")) == 1}

    def brief(part: Any) -> Any:
        if isinstance(part, list):
            return [brief(item) for item in part]
        if not isinstance(part, dict):
            return part
        name = str(part.get("$ref", "")).removeprefix("#/$defs/")
        if name in once:
            return brief({**once[name], **{key: item for key, item in part.items() if key != "$ref"}})
        # What has a name of its own may be called "title".
        return {
            key: {name: brief(value) for name, value in item.items()} if key in _NAMING else brief(item)
            for key, item in part.items()
            if key not in _NOTES
        }

    kept = {name: part for name, part in definitions.items() if name not in once}
    rest = {key: item for key, item in schema.items() if key != "$defs"}
    briefed: dict[str, Any] = brief({**rest, "$defs": kept} if kept else rest)
    return briefed


def _validated(text: str, schema: type[M]) -> M:
    if not text.strip():
        raise ModelOutputInvalid("The model's answer is empty.", metadata={"cause": "empty"})
    try:
        return schema.model_validate_json(text)
    except ValidationError as error:
        # pydantic's names for what is wrong are safe to pass on; keys and values are the model's own words.
        kinds = {str(problem["type"]) for problem in error.errors(include_url=False)}
        raise ModelOutputInvalid(metadata={"cause": ",".join(sorted(kinds)[:5])}, detail=str(error)[:2000]) from error


def _check_finish(finish: str | None, refusal: str | None) -> None:
    if refusal:
        raise ModelRefused(detail=refusal)
    if finish == "length":
        raise ModelTruncated()
    if finish == "content_filter":
        raise ModelFiltered()
