"""The protocol of a cache."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

MAX_VALUE_BYTES: Final = 256 * 1024
"""Larger values are not stored: one of them is worth less than the many that it would push out."""


class Cache(Protocol):
    """Remembers bytes by key for some time. It may forget any of them at any moment, and never fails its caller."""

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """Return what is remembered; a key whose value is not known, or can't be had now, is left out."""

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        """Remember values. What can't be stored now, or is longer than `MAX_VALUE_BYTES`, is passed over."""

    async def close(self) -> None:
        """Let go of connections."""


class NoCache:
    """Remembers nothing."""

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        """See `Cache`."""
        return {}

    async def put_many(self, values: Mapping[str, bytes]) -> None:
        """See `Cache`."""

    async def close(self) -> None:
        """See `Cache`."""
