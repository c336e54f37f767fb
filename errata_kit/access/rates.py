"""How much a caller may take: calls a minute, by principal and in all."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from errata_kit.access.principals import Principal
from errata_kit.errors import RateLimited

# Who called longer ago than the last so many others is forgotten, and starts with a full minute again.
_MOST_PRINCIPALS: Final = 10_000


class Limit(StrEnum):
    """What can be used up."""

    CONCURRENT_CALLS = "concurrent_calls"
    CONCURRENT_RUNS = "concurrent_runs"
    REQUESTS_PER_MINUTE = "requests_per_minute"
    TOKENS_PER_DAY = "tokens_per_day"


class Scope(StrEnum):
    """Whose limit it is."""

    PRINCIPAL = "principal"
    ALL = "all"


def used_up(limit: Limit, scope: Scope, retry_after: float) -> RateLimited:
    """The error for a limit that is reached. retry_after: seconds until there may be room again."""
    whose = "you have" if scope is Scope.PRINCIPAL else "all callers together have"
    message = f"For now {whose} used up the limit of {limit.value.replace('_', ' ')}"
    return RateLimited(message, {"limit": limit.value, "scope": scope.value}, retry_after=retry_after)


@dataclass(slots=True)
class _Bucket:
    """Calls that are left, as of a moment. It fills up evenly; a whole minute's worth may come at once."""

    left: float
    at: float

    def refill(self, per_minute: int, now: float) -> None:
        self.left = min(float(per_minute), self.left + (now - self.at) * per_minute / 60.0)
        self.at = now


class RequestRates:
    """Token buckets (a classic of traffic shaping: Turner, New directions in communications, 1986). 0 means no limit."""

    def __init__(self, in_all: int, by_principal: int, clock: Callable[[], float] = time.monotonic) -> None:
        """in_all, by_principal: calls a minute."""
        self._in_all = in_all
        self._by_principal = by_principal
        self._clock = clock
        self._all = _Bucket(float(in_all), clock())
        self._own: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def take(self, principal: Principal) -> None:
        """Count one call. Raises RateLimited, and then nothing is counted."""
        if not self._in_all and not self._by_principal:
            return
        now = self._clock()
        own = self._bucket(principal, now) if self._by_principal else None
        if own is not None:
            own.refill(self._by_principal, now)
            if own.left < 1.0:
                raise used_up(Limit.REQUESTS_PER_MINUTE, Scope.PRINCIPAL, (1.0 - own.left) * 60.0 / self._by_principal)
        if self._in_all:
            self._all.refill(self._in_all, now)
            if self._all.left < 1.0:
                raise used_up(Limit.REQUESTS_PER_MINUTE, Scope.ALL, (1.0 - self._all.left) * 60.0 / self._in_all)
            self._all.left -= 1.0
        if own is not None:
            own.left -= 1.0

    def _bucket(self, principal: Principal, now: float) -> _Bucket:
        key = (principal.tenant, principal.name)
        bucket = self._own.get(key)
        if bucket is None:
            bucket = self._own[key] = _Bucket(float(self._by_principal), now)
            if len(self._own) > _MOST_PRINCIPALS:
                self._own.popitem(last=False)
        else:
            self._own.move_to_end(key)
        return bucket
