"""How a reply of the model double becomes bytes: bodies, server-sent events, vectors, and their faults."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import re
from array import array
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Protocol

from tests.harness.model_rules import (
    COUNTED,
    ApiError,
    ChatRequest,
    EmbeddingsRequest,
    Fault,
    Reply,
    TokenCounts,
)

_PHRASES = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found"}
_HTML = b"<!doctype html><html><body><h1>502 Bad Gateway</h1><hr>nginx</body></html>"
_TOKEN = re.compile(r"\s*\S+|\s+$")
_CREATED = 1_700_000_000


class Sink(Protocol):
    """The connection, as far as an answer needs it."""

    def write(self, data: bytes) -> None:
        """Queue bytes for the client."""

    def close(self) -> None:
        """End the connection once what was queued has been sent."""


def head(status: int, content_type: str, length: int | None, retry_after: str | None = None) -> bytes:
    """The status line and headers; without a length the body comes in chunks."""
    framing = f"content-length: {length}" if length is not None else "transfer-encoding: chunked"
    lines = [f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}", f"content-type: {content_type}", framing]
    if retry_after is not None:
        lines.append(f"retry-after: {retry_after}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def json_bytes(body: object) -> bytes:
    """Compact JSON; NaN and infinities stay bare words, as careless servers send them."""
    return json.dumps(body, separators=(",", ":")).encode()


def error_body(error: ApiError) -> dict[str, Any]:
    """The body that goes with an HTTP error, or that replaces a completion."""
    return {"error": {"message": error.message, "type": error.type, "param": None, "code": error.code}}


async def send_chat(sink: Sink, request: ChatRequest, reply: Reply) -> None:
    """Answer a chat request, as one body or as a stream."""
    if reply.first_token_delay:
        await asyncio.sleep(reply.first_token_delay)
    if await _failed_early(sink, reply):
        return
    if request.stream:
        await _send_stream(sink, request, reply)
        return
    if reply.tokens_per_second:
        await asyncio.sleep(len(_tokens(reply.content)) / reply.tokens_per_second)
    await _send_body(sink, json_bytes(_completion(request, reply)), reply)


async def send_embeddings(sink: Sink, request: EmbeddingsRequest, reply: Reply) -> None:
    """Answer an embeddings request with one vector for each input."""
    if reply.first_token_delay:
        await asyncio.sleep(reply.first_token_delay)
    if not await _failed_early(sink, reply):
        await _send_body(sink, json_bytes(_vectors(request, reply)), reply)


async def _failed_early(sink: Sink, reply: Reply) -> bool:
    if reply.fault is Fault.HANG:
        await asyncio.sleep(reply.hold)
    if reply.fault in (Fault.HANG, Fault.CLOSE_BEFORE_HEADERS):
        sink.close()
        return True
    if reply.status != 200:
        body = json_bytes(error_body(reply.error or ApiError(f"status {reply.status}")))
        sink.write(head(reply.status, "application/json", len(body), reply.retry_after) + body)
        return True
    if reply.fault is Fault.HTML:
        sink.write(head(200, "text/html", len(_HTML)) + _HTML)
        return True
    return False


async def _send_body(sink: Sink, body: bytes, reply: Reply) -> None:
    start = head(200, "application/json", len(body))
    middle = len(body) // 2
    match reply.fault:
        case Fault.CLOSE_AFTER_HEADERS:
            sink.write(start)
            sink.close()
        case Fault.CLOSE_MID_BODY:
            sink.write(start + body[:middle])
            sink.close()
        case Fault.HANG_MID_BODY:
            sink.write(start + body[:middle])
            await asyncio.sleep(reply.hold)
            sink.close()
        case Fault.SLOW_DRIP:
            sink.write(start)
            for position in range(len(body)):
                sink.write(body[position : position + 1])
                await asyncio.sleep(reply.drip)
        case _:
            sink.write(start + body)


def _usage(request: ChatRequest, reply: Reply) -> dict[str, Any] | None:
    counts = reply.usage
    if counts is None:
        return None
    if counts is COUNTED:
        counts = TokenCounts(len(request.text) // 4 + 1, len(reply.content) // 4 + 1)
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.completion,
        "total_tokens": counts.prompt + counts.completion,
        "prompt_tokens_details": {"cached_tokens": counts.cached},
    }


def _completion(request: ChatRequest, reply: Reply) -> dict[str, Any]:
    if reply.fault is Fault.ERROR_IN_BODY:
        return error_body(reply.error or ApiError("the engine failed"))
    content = "x" * reply.huge_bytes if reply.fault is Fault.HUGE_BODY else reply.content
    message = {
        "role": "assistant",
        "content": None if reply.refusal else content,
        "refusal": reply.refusal,
    }
    finish = None if reply.fault is Fault.STREAM_CUT else reply.finish_reason
    body: dict[str, Any] = {
        "id": "chatcmpl-double",
        "object": "chat.completion",
        "created": _CREATED,
        "model": reply.model or request.model,
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
    }
    usage = _usage(request, reply)
    if usage is not None:
        body["usage"] = usage
    return _without_choices(body, reply.fault)


def _without_choices(body: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
    if fault is Fault.MISSING_CHOICES:
        del body["choices"]
    elif fault is Fault.EMPTY_CHOICES:
        body["choices"] = []
    elif fault is Fault.NULL_CHOICES:
        body["choices"] = None
    return body


async def _send_stream(sink: Sink, request: ChatRequest, reply: Reply) -> None:
    sink.write(head(200, "text/event-stream", None))
    if reply.fault is Fault.CLOSE_AFTER_HEADERS:
        sink.close()
        return
    gap = 1.0 / reply.tokens_per_second if reply.tokens_per_second else 0.0
    clock = asyncio.get_running_loop().time
    due = clock()
    pieces = list(_deltas(reply))
    broken = reply.fault in (
        Fault.CLOSE_MID_BODY,
        Fault.STREAM_CUT,
        Fault.ERROR_IN_BODY,
        Fault.HANG_MID_BODY,
    )
    for delta in pieces[: max(1, len(pieces) // 2)] if broken else pieces:
        event = _chunked(_event(_piece(request, reply, delta, None)))
        if reply.fault is Fault.SLOW_DRIP:
            await _drip(sink, event, reply.drip)
        else:
            sink.write(event)
        if gap:
            # By the clock: a timer is late by a millisecond each time, which would add up over an answer.
            due += gap
            await asyncio.sleep(max(0.0, due - clock()))
    if broken:
        await _break_stream(sink, reply)
        return
    sink.write(b"".join(_stream_tail(request, reply)))


async def _drip(sink: Sink, data: bytes, gap: float) -> None:
    for position in range(len(data)):
        sink.write(data[position : position + 1])
        await asyncio.sleep(gap)


async def _break_stream(sink: Sink, reply: Reply) -> None:
    if reply.fault is Fault.HANG_MID_BODY:
        await asyncio.sleep(reply.hold)
    if reply.fault is Fault.ERROR_IN_BODY:
        sink.write(_chunked(_event(error_body(reply.error or ApiError("the engine failed")))))
    if reply.fault in (Fault.STREAM_CUT, Fault.ERROR_IN_BODY):
        sink.write(b"0\r\n\r\n")
    else:
        sink.close()


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    if reply.refusal is not None:
        yield from ({"refusal": token} for token in _tokens(reply.refusal))
        return
    if reply.fault is Fault.HUGE_BODY:
        block = 1024 * 1024
        yield from ({"content": "x" * block} for _ in range(reply.huge_bytes // block))
        return
    yield from ({"content": token} for token in _tokens(reply.content))


def _piece(request: ChatRequest, reply: Reply, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    body = {
        "id": "chatcmpl-double",
        "object": "chat.completion.chunk",
        "created": _CREATED,
        "model": reply.model or request.model,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }
    return _without_choices(body, reply.fault)


def _stream_tail(request: ChatRequest, reply: Reply) -> Iterator[bytes]:
    yield _chunked(_event(_piece(request, reply, {}, reply.finish_reason)))
    usage = _usage(request, reply)
    if request.include_usage and usage is not None:
        yield _chunked(_event({**_piece(request, reply, {}, None), "choices": [], "usage": usage}))
    yield _chunked(b"data: [DONE]\n\n")
    yield b"0\r\n\r\n"


def _event(body: object) -> bytes:
    return b"data: " + json_bytes(body) + b"\n\n"


def _chunked(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _tokens(text: str) -> list[str]:
    return _TOKEN.findall(text)


def _vectors(request: EmbeddingsRequest, reply: Reply) -> dict[str, Any]:
    if reply.fault is Fault.ERROR_IN_BODY:
        return error_body(reply.error or ApiError("the engine failed"))
    size = request.dimensions - (reply.fault is Fault.VECTOR_SIZE)
    rows = [array("f", vector_of(text, size)) for text in request.inputs]
    if reply.fault is Fault.VECTOR_NAN:
        rows[-1][0] = math.nan
    if reply.fault is Fault.VECTOR_MISSING:
        rows.pop()
    data = [
        {"object": "embedding", "index": index, "embedding": _encoded(row, request.base64)} for index, row in enumerate(rows)
    ]
    tokens = sum(len(text) // 4 + 1 for text in request.inputs)
    body: dict[str, Any] = {
        "object": "list",
        "data": None if reply.fault is Fault.VECTOR_NULL else data,
        "model": reply.model or request.model,
    }
    if reply.usage is not None:
        counted = tokens if reply.usage is COUNTED else reply.usage.prompt
        body["usage"] = {"prompt_tokens": counted, "total_tokens": counted}
    return body


def _encoded(row: array[float], as_base64: bool) -> str | list[float]:
    return base64.b64encode(row.tobytes()).decode() if as_base64 else row.tolist()


@lru_cache(maxsize=4096)
def vector_of(text: str, size: int) -> tuple[float, ...]:
    """A unit vector of `size` numbers that depends on the text alone.

    Every word adds ±1 at a place that its hash names, so texts that share words are close to each other.
    """
    vector = [0.0] * size
    for word in re.findall(r"\w+", text.lower()) or [text]:
        digest = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
        vector[digest % size] += 1.0 if digest >> 63 else -1.0
    length = math.sqrt(sum(number * number for number in vector))
    if length == 0.0:
        vector[0], length = 1.0, 1.0
    return tuple(number / length for number in vector)
