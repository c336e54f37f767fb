"""Whether one more run may start: how many are under way, and how many tokens the day has seen."""

import asyncio
import contextlib
import datetime
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from errata_kit.access.principals import Principal
from errata_kit.access.rates import Limit, Scope, used_up
from errata_kit.errors import ErrataError, RateLimited
from errata_kit.logs import get_logger
from services.orchestrator.runs.driving import STORAGE_ERRORS
from services.orchestrator.runs.store.store import RunStore

# A run takes seconds: sooner there is seldom room again, and later a place stays empty.
_RUN_RETRY_SECONDS: Final = 1.0
_RECOUNT_SECONDS: Final = 30.0

_log = get_logger("errata.admission")
_slot: ContextVar["_Slot | None"] = ContextVar("errata_run_slot", default=None)
_Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class RunLimits:
    """0 means no limit. runs: under way in this process; tokens: of input and output together, since midnight UTC."""

    runs: int = 0
    principal_runs: int = 0
    tokens: int = 0
    principal_tokens: int = 0

    @property
    def count_tokens(self) -> bool:
        """Whether tokens matter."""
        return bool(self.tokens or self.principal_tokens)


class RunAdmission:
    """Lets calls in that start a run. under_way: the owners of the runs that this process works on now."""

    def __init__(
        self, limits: RunLimits, tokens: "DailyTokens", starting: frozenset[str], under_way: Callable[[], Iterable[Principal]]
    ) -> None:
        """starting: the full names of the methods that start a run; every other one is let in."""
        self._limits = limits
        self._tokens = tokens
        self._starting = starting
        self._under_way = under_way
        self._reserved: Counter[_Owner] = Counter()

    def full(self, method: str) -> RateLimited | None:
        """Why nobody may start a run now; None when there is room, or the method starts none."""
        if method not in self._starting or not self._limits.runs:
            return None
        taken = self._reserved.total() + sum(1 for _ in self._under_way())
        return used_up(Limit.CONCURRENT_RUNS, Scope.ALL, _RUN_RETRY_SECONDS) if taken >= self._limits.runs else None

    @contextlib.contextmanager
    def entering(self, method: str, principal: Principal) -> Iterator[None]:
        """Keep a place for a run until it is under way, or the call has ended. Raises RateLimited when there is none."""
        if method not in self._starting:
            yield
            return
        owner = _owner(principal)
        self._check_runs(owner)
        self._tokens.check(owner)
        slot = _Slot(self._reserved, owner)
        token = _slot.set(slot)
        try:
            yield
        finally:
            slot.give_back()
            with contextlib.suppress(ValueError):
                # A stream that is closed by the collector ends in another context than it began in.
                _slot.reset(token)

    def _check_runs(self, owner: _Owner) -> None:
        if not self._limits.runs and not self._limits.principal_runs:
            return
        taken = Counter(self._reserved)
        taken.update(_owner(principal) for principal in self._under_way())
        if self._limits.principal_runs and taken[owner] >= self._limits.principal_runs:
            raise used_up(Limit.CONCURRENT_RUNS, Scope.PRINCIPAL, _RUN_RETRY_SECONDS)
        if self._limits.runs and taken.total() >= self._limits.runs:
            raise used_up(Limit.CONCURRENT_RUNS, Scope.ALL, _RUN_RETRY_SECONDS)


class _Slot:
    """A place that is kept for a run."""

    def __init__(self, reserved: Counter[_Owner], owner: _Owner) -> None:
        self._reserved = reserved
        self._owner = owner
        self._held = True
        reserved[owner] += 1

    def give_back(self) -> None:
        if self._held:
            self._held = False
            self._reserved[self._owner] -= 1
            if not self._reserved[self._owner]:
                del self._reserved[self._owner]


def under_way() -> None:
    """The run of this call is under way: it counts as such from now on, and no longer as a place that is kept."""
    slot = _slot.get()
    if slot is not None:
        slot.give_back()


class DailyTokens:
    """Tokens since midnight UTC, by principal and in all, over all replicas.

    The database has the sum; it is read every half minute, and what this process spends in between is added at once. So other
    replicas' spending is seen late, and the limit can be passed by what they spend in half a minute.
    """

    def __init__(
        self,
        store: RunStore,
        limits: RunLimits,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._store = store
        self._limits = limits
        self._now = now
        self._day = now().date()
        self._counted: Counter[_Owner] = Counter()
        self._since: Counter[_Owner] = Counter()

    def check(self, owner: _Owner) -> None:
        """Raises RateLimited when the day's tokens are used up; there are new ones at midnight UTC."""
        if not self._limits.count_tokens:
            return
        now = self._now()
        if now.date() != self._day:
            self._begin(now.date())
        most = self._limits.principal_tokens
        if most and self._counted[owner] + self._since[owner] >= most:
            raise used_up(Limit.TOKENS_PER_DAY, Scope.PRINCIPAL, _until_midnight(now))
        if self._limits.tokens and self._counted.total() + self._since.total() >= self._limits.tokens:
            raise used_up(Limit.TOKENS_PER_DAY, Scope.ALL, _until_midnight(now))

    def spent(self, principal: Principal, tokens: int) -> None:
        """Add what a run has just spent."""
        if self._limits.count_tokens:
            self._since[_owner(principal)] += tokens

    async def recount(self) -> None:
        """Take the sums from the database. Raises ServiceUnavailable when it can't be reached."""
        day = self._now().date()
        # What is spent while the database counts may be in its sums or not: counted twice it is gone with the next round.
        before = Counter(self._since)
        counted = Counter(await self._store.tokens_since(datetime.datetime.combine(day, datetime.time(), datetime.UTC)))
        if day != self._day:
            self._begin(day)
        else:
            self._since -= before
        self._counted = counted

    async def keep_counting(self) -> None:
        """Recount until cancelled."""
        while True:
            try:
                await self.recount()
            except (ErrataError, *STORAGE_ERRORS) as error:
                _log.warning("tokens_not_counted", error=type(error).__name__)
            await asyncio.sleep(_RECOUNT_SECONDS)

    def _begin(self, day: datetime.date) -> None:
        self._day = day
        self._counted.clear()
        self._since.clear()


def _owner(principal: Principal) -> _Owner:
    return principal.tenant, principal.name


def _until_midnight(now: datetime.datetime) -> float:
    tomorrow = datetime.datetime.combine(now.date() + datetime.timedelta(days=1), datetime.time(), datetime.UTC)
    return max(1.0, (tomorrow - now).total_seconds())
