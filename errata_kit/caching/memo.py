"""Makes what is not known, once: results from a cache, and from equal calls that are under way."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from pydantic import TypeAdapter

from errata_kit.caching.base import Cache
from errata_kit.calls import remaining_seconds
from errata_kit.errors import ErrataError, ModelDeadlineExceeded, Reason

V = TypeVar("V")
E = TypeVar("E", bound=BaseException)

_OWN: Final = frozenset({Reason.DEADLINE_EXCEEDED, Reason.CANCELLED, Reason.BUDGET_EXHAUSTED})
"""Failures that say something about the caller who made the call, and nothing about what it asked for."""


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
    error: Exception


class _Given(Enum):
    """The maker has given up without a result that concerns anybody else."""

    UP = auto()


Make = Callable[[tuple[str, ...]], Awaitable[Mapping[str, V]]]
Record = Callable[[int, int], None]


def ignore(hits: int, misses: int) -> None:
    """Record nothing."""
