"""Who must look again: watchers of runs that another process works on, and replicas that may take a run up.

PostgreSQL's notifications reach every replica at once. On SQLite there are none, so that everybody looks again by the clock.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import psycopg
from sqlalchemy.engine import URL

from errata_kit.calls import stop_task
from errata_kit.logs import get_logger
from services.orchestrator.runs.store.database import is_sqlite, libpq_url
from services.orchestrator.runs.store.writer import CHANNEL

# With notifications, looking by the clock only covers a listener that was cut off for a moment.
_POLL_SECONDS: Final = 5.0
_POLL_SECONDS_SQLITE: Final = 0.25
_RECONNECT_SECONDS: Final = 1.0

_log = get_logger("errata.signals")


class Bell:
    """Rings for one watcher when there is news about its run."""

    def __init__(self, poll_seconds: float) -> None:
        self._poll_seconds = poll_seconds
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is news."""
        self._rung.set()

    async def wait(self) -> None:
        """Return when it has rung since the last time, or when it is time to look anyway."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll_seconds):
                await self._rung.wait()
        self._rung.clear()


class Signals:
    """Hands news to bells and to whoever registered for all of it. Create it inside a running event loop."""

    def __init__(self, url: URL) -> None:
        self._poll_seconds = _POLL_SECONDS_SQLITE if is_sqlite(url) else _POLL_SECONDS
        self._bells: dict[str, set[Bell]] = {}
        self._heard: Callable[[str], None] = lambda _: None
        self._listening: asyncio.Task[None] | None = None
        if not is_sqlite(url):
            self._listening = asyncio.create_task(self._listen(libpq_url(url)), name="listen")

    def on_news(self, heard: Callable[[str], None]) -> None:
        """Call this with each notification's payload. It must not block or raise."""
        self._heard = heard

    @contextlib.contextmanager
    def bell(self, run_id: str) -> Iterator[Bell]:
        """A bell that rings for a run inside the block."""
        bell = Bell(self._poll_seconds)
        self._bells.setdefault(run_id, set()).add(bell)
        try:
            yield bell
        finally:
            self._bells[run_id].discard(bell)
            if not self._bells[run_id]:
                del self._bells[run_id]

    def ring_all(self) -> None:
        """There is news for everybody."""
        for run_id in list(self._bells):
            self.ring(run_id)

    def ring(self, run_id: str) -> None:
        """There is news about a run."""
        for bell in self._bells.get(run_id, ()):
            bell.ring()

    async def aclose(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            await stop_task(self._listening)

    async def _listen(self, address: str) -> None:
        while True:
            try:
                await self._hear(address)
            except (psycopg.Error, OSError) as error:
                _log.warning("listening_broke", error=type(error).__name__, detail=str(error)[:300])
                await asyncio.sleep(_RECONNECT_SECONDS)

    async def _hear(self, address: str) -> None:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            # What was said while nobody listened.
            self.ring_all()
            async for notification in connection.notifies():
                self.ring(notification.payload)
                self._heard(notification.payload)
