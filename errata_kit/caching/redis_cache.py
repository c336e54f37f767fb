"""The cache in Redis, which processes share. Import it only where one is configured: the library costs a start its time."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError
from redis.maint_notifications import MaintNotificationsConfig

from errata_kit.caching.base import MAX_VALUE_BYTES
from errata_kit.caching.circuit import PAUSE_SECONDS, Circuit
from errata_kit.errors import StartFailed
from errata_kit.logs import get_logger

EXCHANGE_SECONDS: Final = 0.15
"""For all that a look-up waits for once it has its turn: connection, password, values. Usually that is under a millisecond."""
_TICK_SECONDS: Final = 0.03
# Few, so that answers don't wait in this process while it is busy with others; each does thousands of look-ups a second.
_CONNECTIONS: Final = 4
_SEAL_BYTES: Final = 16

_log = get_logger("errata.cache")
T = TypeVar("T")


class RedisCache:
    """Keeps values in one Redis, or behind one address; a Redis Cluster refuses keys of different slots together.

    Whoever may write to that Redis decides what is remembered. A value carries a checksum over its key and itself: what is
    damaged, written by something else or answered to another question counts as not known. It does not keep out a forger.
    """

    def __init__(self, url: str, ttl_seconds: float, pause_seconds: float = PAUSE_SECONDS) -> None:
        """Opens no connection: the first look-up does. Raises StartFailed when the address has options that don't exist."""
        self._ttl_milliseconds = max(1, round(ttl_seconds * 1000))
        self._reads = Circuit(pause_seconds)
        self._writes = Circuit(pause_seconds)
        try:
            self._client: Redis = Redis.from_url(
                url,
                max_connections=_CONNECTIONS,
                # Instead of the library's: see _patience.
                socket_connect_timeout=None,
                socket_timeout=None,
                # A failure is answered by going on without; what a retry would find is for the next look-up.
                retry=Retry(NoBackoff(), 0),
                maint_notifications_config=MaintNotificationsConfig(enabled=False),
                driver_info=None,
            )
            # An option that no connection takes would otherwise show with the first look-up only.
            self._client.connection_pool.make_connection()  # type: ignore[no-untyped-call]  # the library has no types here
        except (TypeError, ValueError):
            raise StartFailed("ERRATA_REDIS_URL has an option that can't be used") from None
        self._turns = asyncio.Semaphore(min(_CONNECTIONS, self._client.connection_pool.max_connections))

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """See `Cache`."""
        if not keys:
            return {}
        sealed = await self._attempt(self._reads, lambda: self._client.mget(keys))
        if sealed is None:
            return {}
        opened = ((key, _unseal(key, value)) for key, value in zip(keys, sealed, strict=False))
        return {key: value for key, value in opened if value is not None}

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        """See `Cache`."""
        kept = {key: _seal(key, value) for key, value in values.items() if len(value) <= MAX_VALUE_BYTES}
        # While it can't be read it can't be reached, and reading finds out when that is over.
        if kept and not self._reads.is_open:
            await self._attempt(self._writes, lambda: self._set(kept))

    async def close(self) -> None:
        """Close the connections."""
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                await self._client.aclose()
        except Exception as error:
            _log.debug("cache_close_failed", error=type(error).__name__)

    async def _set(self, values: Mapping[str, bytes]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for key, value in values.items():
                pipeline.set(key, value, px=self._ttl_milliseconds)
            await pipeline.execute()

    async def _attempt(self, circuit: Circuit, exchange: Callable[[], Awaitable[T]]) -> T | None:
        """What the exchange returns; None when it fails, or Redis is left alone for now."""
        was_open = circuit.is_open
        if not circuit.allows():
            return None
        async with self._turns:
            if circuit.is_open and not was_open:
                # It failed somebody else while this one waited for its turn.
                return None
            try:
                async with _patience():
                    result = await exchange()
            except Exception as error:  # whatever it is, it must not fail a run
                self._failed(circuit, error)
                return None
        self._worked(circuit)
        return result

    def _failed(self, circuit: Circuit, error: Exception) -> None:
        # A full or read-only Redis refuses to write but can still be read. Everything else concerns both.
        circuits = [circuit] if isinstance(error, ResponseError) else [self._reads, self._writes]
        known = self._reads.is_open or circuit.is_open
        for each in circuits:
            each.failed()
        if not known:
            # Its class only: the text may name the address, and what was to be stored.
            _log.warning("cache_unavailable", error=type(error).__name__, use="write" if circuit is self._writes else "read")

    def _worked(self, circuit: Circuit) -> None:
        seconds = circuit.succeeded()
        if circuit is self._reads and seconds is not None:
            self._writes.succeeded()
        if seconds is not None:
            _log.info("cache_available", seconds=round(seconds, 3), use="write" if circuit is self._writes else "read")


@contextlib.asynccontextmanager
async def _patience() -> AsyncIterator[None]:
    """Raise TimeoutError after `EXCHANGE_SECONDS` in which this process had time for an answer.

    A plain time-out would also end an exchange whose answer has long arrived while the event loop was busy elsewhere, and the
    cache would be left alone just when it is needed most. Here a loop that stands still counts as one tick.
    """
    loop = asyncio.get_running_loop()
    scope = asyncio.timeout(None)
    ticks = round(EXCHANGE_SECONDS / _TICK_SECONDS)
    timer: asyncio.TimerHandle

    def tick() -> None:
        nonlocal ticks, timer
        ticks -= 1
        if ticks > 0:
            timer = loop.call_later(_TICK_SECONDS, tick)
        else:
            scope.reschedule(loop.time())

    timer = loop.call_later(_TICK_SECONDS, tick)
    try:
        async with scope:
            yield
    finally:
        timer.cancel()


def _seal(key: str, value: bytes) -> bytes:
    return _checksum(key, value) + value


def _unseal(key: str, sealed: object) -> bytes | None:
    if not isinstance(sealed, bytes) or len(sealed) < _SEAL_BYTES:
        return None
    value = sealed[_SEAL_BYTES:]
    return value if sealed[:_SEAL_BYTES] == _checksum(key, value) else None


def _checksum(key: str, value: bytes) -> bytes:
    digest = hashlib.blake2b(key.encode(), digest_size=_SEAL_BYTES)
    digest.update(b"\0")
    digest.update(value)
    return digest.digest()
