"""The cache in the process."""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from errata_kit.caching.base import MAX_VALUE_BYTES

# The entry itself, and its place in the dictionary: 140 to 170 bytes were measured (Python 3.11).
_ENTRY_BYTES: Final = 160


@dataclass(frozen=True, slots=True)
class LocalBounds:
    """How many entries a cache holds, how many bytes of memory it takes (about), and how long each one stays, in seconds."""

    entries: int
    bytes: int
    ttl_seconds: float


@dataclass(frozen=True, slots=True)
class _Entry:
    value: bytes
    until: float


class LocalCache:
    """Keeps what was used last. Of one event loop; clock gives seconds and never goes back."""

    def __init__(self, bounds: LocalBounds, clock: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """See `Cache`."""
        now = self._clock()
        found: dict[str, bytes] = {}
        for key in keys:
            entry = self._entries.get(key)
            if entry is None:
                continue
            if entry.until <= now:
                self._drop(key)
                continue
            self._entries.move_to_end(key)
            found[key] = entry.value
        return found

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        """See `Cache`."""
        until = self._clock() + self._bounds.ttl_seconds
        for key, value in values.items():
            if len(value) > MAX_VALUE_BYTES or _size(key, value) > self._bounds.bytes:
                continue
            if key in self._entries:
                self._drop(key)
            self._entries[key] = _Entry(value, until)
            self._bytes += _size(key, value)
            while len(self._entries) > self._bounds.entries or self._bytes > self._bounds.bytes:
                self._drop(next(iter(self._entries)))

    async def close(self) -> None:
        """Forget everything."""
        self._entries.clear()
        self._bytes = 0

    def _drop(self, key: str) -> None:
        self._bytes -= _size(key, self._entries.pop(key).value)


def _size(key: str, value: bytes) -> int:
    return sys.getsizeof(key) + sys.getsizeof(value) + _ENTRY_BYTES
