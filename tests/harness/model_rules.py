"""What the model double understands and answers: requests, replies, rules and the journal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, TypeAlias

Json: TypeAlias = Mapping[str, Any]


class Endpoint(StrEnum):
    """The parts of the API that the double serves."""

    CHAT = "chat"
    EMBEDDINGS = "embeddings"


class Fault(StrEnum):
    """What can go wrong below or inside an HTTP 200; plain HTTP errors are `Reply.status`."""

    CLOSE_BEFORE_HEADERS = "close_before_headers"
    CLOSE_AFTER_HEADERS = "close_after_headers"
    CLOSE_MID_BODY = "close_mid_body"
    HANG = "hang"
    HANG_MID_BODY = "hang_mid_body"
    SLOW_DRIP = "slow_drip"
    STREAM_CUT = "stream_cut"
    ERROR_IN_BODY = "error_in_body"
    HTML = "html"
    MISSING_CHOICES = "missing_choices"
    EMPTY_CHOICES = "empty_choices"
    NULL_CHOICES = "null_choices"
    HUGE_BODY = "huge_body"
    VECTOR_MISSING = "vector_missing"
    VECTOR_SIZE = "vector_size"
    VECTOR_NAN = "vector_nan"
    VECTOR_NULL = "vector_null"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Usage as the API reports it; `cached` is the part of `prompt` that was read from a cache."""

    prompt: int
    completion: int
    cached: int = 0


COUNTED = TokenCounts(-1, -1)
"""Stands for "count from the text": four characters are one token, nothing is cached."""


@dataclass(frozen=True, slots=True)
class ApiError:
    """The `error` object of an OpenAI response body."""

    message: str
    type: str = "server_error"
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of the double.

    Times are in seconds. `tokens_per_second` paces a stream and delays a unary answer by what generating it
    would take; `None` sends everything at once. `usage=None` leaves usage out. `retry_after` becomes the
    header as it stands. `hold` overrides how long `HANG` waits and `drip` the gap between dripped bytes.
    """

    content: str = ""
    status: int = 200
    error: ApiError | None = None
    retry_after: str | None = None
    fault: Fault | None = None
    refusal: str | None = None
    finish_reason: str | None = "stop"
    usage: TokenCounts | None = COUNTED
    model: str | None = None
    first_token_delay: float = 0.0
    tokens_per_second: float | None = None
    hold: float = 3600.0
    drip: float = 0.02
    huge_bytes: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """A chat message; content that came as parts is joined to one text."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A parsed call of `/chat/completions`."""

    model: str
    messages: tuple[Message, ...]
    stream: bool = False
    include_usage: bool = False
    schema_name: str | None = None
    schema: Json | None = None
    temperature: float | None = None
    raw: Json = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """The content of all messages, in order, parted by newlines."""
        return "\n".join(message.content for message in self.messages)


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A parsed call of `/embeddings`."""

    model: str
    inputs: tuple[str, ...]
    dimensions: int
    base64: bool
    raw: Json = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """All inputs, parted by newlines."""
        return "\n".join(self.inputs)


AnyRequest: TypeAlias = ChatRequest | EmbeddingsRequest
Responder: TypeAlias = Callable[[ChatRequest], Reply]


@dataclass(frozen=True, slots=True)
class Rule:
    """Answers the requests that meet all of its conditions; the first rule that matches wins.

    `contains` is a substring and `matches` a regular expression over the text of all messages. With `times`
    the rule serves that many calls and is passed over afterwards, so that rules in a row script a sequence.
    """

    reply: Reply | Responder
    name: str = "rule"
    endpoint: Endpoint = Endpoint.CHAT
    model: str | None = None
    contains: str | None = None
    matches: str | None = None
    schema: str | None = None
    stream: bool | None = None
    times: int | None = None

    def accepts(self, request: AnyRequest) -> bool:
        """Whether every condition but `times` holds."""
        chat = request if isinstance(request, ChatRequest) else None
        if (self.endpoint is Endpoint.CHAT) is not (chat is not None):
            return False
        if self.model is not None and self.model != request.model:
            return False
        if chat is not None and self.schema is not None and self.schema != chat.schema_name:
            return False
        if chat is not None and self.stream is not None and self.stream is not chat.stream:
            return False
        if self.contains is not None and self.contains not in request.text:
            return False
        return self.matches is None or re.search(self.matches, request.text) is not None

    def limited(self, times: int) -> Rule:
        """The same rule for a number of calls."""
        return replace(self, times=times)


class RuleBook:
    """Ordered rules with their call counts; what no rule takes goes to the default responder."""

    def __init__(self, rules: Iterable[Rule], default: Responder) -> None:
        self._rules = list(rules)
        self._served = [0] * len(self._rules)
        self._default = default

    def replace(self, rules: Iterable[Rule]) -> None:
        """Swap all rules and forget their counts."""
        self._rules = list(rules)
        self._served = [0] * len(self._rules)

    def choose(self, request: AnyRequest) -> tuple[str, Reply]:
        """The name of the rule that matched, and its reply."""
        for index, rule in enumerate(self._rules):
            spent = rule.times is not None and self._served[index] >= rule.times
            if spent or not rule.accepts(request):
                continue
            self._served[index] += 1
            if isinstance(rule.reply, Reply):
                return rule.name, rule.reply
            if isinstance(request, ChatRequest):
                return rule.name, rule.reply(request)
            return rule.name, Reply()
        return "default", self._default(request) if isinstance(request, ChatRequest) else Reply()


@dataclass(slots=True)
class Exchange:
    """One request and what became of it. Times are of the loop's clock, in seconds."""

    endpoint: Endpoint
    request: AnyRequest
    headers: Mapping[str, str]
    rule: str
    reply: Reply
    started: float
    finished: float | None = None
    closed_by_client: bool = False

    @property
    def open(self) -> bool:
        """Whether the answer is still being sent."""
        return self.finished is None


def overlapping(exchanges: Sequence[Exchange]) -> int:
    """The largest number of exchanges that were open at one time; an unfinished one never ends."""
    moments = [(exchange.started, 1) for exchange in exchanges]
    moments += [(exchange.finished, -1) for exchange in exchanges if exchange.finished is not None]
    current = peak = 0
    for _, step in sorted(moments):
        current += step
        peak = max(peak, current)
    return peak


class MalformedRequestError(ValueError):
    """The request body is not what the API takes; the double answers 400 with this text."""


def parse_chat(body: Any) -> ChatRequest:
    """Read a chat request.

    Raises:
        MalformedRequestError: when `messages` is missing or no list.
    """
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise MalformedRequestError("you must provide a messages parameter")
    wanted = body.get("response_format") or {}
    schema = wanted.get("json_schema") if wanted.get("type") == "json_schema" else None
    return ChatRequest(
        model=str(body.get("model", "")),
        messages=tuple(Message(str(m.get("role")), _joined(m.get("content"))) for m in body["messages"]),
        stream=bool(body.get("stream")),
        include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        schema_name=str(schema.get("name")) if schema else None,
        schema=schema.get("schema") if schema else None,
        temperature=body.get("temperature"),
        raw=body,
    )


def parse_embeddings(body: Any) -> EmbeddingsRequest:
    """Read an embeddings request.

    Raises:
        MalformedRequestError: when `input` is missing or empty.
    """
    if not isinstance(body, dict) or not body.get("input"):
        raise MalformedRequestError("you must provide an input parameter")
    given = body["input"]
    several = isinstance(given, list) and not isinstance(given[0], int)
    return EmbeddingsRequest(
        model=str(body.get("model", "")),
        inputs=tuple(str(item) for item in given) if several else (str(given),),
        dimensions=int(body.get("dimensions") or 1536),
        base64=body.get("encoding_format") == "base64",
        raw=body,
    )


def _joined(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")
