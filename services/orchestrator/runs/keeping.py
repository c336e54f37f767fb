"""Keeps the leases of the runs that this replica works on."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from errata_kit.calls import stop_task
from errata_kit.logs import get_logger
from services.orchestrator.runs.run import Lease, LeaseLost
from services.orchestrator.runs.store.store import RunStore

RENEWALS: Final = 3
"""Renewals in the time of a lease, so that one may fail."""

_log = get_logger("errata.leases")


class LeaseKeeper:
    """Renews leases, and tells whether a run is still ours.

    The time of a lease is counted here on a clock that goes on while the process is stopped, from before the database was
    asked. So whoever wakes up late knows it before it does anything else.
    """

    def __init__(self, store: RunStore, ttl: float, lost: Callable[[Lease], None], wanted: Callable[[Lease], None]) -> None:
        """lost, wanted: told about a run that is no longer ours, and about one that is to be cancelled."""
        self._store = store
        self._ttl = ttl
        self._lost = lost
        self._wanted = wanted
        self._until: dict[Lease, float] = {}
        self._unknown: set[Lease] = set()
        self._renewing = asyncio.Lock()
        self._task = asyncio.create_task(self._work(), name="leases")

    def add(self, lease: Lease, since: float) -> None:
        """Keep a lease. since: the monotonic time before it was asked for."""
        self._until[lease] = since + self._ttl

    def drop(self, lease: Lease) -> None:
        """Stop keeping it."""
        self._until.pop(lease, None)

    async def check(self, lease: Lease) -> None:
        """Raises LeaseLost unless the run is surely still ours."""
        if time.monotonic() >= self._until.get(lease, 0.0):
            await self._renew()
        if time.monotonic() >= self._until.get(lease, 0.0):
            raise LeaseLost(lease.run_id)

    async def aclose(self) -> None:
        """Stop renewing."""
        await stop_task(self._task)

    async def _work(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / RENEWALS)
            if self._until:
                await self._renew()

    async def _renew(self) -> None:
        async with self._renewing:
            asked, since = set(self._until), time.monotonic()
            try:
                kept = await self._store.renew()
            except Exception as error:
                # Nothing is lost yet: the leases run on until their time is over.
                _log.warning("renewal_failed", error=type(error).__name__, detail=str(error)[:300])
                return
            for lease in asked & self._until.keys():
                if lease in kept:
                    self._until[lease] = since + self._ttl
                    if kept[lease]:
                        self._wanted(lease)
                else:
                    self.drop(lease)
                    self._lost(lease)
            await self._let_go(set(kept) - self._until.keys())

    async def _let_go(self, unknown: set[Lease]) -> None:
        # Leases of runs that nobody drives here, such as those of a start that was cut off. Seen twice, they are no newcomers.
        strays = unknown & self._unknown
        self._unknown = unknown
        await self._store.release(tuple(strays))
