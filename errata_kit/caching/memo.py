"""Makes what is not known, once: results from a cache, and from equal calls that are under way."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from errata_kit.caching.base import Cache
from errata_kit.calls import remaining_seconds
from errata_kit.errors import ErrataError, ModelDeadlineExceeded, Reason

V = TypeVar("V")

_OWN: Final = frozenset({Reason.DEADLINE_EXCEEDED, Reason.CANCELLED, Reason.BUDGET_EXHAUSTED})
"""Failures that say something about the caller who made the call, and nothing about what it asked for."""
_PASSING: Final = frozenset({Reason.MODEL_RATE_LIMITED, Reason.MODEL_UNAVAILABLE})
# As in errata_kit.llm.retry, which this does not import: a pause that nobody asked for is at most so long.
_LONGEST_PAUSE_SECONDS: Final = 8.0


class Codec(Protocol[V]):
    """How a value is stored. Loading raises ValueError for bytes that are no such value."""

    def dump(self, value: V) -> bytes:
        """The bytes of a value."""

    def load(self, stored: bytes) -> V:
        """The value of these bytes."""


@dataclass(frozen=True, slots=True)
class JsonCodec(Generic[V]):
    """Stores a value as JSON, and checks it against its type when it comes back."""

    adapter: TypeAdapter[V]

    def dump(self, value: V) -> bytes:
        """See `Codec`."""
        return self.adapter.dump_json(value)

    def load(self, stored: bytes) -> V:
        """See `Codec`."""
        return self.adapter.validate_json(stored)


@dataclass(frozen=True, slots=True)
class Remembered(Generic[V]):
    """A value. known: it came from the cache, or from an equal call that was in flight; nothing was paid for it now."""

    value: V
    known: bool


@dataclass(frozen=True, slots=True)
class _Made(Generic[V]):
    value: V


@dataclass(frozen=True, slots=True)
class _Failed:
    error: ErrataError


@dataclass(frozen=True, slots=True)
class _GivenUp:
    """Whoever made it has left without a result that concerns anybody else."""


_Landing = _Made[V] | _Failed | _GivenUp
Make = Callable[[tuple[str, ...]], Awaitable[Mapping[str, V]]]
Record = Callable[[int, int], None]


def ignore(hits: int, misses: int) -> None:
    """Record nothing."""


class Memo(Generic[V]):
    """Remembers values of one type by key (see `cache_key`). Of one event loop.

    Args:
        cache: where values are kept; one that is down makes every value unknown.
        adapter: how they are stored; what is stored and does not fit it (an older build wrote it) counts as not known.
        record: gets how many look-ups were hits and how many misses.
    """

    def __init__(self, cache: Cache, adapter: TypeAdapter[V] | Codec[V], record: Record = ignore) -> None:
        self._cache = cache
        self._codec: Codec[V] = JsonCodec(adapter) if isinstance(adapter, TypeAdapter) else adapter
        self._record = record
        self._flights: dict[str, asyncio.Future[_Landing[V]]] = {}

    async def get(self, keys: Sequence[str], make: Make[V]) -> Mapping[str, Remembered[V]]:
        """The value of every key, in the order of the keys.

        Known ones come from the cache, those that an equal call is making right now from that call, and the rest from one call
        of make with just those keys, in the order given. What make leaves out is not stored, and is absent here; it must
        leave out nothing but what has failed. Nothing is stored when make raises.

        Where a call that this one waits for is cancelled, leaves a key out, or fails for a reason of its own (its deadline, its
        budget), this one makes what it still lacks by a further call of make. Any other error of it is raised here as well,
        without the model calls: they are counted where they were made.

        Raises:
            ModelDeadlineExceeded: the deadline of this call passed while another one was making a value.
            Exception: whatever make raises.
        """
        found: dict[str, Remembered[V]] = {}
        joined: dict[str, asyncio.Future[_Landing[V]]] = {}
        left: Sequence[str] = tuple(dict.fromkeys(keys))
        while left or joined:
            joined.update({key: self._flights[key] for key in left if key in self._flights})
            mine = tuple(key for key in left if key not in self._flights)
            if mine:
                # Before it waits for others: whoever waits holds nothing that somebody else waits for.
                found.update(await self._lead(mine, make))
            left = await self._follow(joined, found) if joined else ()
        return {key: found[key] for key in keys if key in found}

    async def _lead(self, keys: tuple[str, ...], make: Make[V]) -> Mapping[str, Remembered[V]]:
        """Find or make these values, while others wait for them."""
        loop = asyncio.get_running_loop()
        flights: dict[str, asyncio.Future[_Landing[V]]] = {key: loop.create_future() for key in keys}
        self._flights.update(flights)
        try:
            known = self._load(await self._cache.get_many(keys))
            _land(flights, known)
            missing = tuple(key for key in keys if key not in known)
            self._record(len(known), len(missing))
            made = await make(missing) if missing else {}
            made = {key: made[key] for key in missing if key in made}
            _land(flights, made)
            if made:
                await self._cache.put_many(self._dump(made))
        except ErrataError as error:
            if not _concerns_its_caller_only(error):
                _land_all(flights, _Failed(error))
            raise
        finally:
            _land_all(flights, _GivenUp())
            for key in keys:
                del self._flights[key]
        return {
            **{key: Remembered(value, known=True) for key, value in known.items()},
            **{key: Remembered(value, known=False) for key, value in made.items()},
        }

    async def _follow(self, joined: dict[str, asyncio.Future[_Landing[V]]], found: dict[str, Remembered[V]]) -> Sequence[str]:
        """Wait until one of these has landed, and take out of joined all that have. Return the keys that were given up."""
        # Waits for futures that only the maker sets: neither a cancellation nor a time-out here touches them.
        done, _ = await asyncio.wait(set(joined.values()), timeout=remaining_seconds(), return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise ModelDeadlineExceeded()
        given_up: list[str] = []
        for key in [key for key, flight in joined.items() if flight.done()]:
            match joined.pop(key).result():
                case _Made(value):
                    found[key] = Remembered(value, known=True)
                    self._record(1, 0)
                case _Failed(error):
                    raise _for_another(error)
                case _GivenUp():
                    given_up.append(key)
        return given_up

    def _load(self, stored: Mapping[str, bytes]) -> dict[str, V]:
        values: dict[str, V] = {}
        for key, content in stored.items():
            # What an older build wrote, or nobody we know, is made again and written over.
            with contextlib.suppress(ValueError):
                values[key] = self._codec.load(content)
        return values

    def _dump(self, values: Mapping[str, V]) -> dict[str, bytes]:
        stored: dict[str, bytes] = {}
        for key, value in values.items():
            # Half a surrogate pair, which JSON may hold and UTF-8 may not, is a value all the same.
            with contextlib.suppress(ValueError):
                stored[key] = self._codec.dump(value)
        return stored


def _land(flights: Mapping[str, asyncio.Future[_Landing[V]]], values: Mapping[str, V]) -> None:
    for key, value in values.items():
        flights[key].set_result(_Made(value))


def _land_all(flights: Mapping[str, asyncio.Future[_Landing[V]]], landing: _Failed | _GivenUp) -> None:
    for flight in flights.values():
        if not flight.done():
            flight.set_result(landing)


def _concerns_its_caller_only(error: ErrataError) -> bool:
    if error.why in _OWN:
        return True
    # A caller in a hurry gets the first such failure, where another one would have waited and tried again.
    seconds = remaining_seconds()
    pause = _LONGEST_PAUSE_SECONDS if error.retry_after is None else 1.1 * error.retry_after
    return error.why in _PASSING and seconds is not None and seconds <= pause


def _for_another(error: ErrataError) -> ErrataError:
    """The same error for another caller: each has a traceback of its own, and one alone has paid."""
    kind = type(error)
    # Its constructor may take something else than what it made of that.
    twin = kind.__new__(kind, *error.args)
    twin.__dict__.update(error.__dict__)
    twin.model_calls = ()
    return twin
