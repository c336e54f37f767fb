"""Tokens whose signature was found good, so that the next call with the same one costs next to nothing."""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable

from errata_kit.access.principals import Principal


class TokenCache:
    """Principals by the hash of their token, each until its token ends; the least recently used are dropped first.

    Of a token only the SHA-256 is kept. size: tokens, at most. clock: seconds since 1970, as in the claim exp.
    """

    def __init__(self, size: int = 10_000, *, clock: Callable[[], float] = time.time) -> None:
        self._size = size
        self._clock = clock
        self._kept: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, token: str) -> Principal | None:
        """The principal of a token that is known and has not ended."""
        key = _hash(token)
        found = self._kept.get(key)
        if found is None:
            return None
        principal, end = found
        if self._clock() >= end:
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return principal

    def put(self, token: str, principal: Principal, end: float) -> None:
        """Remember a token that was verified, until end (seconds since 1970)."""
        self._kept[_hash(token)] = (principal, end)
        if len(self._kept) > self._size:
            self._kept.popitem(last=False)

    def clear(self) -> None:
        """Forget all: the keys that vouched for them have changed."""
        self._kept.clear()


def _hash(token: str) -> bytes:
    # Metadata may hold what is no Unicode text; such a token is never good, but must not raise here.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
