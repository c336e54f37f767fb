"""Memo under random schedules: overlapping calls that are cancelled, fail, leave keys out or run out of time."""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from errata_kit.caching.base import Cache, NoCache
from errata_kit.caching.local import LocalBounds, LocalCache
from errata_kit.caching.memo import Memo
from errata_kit.calls import enter_call
from errata_kit.errors import BudgetExhausted, ErrataError, ModelRefused

Fate = Literal["works", "cancelled", "refused", "budget", "omits", "deadline"]


@dataclass(frozen=True)
class Caller:
    """Asks for keys after some turns of the loop; its maker takes some turns, and meets its fate."""

    keys: tuple[str, ...]
    after: int
    takes: int
    fate: Fate


CALLERS = st.lists(
    st.builds(
        Caller,
        st.lists(st.sampled_from("abcde"), min_size=1, max_size=5).map(tuple),
        st.integers(0, 12),
        st.integers(0, 12),
        st.sampled_from(["works", "works", "cancelled", "refused", "budget", "omits", "deadline"]),
    ),
    min_size=1,
    max_size=8,
)


class SlowCache(LocalCache):
    """Answers after a turn of the loop, as a cache on the network does."""

    async def get_many(self, keys: Sequence[str]) -> Mapping[str, bytes]:
        await asyncio.sleep(0)
        return await super().get_many(keys)


class World:
    """The memo under test, and what must hold at every moment."""

    def __init__(self, cache: Cache) -> None:
        self.memo = Memo(cache, TypeAdapter(str))
        self.busy: set[str] = set()
        self.finished: dict[str, int] = {}
        self.stored = not isinstance(cache, NoCache)

    async def run(self, caller: Caller) -> None:
        if caller.fate == "deadline":
            enter_call("", "", 0.0)
        await turns(caller.after)
        omitted: set[str] = set()

        async def make(keys: tuple[str, ...]) -> Mapping[str, str]:
            assert not self.busy & set(keys), "made twice at once"
            assert not (self.stored and self.finished.keys() & set(keys)), "made although it is known"
            self.busy |= set(keys)
            try:
                await turns(caller.takes)
            finally:
                self.busy -= set(keys)
            if caller.fate == "refused":
                raise ModelRefused
            if caller.fate == "budget":
                raise BudgetExhausted
            kept = keys[1:] if caller.fate == "omits" else keys
            omitted.update(set(keys) - set(kept))
            self.finished.update(dict.fromkeys(kept, 1))
            return {key: key * 2 for key in kept}

        result = await self.memo.get(caller.keys, make)
        assert result.keys() == set(caller.keys) - omitted
        assert all(item.value == key * 2 for key, item in result.items())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def play(cache: Cache, callers: list[Caller]) -> None:
    world = World(cache)
    tasks = [asyncio.create_task(world.run(caller)) for caller in callers]
    for caller, task in zip(callers, tasks, strict=True):
        if caller.fate == "cancelled":
            await turns(caller.takes)
            task.cancel()
    ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
    refused = any(caller.fate == "refused" for caller in callers)
    for caller, end in zip(callers, ends, strict=True):
        if isinstance(end, asyncio.CancelledError):
            assert caller.fate == "cancelled"
        elif isinstance(end, ModelRefused):
            assert refused
        elif end is not None:
            assert isinstance(end, ErrataError) and end.why.value in {"BUDGET_EXHAUSTED", "DEADLINE_EXCEEDED"}, end
            assert caller.fate in {"budget", "deadline"}
    assert not world.memo._flights
    assert len(asyncio.all_tasks()) == 1


@given(CALLERS, st.sampled_from(["none", "local", "slow"]), st.randoms(use_true_random=False))
@settings(max_examples=150)
def test_whatever_happens_to_callers_each_key_is_made_by_one_at_a_time(
    callers: list[Caller], kind: str, order: random.Random
) -> None:
    order.shuffle(callers)
    bounds = LocalBounds(100, 1_000_000, 60.0)
    caches: dict[str, Cache] = {"none": NoCache(), "local": LocalCache(bounds), "slow": SlowCache(bounds)}
    asyncio.run(play(caches[kind], callers))
