"""Shows runs to watchers, whoever works on them: what is stored first, then what comes."""

import contextlib
from collections.abc import AsyncGenerator, Callable

from errata_kit.errors import Draining, RunNotFound
from services.orchestrator.runs.events import RunFinished, TraceEvent
from services.orchestrator.runs.feed import Feed
from services.orchestrator.runs.run import RunState
from services.orchestrator.runs.signals import Signals
from services.orchestrator.runs.store.store import RunStore


class Watching:
    """Joins the store with the live feeds of this process."""

    def __init__(
        self, store: RunStore, signals: Signals, feed_of: Callable[[str, str], Feed | None], draining: Callable[[], bool]
    ) -> None:
        """feed_of: the live feed of a tenant's run that this process works on. draining: whether it is shutting down."""
        self._store = store
        self._signals = signals
        self._feed_of = feed_of
        self._draining = draining

    async def watch(self, tenant: str, run_id: str, after: int) -> AsyncGenerator[TraceEvent, None]:
        """Stored events behind after, then new ones, until the run has ended; deltas where this process works on the run.

        Raises:
            RunNotFound: the tenant has no such run.
            Draining: this replica is shutting down; another one shows the rest.
        """
        if self._feed_of(tenant, run_id) is None:
            await self._store.get(tenant, run_id)
        with self._signals.bell(run_id) as bell:
            while True:
                feed = self._feed_of(tenant, run_id)
                source = self._stored(tenant, run_id, after) if feed is None else self._live(feed, after)
                async with contextlib.aclosing(source) as events:
                    async for event in events:
                        after = max(after, event.sequence)
                        yield event
                        if isinstance(event.payload, RunFinished):
                            return
                if self._feed_of(tenant, run_id) is not None:
                    continue
                if feed is None and await self._has_ended(tenant, run_id, after):
                    return
                if self._draining():
                    raise Draining("The orchestrator is shutting down; the run goes on elsewhere", retry_after=1.0)
                if feed is None:
                    await bell.wait()

    async def _stored(self, tenant: str, run_id: str, after: int) -> AsyncGenerator[TraceEvent, None]:
        while batch := await self._store.events(tenant, run_id, after):
            for event in batch:
                yield event
            after = batch[-1].sequence

    async def _live(self, feed: Feed, after: int) -> AsyncGenerator[TraceEvent, None]:
        watcher = feed.subscribe()
        try:
            for event in feed.stored(after):
                after = event.sequence
                yield event
            while (live := await watcher.next()) is not None:
                # What was replayed may have been published meanwhile, too.
                if live.sequence == 0 or live.sequence > after:
                    after = max(after, live.sequence)
                    yield live
        finally:
            feed.unsubscribe(watcher)

    async def _has_ended(self, tenant: str, run_id: str, after: int) -> bool:
        try:
            run = await self._store.get(tenant, run_id)
        except RunNotFound:
            # Deleted meanwhile, as old runs are.
            return True
        return run.state is RunState.FINISHED and run.last_sequence <= after
