"""Leaves alone what has just failed."""

import time
from collections.abc import Callable
from typing import Final

PAUSE_SECONDS: Final = 5.0
"""How long something that failed is left alone: what is down costs one timeout in so many seconds."""


class Circuit:
    """Open after a failure. When its pause is over one attempt is let through; the others wait for what comes of it.

    clock gives seconds and never goes back.
    """

    def __init__(self, pause_seconds: float = PAUSE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause = pause_seconds
        self._clock = clock
        self._failed_at: float | None = None
        self._next_attempt = 0.0

    def allows(self) -> bool:
        """Whether an attempt may be made now. After a failure who hears yes is the only one for the length of a pause."""
        if self._failed_at is None:
            return True
        now = self._clock()
        if now < self._next_attempt:
            return False
        self._next_attempt = now + self._pause
        return True

    @property
    def is_open(self) -> bool:
        """Whether the last attempt failed."""
        return self._failed_at is not None

    def failed(self) -> bool:
        """Note a failure; True for the first one of an outage."""
        now = self._clock()
        self._next_attempt = now + self._pause
        first = self._failed_at is None
        if first:
            self._failed_at = now
        return first

    def succeeded(self) -> float | None:
        """Note a success. Seconds since the outage began if it ends one, else None."""
        if self._failed_at is None:
            return None
        seconds = self._clock() - self._failed_at
        self._failed_at = None
        return seconds
