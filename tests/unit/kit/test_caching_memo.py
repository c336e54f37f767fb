"""Memo: what is known is not made, equal calls in flight are made once, and nobody's end is another one's failure."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from pydantic import TypeAdapter

from errata_kit.caching.base import NoCache
from errata_kit.caching.local import LocalBounds, LocalCache
from errata_kit.caching.memo import Memo, Remembered
from errata_kit.calls import enter_call, stop_task
from errata_kit.errors import (
    BudgetExhausted,
    ErrataError,
    ModelDeadlineExceeded,
    ModelError,
    ModelRateLimited,
    ModelRefused,
    ModelUnavailable,
    Reason,
    RemoteError,
    RunCancelled,
)
from errata_kit.usage import ModelCall

INT: TypeAdapter[int] = TypeAdapter(int)
CALL = ModelCall(model="m", operation="grade", input_tokens=10, output_tokens=1)


class Maker:
    """Makes the length of each key, when it is let; notes what it was asked for, and how many made a key at once."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.gate = asyncio.Event()
        self.error: BaseException | None = None
        self.without: frozenset[str] = frozenset()
        self.busy: list[str] = []

    async def __call__(self, keys: tuple[str, ...]) -> Mapping[str, int]:
        assert not set(keys) & set(self.busy), "a key is made twice at once"
        self.asked.append(keys)
        self.busy += keys
        try:
            await self.gate.wait()
        finally:
            self.busy = [key for key in self.busy if key not in keys]
        if self.error is not None:
            raise self.error
        return {key: len(key) for key in keys if key not in self.without}


class Counted:
    def __init__(self) -> None:
        self.hits = self.misses = 0

    def __call__(self, hits: int, misses: int) -> None:
        self.hits += hits
        self.misses += misses


@pytest.fixture
def cache() -> LocalCache:
    return LocalCache(LocalBounds(100, 1_000_000, 60.0))


@pytest.fixture
def counted() -> Counted:
    return Counted()


@pytest.fixture
def memo(cache: LocalCache, counted: Counted) -> Memo[int]:
    return Memo(cache, INT, counted)


def opened() -> Maker:
    maker = Maker()
    maker.gate.set()
    return maker


async def started(memo: Memo[int], keys: Sequence[str], maker: Maker) -> "asyncio.Task[Mapping[str, Remembered[int]]]":
    """A call that has got as far as it can without what the test holds back."""
    task = asyncio.create_task(memo.get(keys, maker))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


def idle(memo: Memo[int]) -> bool:
    return not memo._flights and len(asyncio.all_tasks()) == 1


async def test_what_is_known_is_not_made_again_and_the_rest_in_one_call_in_order(memo: Memo[int], counted: Counted) -> None:
    maker = opened()
    assert await memo.get(["bb", "a"], maker) == {"bb": Remembered(2, False), "a": Remembered(1, False)}
    again = await memo.get(["dddd", "a", "ccc", "bb", "ccc"], maker)
    assert list(again.items()) == [
        ("dddd", Remembered(4, False)),
        ("a", Remembered(1, True)),
        ("ccc", Remembered(3, False)),
        ("bb", Remembered(2, True)),
    ]
    assert maker.asked == [("bb", "a"), ("dddd", "ccc")]
    assert (counted.hits, counted.misses) == (2, 4)
    assert await memo.get([], maker) == {}
    assert idle(memo)


async def test_without_a_cache_equal_calls_in_flight_are_still_made_once() -> None:
    memo, maker = Memo(NoCache(), INT), Maker()
    calls = [await started(memo, ["a", "bb"], maker) for _ in range(5)]
    maker.gate.set()
    results = await asyncio.gather(*calls)
    assert maker.asked == [("a", "bb")]
    assert [result["a"].known for result in results] == [False, True, True, True, True]
    await memo.get(["a"], maker)
    assert maker.asked[1:] == [("a",)]


async def test_overlapping_calls_share_what_they_have_in_common(memo: Memo[int], counted: Counted) -> None:
    maker = Maker()
    calls = [await started(memo, keys, maker) for keys in (["a", "bb"], ["bb", "ccc"], ["ccc", "a"], ["dddd", "bb"])]
    assert maker.asked == [("a", "bb"), ("ccc",), ("dddd",)]
    maker.gate.set()
    results = await asyncio.gather(*calls)
    assert [{key: item.value for key, item in result.items()} for result in results] == [
        {"a": 1, "bb": 2},
        {"bb": 2, "ccc": 3},
        {"ccc": 3, "a": 1},
        {"dddd": 4, "bb": 2},
    ]
    assert [key for result in results for key, item in result.items() if not item.known] == ["a", "bb", "ccc", "dddd"]
    assert (counted.hits, counted.misses) == (4, 4)
    assert idle(memo)


async def test_what_the_cache_had_reaches_those_who_wait_before_the_rest_is_made(memo: Memo[int]) -> None:
    await memo.get(["a"], opened())
    maker = Maker()
    slow = await started(memo, ["a", "bb"], maker)
    assert (await memo.get(["a"], maker))["a"] == Remembered(1, True)
    await stop_task(slow)


async def test_a_maker_who_is_cancelled_leaves_it_to_one_of_those_who_wait(memo: Memo[int], cache: LocalCache) -> None:
    maker = Maker()
    first, *others = [await started(memo, ["a"], maker) for _ in range(4)]
    await stop_task(first)
    assert first.cancelled()
    await asyncio.sleep(0.001)
    assert maker.asked == [("a",), ("a",)]
    maker.gate.set()
    results = await asyncio.gather(*others)
    assert sorted(result["a"].known for result in results) == [False, True, True]
    assert maker.asked == [("a",), ("a",)]
    assert await cache.get_many(["a"]) == {"a": b"1"}
    assert idle(memo)


async def test_what_was_given_up_is_made_before_the_rest_has_landed(memo: Memo[int]) -> None:
    slow, maker = Maker(), opened()
    leaving, staying = await started(memo, ["a"], slow), await started(memo, ["bb"], slow)
    both = await started(memo, ["a", "bb"], maker)
    await stop_task(leaving)
    await asyncio.sleep(0.001)
    assert maker.asked == [("a",)] and not staying.done()
    slow.gate.set()
    assert {key: item.known for key, item in (await both).items()} == {"a": False, "bb": True}
    await staying


async def test_one_who_waits_and_is_cancelled_disturbs_nobody(memo: Memo[int]) -> None:
    maker = Maker()
    calls = [await started(memo, ["a"], maker) for _ in range(3)]
    await stop_task(calls[1])
    maker.gate.set()
    assert (await calls[0])["a"].value == (await calls[2])["a"].value == 1
    assert maker.asked == [("a",)]
    assert idle(memo)


@pytest.mark.parametrize(
    "error",
    [
        ModelDeadlineExceeded(),
        BudgetExhausted(),
        RunCancelled(),
        RemoteError(Reason.DEADLINE_EXCEEDED, "late"),
        ValueError("a fault of ours"),
        ExceptionGroup("several", [ModelRefused()]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_of_the_makers_own_fails_no_one_else(memo: Memo[int], error: Exception) -> None:
    failing, maker = Maker(), opened()
    failing.error = error
    first = await started(memo, ["a"], failing)
    others = [await started(memo, ["a", "bb"], maker) for _ in range(3)]
    failing.gate.set()
    with pytest.raises(type(error)):
        await first
    for result in await asyncio.gather(*others):
        assert {key: item.value for key, item in result.items()} == {"a": 1, "bb": 2}
    assert sorted(maker.asked) == [("a",), ("bb",)]
    assert idle(memo)


@pytest.mark.parametrize(
    "error",
    [
        ModelRefused("no", {"cause": "x"}, detail="quoted"),
        ModelUnavailable(retry_after=3.0),
        RemoteError(Reason.MODEL_OUTPUT_INVALID, "not JSON", metadata={"cause": "y"}),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failure_of_the_model_is_shared_and_nothing_is_stored(
    memo: Memo[int], cache: LocalCache, error: ErrataError
) -> None:
    maker = Maker()
    maker.error = error
    error.model_calls = (CALL,)
    first, *others = [await started(memo, ["a"], maker) for _ in range(3)]
    maker.gate.set()
    with pytest.raises(type(error)) as own:
        await first
    assert own.value is error and own.value.model_calls == (CALL,)
    raised = []
    for other in others:
        with pytest.raises(type(error)) as caught:
            await other
        raised.append(caught.value)
    # Each caller has an error of its own, which says the same; what it cost stands with the one who paid.
    assert len({id(each) for each in (error, *raised)}) == 3
    for each in raised:
        assert (each.why, each.message, str(each), each.metadata) == (error.why, error.message, str(error), error.metadata)
        assert (each.retry_after, each.detail, each.model_calls) == (error.retry_after, error.detail, ())
    assert maker.asked == [("a",)]
    assert await cache.get_many(["a"]) == {}
    assert (await memo.get(["a"], opened()))["a"] == Remembered(1, False)
    assert idle(memo)


@pytest.mark.parametrize("error", [ModelUnavailable(), ModelRateLimited(retry_after=30.0)], ids=["unavailable", "limited"])
async def test_the_first_failure_of_a_maker_in_a_hurry_is_not_that_of_the_patient(memo: Memo[int], error: ModelError) -> None:
    hurried, maker = Maker(), opened()
    hurried.error = error

    async def in_a_hurry() -> None:
        enter_call("", "", 5.0)
        with pytest.raises(ModelError):
            await memo.get(["a"], hurried)

    first = asyncio.create_task(in_a_hurry())
    await asyncio.sleep(0)
    patient = await started(memo, ["a"], maker)
    hurried.gate.set()
    await first
    assert (await patient)["a"] == Remembered(1, False)


async def test_a_failure_is_heard_before_the_others_have_landed(memo: Memo[int]) -> None:
    failing, slow = Maker(), Maker()
    failing.error = ModelRefused()
    first, second = await started(memo, ["a"], failing), await started(memo, ["bb"], slow)
    both = await started(memo, ["a", "bb"], slow)
    failing.gate.set()
    for call in (first, both):
        with pytest.raises(ModelRefused):
            await asyncio.wait_for(call, 1)
    assert not second.done()
    await stop_task(second)


async def test_the_deadline_of_one_who_waits_holds_for_it_alone(memo: Memo[int]) -> None:
    maker = Maker()
    first = await started(memo, ["a"], maker)

    async def hurried() -> None:
        enter_call("", "", 0.02)
        await memo.get(["a"], maker)

    with pytest.raises(ModelDeadlineExceeded):
        await asyncio.wait_for(asyncio.create_task(hurried()), 1)
    maker.gate.set()
    assert (await first)["a"].value == 1
    assert maker.asked == [("a",)]


async def test_what_make_leaves_out_is_absent_and_not_stored_and_made_by_who_waits_for_it(memo: Memo[int]) -> None:
    maker = Maker()
    maker.without = frozenset({"bb"})
    first, waiting = await started(memo, ["a", "bb"], maker), await started(memo, ["bb", "a"], maker)
    maker.gate.set()
    assert list(await first) == ["a"]
    assert await waiting == {"a": Remembered(1, True)}
    assert maker.asked == [("a", "bb"), ("bb",)]
    assert list(await memo.get(["a", "bb"], opened())) == ["a", "bb"]


async def test_what_make_adds_unasked_is_not_believed(memo: Memo[int], cache: LocalCache) -> None:
    async def generous(keys: tuple[str, ...]) -> Mapping[str, int]:
        return {"a": 1, "other": 7}

    assert await memo.get(["a"], generous) == {"a": Remembered(1, False)}
    assert await cache.get_many(["other"]) == {}


@pytest.mark.parametrize("stored", [b"", b"\xff\xfe", b'"text"', b"[" * 100_000, b"1" * 10_000])
async def test_what_does_not_fit_counts_as_missing_and_is_written_over(
    memo: Memo[int], cache: LocalCache, counted: Counted, stored: bytes
) -> None:
    await cache.put_many({"a": stored})
    maker = opened()
    assert (await memo.get(["a"], maker))["a"] == Remembered(1, False)
    assert (await memo.get(["a"], maker))["a"] == Remembered(1, True)
    assert maker.asked == [("a",)]
    assert (counted.hits, counted.misses) == (1, 1)


async def test_a_value_that_cannot_be_stored_is_still_returned(cache: LocalCache) -> None:
    memo: Memo[str] = Memo(cache, TypeAdapter(str))

    async def half_a_pair(keys: tuple[str, ...]) -> Mapping[str, str]:
        return dict.fromkeys(keys, "\ud800")

    assert (await memo.get(["a"], half_a_pair))["a"] == Remembered("\ud800", False)
    assert await cache.get_many(["a"]) == {}


async def test_one_who_joins_while_the_value_is_being_stored_gets_it_at_once() -> None:
    class SlowToStore(NoCache):
        def __init__(self) -> None:
            self.storing = asyncio.Event()

        async def put_many(self, values: Mapping[str, bytes]) -> None:
            await self.storing.wait()

    cache, maker = SlowToStore(), opened()
    memo = Memo(cache, INT)
    first = await started(memo, ["a"], maker)
    assert await asyncio.wait_for(memo.get(["a"], maker), 1) == {"a": Remembered(1, True)}
    # Cancelled in the middle of it, the maker takes nothing back.
    await stop_task(first)
    assert maker.asked == [("a",)]
    assert idle(memo)
