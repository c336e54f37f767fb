"""What the users of an OpenAI-compatible API share: a client per event loop, key, concurrency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from errata_kit.llm.openai_faults import ResponseTooLargeError
from errata_kit.llm.settings import ModelSettings
from errata_kit.llm.usage import QueueRecorder, ignore_queue

if TYPE_CHECKING:
    import httpx2
    import openai

_CONNECT_SECONDS = 5.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_KEY = "no-key-needed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go in one event loop.

    Attributes:
        client: for streams, whose events it parses; it uses `http`.
        http: for whole answers. Through the client, a request costs half as much processor time again.
        url: what the paths of the API are appended to, without a slash at its end.
        headers: what every request carries, the key among it.
    """

    client: openai.AsyncOpenAI
    http: httpx2.AsyncClient
    url: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _Ready:
    endpoint: Endpoint
    slots: asyncio.Semaphore


class OpenAIConnection:
    """Builds a client on its first use in an event loop and lends it to a bounded number of calls at a time.

    Args:
        settings: address, key and bounds.
        prepare: loads what else a call needs; it runs in a thread, as the import of the libraries does.
        max_response_bytes: what a response body may have at most.
        queue: hears of requests that begin and stop waiting for a slot, and that take and leave one.
    """

    def __init__(
        self,
        settings: ModelSettings,
        prepare: Callable[[], object],
        *,
        max_response_bytes: int,
        queue: QueueRecorder = ignore_queue,
    ) -> None:
        self._settings = settings
        self._queue = queue
        self._prepare = prepare
        self._max_response_bytes = max_response_bytes
        self._lock = threading.Lock()
        self._ready: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ready] = WeakKeyDictionary()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[Endpoint]:
        """Wait for a free slot and lend the endpoint for one request."""
        ready = await self._for_this_loop()
        model = self._settings.model
        self._queue(model, 1, 0)
        try:
            await ready.slots.acquire()
        finally:
            self._queue(model, -1, 0)
        self._queue(model, 0, 1)
        try:
            yield ready.endpoint
        finally:
            self._queue(model, 0, -1)
            ready.slots.release()

    async def warm_up(self) -> None:
        """Import the libraries and build the client, so that the first call does not pay for it."""
        await self._for_this_loop()

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        ready = self._ready.pop(asyncio.get_running_loop(), None)
        if ready is not None:
            await ready.endpoint.client.close()

    async def _for_this_loop(self) -> _Ready:
        loop = asyncio.get_running_loop()
        ready = self._ready.get(loop)
        return ready if ready is not None else await asyncio.to_thread(self._make, loop)

    def _make(self, loop: asyncio.AbstractEventLoop) -> _Ready:
        with self._lock:
            ready = self._ready.get(loop)
            if ready is None:
                self._prepare()
                slots = asyncio.Semaphore(self._settings.max_concurrency)
                ready = self._ready[loop] = _Ready(self._build(), slots)
            return ready

    def _build(self) -> Endpoint:
        import anyio
        import httpx2
        import openai

        # httpx2 waits with anyio, which loads what it needs for that the first time anything waits: 0.2 s.
        anyio.run(anyio.sleep, 0)
        bound = self._settings.max_concurrency
        # Only connecting has its own limit: how long an answer may take is the deadline of its call.
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        http = httpx2.AsyncClient(
            timeout=timeout,
            # A proxy from the environment can't reach a server on this machine.
            trust_env=not _is_loopback(self._settings.base_url),
            limits=httpx2.Limits(max_connections=bound, max_keepalive_connections=bound),
            # Uncompressed, so that the bound on the bytes received is a bound on memory.
            headers={"accept-encoding": "identity"},
            event_hooks={"response": [self._bound_body]},
        )
        key = self._settings.api_key
        secret = key.get_secret_value() if key is not None else _NO_KEY
        client = openai.AsyncOpenAI(
            base_url=self._settings.base_url, api_key=secret, http_client=http, timeout=timeout, max_retries=0
        )
        # Who the client says that it is, and the headers that its own variables ask for, such as OPENAI_ORG_ID.
        headers = {name: value for name, value in client.default_headers.items() if isinstance(value, str)}
        # In this thread there is no event loop, from which the client concludes that it is not asynchronous.
        headers.pop("X-Stainless-Async", None)
        if "authorization" not in map(str.lower, headers):
            headers["Authorization"] = f"Bearer {secret}"
        return Endpoint(client, http, str(client.base_url).rstrip("/"), headers)

    async def _bound_body(self, response: httpx2.Response) -> None:
        from errata_kit.llm.bounded_stream import BoundedStream

        declared = response.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_response_bytes:
            raise ResponseTooLargeError(f"content-length is {declared}")
        response.stream = BoundedStream(response.stream, self._max_response_bytes)


def _is_loopback(base_url: str) -> bool:
    return urlsplit(base_url).hostname in _LOOPBACK
