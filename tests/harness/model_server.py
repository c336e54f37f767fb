"""A model server for tests: the OpenAI chat and embeddings API on a loopback port, without a model.

Run it as a process to put a whole stack on it:
`python -m tests.harness.model_server --port 8080 --latency 0.2 --script default`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, cast

from tests.harness.model_faults import SCRIPTS
from tests.harness.model_responder import respond
from tests.harness.model_rules import (
    ApiError,
    ChatRequest,
    Endpoint,
    Exchange,
    MalformedRequestError,
    Responder,
    Rule,
    RuleBook,
    parse_chat,
    parse_embeddings,
)
from tests.harness.model_wire import error_body, head, json_bytes, send_chat, send_embeddings

_PATHS = {"/v1/chat/completions": Endpoint.CHAT, "/v1/embeddings": Endpoint.EMBEDDINGS}


class ModelServer:
    """The double. Use it as an async context manager; it listens on a free port of 127.0.0.1.

    `journal` holds every request in the order of arrival. A request that no rule takes is answered by
    `default`, which knows the question, the passages and the answer from the prompt's fences.
    """

    def __init__(self, rules: Iterable[Rule] = (), *, default: Responder = respond, port: int = 0) -> None:
        self.rules = RuleBook(rules, default)
        self.journal: list[Exchange] = []
        self._port = port
        self._server: asyncio.Server | None = None
        self._connections: set[_Connection] = set()
        self._changed = asyncio.Event()

    @property
    def base_url(self) -> str:
        """What goes into OPENAI_BASE_URL; valid while the server runs."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return len(self._connections)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = [connection.drop() for connection in list(self._connections)]
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        await self._server.wait_closed()
        # A transport that was aborted closes its socket in the next turn of the loop.
        await asyncio.sleep(0)

    def calls(self, endpoint: Endpoint = Endpoint.CHAT) -> list[Exchange]:
        """The journal's exchanges of one endpoint."""
        return [exchange for exchange in self.journal if exchange.endpoint is endpoint]

    async def wait_for(
        self,
        predicate: Callable[[Exchange], bool],
        timeout: float = 5.0,  # noqa: ASYNC109 - a test reads better with its bound in the call
    ) -> Exchange:
        """The first exchange, past or to come, for which `predicate` holds.

        Raises:
            TimeoutError: when none does within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while True:
                for exchange in self.journal:
                    if predicate(exchange):
                        return exchange
                await self._changed.wait()

    def note_change(self) -> None:
        """Wake everyone who waits for the journal."""
        self._changed.set()
        self._changed = asyncio.Event()

    def attach(self, connection: _Connection) -> None:
        """Count a connection in."""
        self._connections.add(connection)

    def detach(self, connection: _Connection) -> None:
        """Count a connection out."""
        self._connections.discard(connection)


class _Connection(asyncio.Protocol):
    """One keep-alive connection; requests on it are answered one after another."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._exchange: Exchange | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports behave like asyncio's without deriving from them.
        self._transport = cast(asyncio.Transport, transport)
        self._server.attach(self)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._advance()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.detach(self)
        if self._exchange is not None and not self._closing:
            self._exchange.closed_by_client = True
        self._finish()
        if self._task is not None:
            self._task.cancel()

    def drop(self) -> asyncio.Task[None] | None:
        """Abort the connection as the server's own doing, and return the answer in progress."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        if self._task is not None:
            self._task.cancel()
        return self._task

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        self._closing = True
        if self._transport is not None:
            self._transport.close()

    def _advance(self) -> None:
        if self._task is not None or self._closing:
            return
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *rest = self._buffer[:end].decode("latin-1").split("\r\n")
        headers = {key.strip().lower(): value.strip() for key, _, value in (x.partition(":") for x in rest)}
        size = int(headers.get("content-length", "0"))
        if headers.pop("expect", "").lower() == "100-continue":
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if len(self._buffer) < end + 4 + size:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + size])
        del self._buffer[: end + 4 + size]
        path = first.split(" ")[1].partition("?")[0]
        self._task = asyncio.get_running_loop().create_task(self._answer(path, headers, body))
        self._task.add_done_callback(self._answered)

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._finish()
        if not task.cancelled() and task.exception() is not None:
            self.close()
            raise RuntimeError("the model double failed") from task.exception()
        self._advance()

    def _finish(self) -> None:
        if self._exchange is not None:
            self._exchange.finished = asyncio.get_running_loop().time()
            self._exchange = None
            self._server.note_change()

    async def _answer(self, path: str, headers: dict[str, str], body: bytes) -> None:
        endpoint = _PATHS.get(path)
        if endpoint is None:
            self._answer_plain(path)
            return
        try:
            parsed = json.loads(body)
            request = parse_chat(parsed) if endpoint is Endpoint.CHAT else parse_embeddings(parsed)
        except ValueError as error:
            text = str(error) if isinstance(error, MalformedRequestError) else "the body is not JSON"
            self._send_json(400, error_body(ApiError(text, "invalid_request_error")))
            return
        rule, reply = self._server.rules.choose(request)
        started = asyncio.get_running_loop().time()
        self._exchange = Exchange(endpoint, request, headers, rule, reply, started)
        self._server.journal.append(self._exchange)
        self._server.note_change()
        if isinstance(request, ChatRequest):
            await send_chat(self, request, reply)
        else:
            await send_embeddings(self, request, reply)

    def _answer_plain(self, path: str) -> None:
        if path == "/v1/models":
            self._send_json(200, {"object": "list", "data": [{"id": "double", "object": "model"}]})
        elif path == "/healthz":
            self._send_json(200, {"status": "ok"})
        else:
            self._send_json(404, error_body(ApiError(f"no such path: {path}", "invalid_request_error")))

    def _send_json(self, status: int, body: dict[str, Any]) -> None:
        content = json_bytes(body)
        self.write(head(status, "application/json", len(content)) + content)


def with_latency(responder: Responder, seconds: float) -> Responder:
    """The same answers, with the first token after `seconds`."""
    return lambda request: replace(responder(request), first_token_delay=seconds)


@contextlib.asynccontextmanager
async def _served(arguments: argparse.Namespace) -> AsyncIterator[ModelServer]:
    default = with_latency(respond, arguments.latency)
    rules = SCRIPTS[arguments.script]()
    async with ModelServer(rules, default=default, port=arguments.port) as server:
        yield server


async def _run(arguments: argparse.Namespace) -> None:
    async with _served(arguments) as server:
        print(server.base_url, flush=True)
        await asyncio.Event().wait()


def main() -> None:
    """Serve until interrupted; the first line of output is the base URL."""
    parser = argparse.ArgumentParser(description="OpenAI-compatible test double on 127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before the first token")
    parser.add_argument("--script", choices=sorted(SCRIPTS), default="default")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
