"""Live events of one run, to any number of watchers. A slow watcher loses deltas, never events, and slows nobody."""

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Final

from services.orchestrator.runs.events import RunFinished, TraceEvent

# A watcher that is this far behind gets no further deltas: the whole text comes with the next stored event.
_MAX_DELTAS_WAITING: Final = 256


class Watcher:
    """One watcher's queue. Stored events of a run are few and bounded by its limits, so they always fit."""

    def __init__(self) -> None:
        self._waiting: deque[TraceEvent] = deque()
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, event: TraceEvent) -> None:
        """Hand an event over."""
        if event.sequence == 0 and len(self._waiting) >= _MAX_DELTAS_WAITING:
            return
        self._waiting.append(event)
        self._arrived.set()

    def close(self) -> None:
        """No more events come."""
        self._closed = True
        self._arrived.set()

    async def next(self) -> TraceEvent | None:
        """The next event; None when the feed is closed and empty."""
        while not self._waiting:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popleft()


class Feed:
    """The watchers of a run under way, and its stored events so far: whoever comes late needs no database for them."""

    def __init__(self, stored: Iterable[TraceEvent] = ()) -> None:
        self._watchers: set[Watcher] = set()
        self._stored = list(stored)

    @property
    def ended(self) -> bool:
        """Whether the terminal event is there."""
        return bool(self._stored) and isinstance(self._stored[-1].payload, RunFinished)

    def stored(self, after: int) -> tuple[TraceEvent, ...]:
        """The stored events behind a sequence number, in order."""
        return tuple(event for event in self._stored if event.sequence > after)

    def subscribe(self) -> Watcher:
        """Add a watcher; it sees what is published from now on."""
        watcher = Watcher()
        self._watchers.add(watcher)
        return watcher

    def unsubscribe(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._watchers.discard(watcher)

    def publish(self, event: TraceEvent) -> None:
        """Hand an event to every watcher."""
        if event.sequence:
            self._stored.append(event)
        for watcher in self._watchers:
            watcher.put(event)

    def close(self) -> None:
        """Tell every watcher that no more events come."""
        for watcher in self._watchers:
            watcher.close()
