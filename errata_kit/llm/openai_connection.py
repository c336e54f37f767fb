"""What the clients of an OpenAI-compatible API share: HTTP per event loop, key, concurrency."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from errata_kit.llm.openai_faults import ResponseTooLargeError
from errata_kit.llm.settings import ModelSettings

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
KeySource: TypeAlias = Callable[[], Awaitable[str]]

_CONNECT_SECONDS = 5.0
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_NO_KEY = "no-key-needed"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a langchain-openai client is built from."""

    base_url: str
    key: KeySource
    http: httpx2.AsyncClient
    timeout: httpx2.Timeout


@dataclass(frozen=True, slots=True)
class _Ready(Generic[T]):
    http: httpx2.AsyncClient
    client: T
    slots: asyncio.Semaphore


class OpenAIConnection(Generic[T]):
    """Builds a client on its first use in an event loop and lends it to a bounded number of calls at a time.

    Args:
        settings: address, key and bounds.
        build: makes the client; it runs in a thread, as importing the libraries takes 1.5 to 2 seconds.
        max_response_bytes: what a response body may have at most.
    """

    def __init__(self, settings: ModelSettings, build: Callable[[Endpoint], T], *, max_response_bytes: int) -> None:
        self._settings = settings
        self._build = build
        self._max_response_bytes = max_response_bytes
        self._lock = threading.Lock()
        self._ready: WeakKeyDictionary[asyncio.AbstractEventLoop, _Ready[T]] = WeakKeyDictionary()

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[T]:
        """Wait for a free slot and lend the client for one request."""
        ready = await self._for_this_loop()
        async with ready.slots:
            yield ready.client

    async def warm_up(self) -> None:
        """Import the libraries and build the client, so that the first call does not pay for it."""
        await self._for_this_loop()

    async def aclose(self) -> None:
        """Close the connections of this event loop; the next call opens new ones."""
        ready = self._ready.pop(asyncio.get_running_loop(), None)
        if ready is not None:
            await ready.http.aclose()

    async def _for_this_loop(self) -> _Ready[T]:
        loop = asyncio.get_running_loop()
        ready = self._ready.get(loop)
        return ready if ready is not None else await asyncio.to_thread(self._make, loop)

    def _make(self, loop: asyncio.AbstractEventLoop) -> _Ready[T]:
        with self._lock:
            ready = self._ready.get(loop)
            if ready is None:
                endpoint = self._endpoint()
                slots = asyncio.Semaphore(self._settings.max_concurrency)
                ready = self._ready[loop] = _Ready(endpoint.http, self._build(endpoint), slots)
            return ready

    def _endpoint(self) -> Endpoint:
        import httpx2

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
        return Endpoint(self._settings.base_url, self._key, http, timeout)

    async def _key(self) -> str:
        key = self._settings.api_key
        return key.get_secret_value() if key is not None else _NO_KEY

    async def _bound_body(self, response: httpx2.Response) -> None:
        from errata_kit.llm.bounded_stream import BoundedStream

        declared = response.headers.get("content-length", "0")
        if declared.isdigit() and int(declared) > self._max_response_bytes:
            raise ResponseTooLargeError(f"content-length is {declared}")
        response.stream = BoundedStream(response.stream, self._max_response_bytes)


def _is_loopback(base_url: str) -> bool:
    return urlsplit(base_url).hostname in _LOOPBACK
