"""Stands between the suite and a model server, as a gateway would: adds the sampling that a request leaves open, hands on every
byte of the answer as it comes, and remembers what was said.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

Sampling = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_END_OF_HEAD = b"\r\n\r\n"
_CHUNKED = b"transfer-encoding: chunked"
_LAST_CHUNK = b"\r\n0\r\n\r\n"
_LENGTH = re.compile(rb"\ncontent-length: *(\d+)", re.IGNORECASE)
_CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """The tokens of one request, as the server counts them."""

    prompt: int
    cached: int
    completion: int


@dataclass(slots=True)
class Exchange:
    """One request and what came back. Times are those of `time.monotonic`.

    Attributes:
        request: the JSON body as the suite sent it.
        pieces: the response's bytes with the time of their arrival, status line included.
        complete: the whole response has arrived.
        dropped_at: when the client closed its connection before that; None when it did not.
    """

    path: str
    request: dict[str, Any]
    began: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    complete: bool = False
    dropped_at: float | None = None

    @property
    def streamed(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.request.get("stream"))

    @property
    def schema(self) -> dict[str, Any]:
        """The schema the answer must fit, with its name and whether it is strict; empty when the answer is free text."""
        asked = self.request.get("response_format", {})
        return dict(asked.get("json_schema", {}))

    @property
    def status(self) -> int:
        """The HTTP status; 0 before it has arrived."""
        words = self._raw.split(b" ", 2)
        return int(words[1]) if len(words) > 2 else 0

    @property
    def body(self) -> bytes:
        """The response's body so far."""
        head, _, rest = self._raw.partition(_END_OF_HEAD)
        return b"".join(_chunks(rest)) if _CHUNKED in head.lower() else rest

    @property
    def whole(self) -> bool:
        """Whether what has arrived ends where the response says that it does."""
        head, found, rest = self._raw.partition(_END_OF_HEAD)
        if not found or _CHUNKED in head.lower():
            return rest.endswith(_LAST_CHUNK)
        declared = _LENGTH.search(head)
        return declared is not None and len(rest) >= int(declared[1])

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole answer, or the events of a stream so far."""
        if not self.streamed:
            return [json.loads(self.body)] if self.complete else []
        lines = [line.removeprefix("data: ") for line in self.body.decode(errors="replace").split("\n\n")[:-1]]
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def text(self) -> str:
        """What the model wrote, so far."""
        choices = (choice for message in self.messages for choice in message.get("choices", []))
        parts = (choice.get("delta") or choice.get("message") or {} for choice in choices)
        return "".join(part.get("content") or "" for part in parts)

    @property
    def finish_reason(self) -> str:
        """Why the model stopped; empty before it has."""
        choices = [choice for message in self.messages for choice in message.get("choices", [])]
        return next((choice["finish_reason"] for choice in choices if choice.get("finish_reason")), "")

    @property
    def tokens(self) -> ReportedTokens | None:
        """What the server reported; None before it has."""
        for message in self.messages:
            if usage := message.get("usage"):
                cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                return ReportedTokens(usage["prompt_tokens"], cached, usage["completion_tokens"])
        return None

    @property
    def _raw(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


class Relay:
    """The server of one event loop. Use `relaying`.

    Attributes:
        exchanges: every request so far, in the order of arrival.
        sampling: gives the parameters to add to a request that does not set them.
    """

    def __init__(self, upstream: str, sampling: Sampling) -> None:
        address = urlsplit(upstream)
        self._host, self._port, self._prefix = str(address.hostname), int(address.port or 80), address.path
        self.exchanges: list[Exchange] = []
        self.sampling = sampling
        self.port = 0
        self._news = asyncio.Condition()

    @property
    def base_url(self) -> str:
        """The address to give to a client in place of the model's own."""
        return f"http://127.0.0.1:{self.port}{self._prefix}"

    async def wait_for(self, condition: Callable[[Exchange], bool], seconds: float, first: int = 0) -> Exchange:
        """The first exchange, from number `first` on, for which the condition holds. Raises TimeoutError."""
        async with asyncio.timeout(seconds), self._news:
            while True:
                for exchange in self.exchanges[first:]:
                    if condition(exchange):
                        return exchange
                await self._news.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one request. The response ends with its connection, so that no second one follows on it."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            head = await reader.readuntil(_END_OF_HEAD)
            lines = head.decode().rstrip().split("\r\n")
            named = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            body = await reader.readexactly(int(named.get("content-length", "0")))
            exchange = Exchange(lines[0].split(" ")[1], json.loads(body or b"{}"), time.monotonic())
            self.exchanges.append(exchange)
            body = json.dumps({**self.sampling(exchange.request), **exchange.request}).encode() if body else body
            kept = [line for line in lines if line.partition(":")[0].lower() not in ("connection", "content-length")]
            kept += ["connection: close", f"content-length: {len(body)}"]
            await self._hand_on("\r\n".join(kept).encode() + _END_OF_HEAD + body, exchange, reader, writer)
        writer.close()

    async def _hand_on(
        self, request: bytes, exchange: Exchange, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        async with asyncio.timeout(_CONNECT_SECONDS):
            answers, upstream = await asyncio.open_connection(self._host, self._port)
        upstream.write(request)
        answering = asyncio.create_task(self._answer(answers, writer, exchange))
        leaving = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and not exchange.complete:
                exchange.dropped_at = time.monotonic()
        finally:
            for task in (answering, leaving):
                task.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)
            upstream.close()
            await self._tell()

    async def _answer(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, exchange: Exchange) -> None:
        while piece := await answers.read(65536):
            exchange.pieces.append((time.monotonic(), piece))
            # Set before the client can have it: one that has the whole may hang up at once.
            exchange.complete = exchange.whole
            writer.write(piece)
            await writer.drain()
            await self._tell()

    async def _tell(self) -> None:
        async with self._news:
            self._news.notify_all()


@contextlib.asynccontextmanager
async def relaying(upstream: str, sampling: Sampling) -> AsyncIterator[Relay]:
    """A relay to the API at `upstream` inside the block."""
    relay = Relay(upstream, sampling)
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()


def _chunks(rest: bytes) -> Iterator[bytes]:
    """The data of chunked transfer coding (RFC 9112, 7.1), as far as it has arrived."""
    while True:
        size, found, rest = rest.partition(b"\r\n")
        if not found or not (length := int(size.split(b";")[0], 16)):
            return
        yield rest[:length]
        rest = rest[length + 2 :]
