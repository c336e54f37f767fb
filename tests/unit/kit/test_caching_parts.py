"""Keys, the cache in the process, the circuit, and what the settings open."""

import asyncio
import subprocess
import sys
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from errata_kit.access.principals import Principal
from errata_kit.caching.base import MAX_VALUE_BYTES, NoCache
from errata_kit.caching.circuit import Circuit
from errata_kit.caching.keys import cache_key
from errata_kit.caching.local import LocalBounds, LocalCache, _size
from errata_kit.caching.opening import open_cache
from errata_kit.caching.settings import CacheSettings
from errata_kit.calls import enter_call
from errata_kit.errors import StartFailed


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def key_for(tenant: str, *parts: str, kind: str = "grade") -> str:
    async def make() -> str:
        enter_call("", "", None, principal=Principal("somebody", tenant))
        return cache_key(kind, *parts)

    return await asyncio.create_task(make())


async def test_keys_differ_by_tenant_kind_and_every_part() -> None:
    alike = [
        ("ab", "c"),
        ("a", "bc"),
        ("abc",),
        ("abc", ""),
        ("", "abc"),
        ("a", "b", "c"),
        ("a:b", "c"),
        ("\ud800",),
        ("\ufffd",),
    ]
    keys = {
        await key_for(tenant, *parts, kind=kind) for tenant in ("acme", "acme2") for kind in ("grade", "x") for parts in alike
    }
    assert len(keys) == 2 * 2 * len(alike)
    assert await key_for("acme", "a", "b") == await key_for("acme", "a", "b")


async def test_a_key_says_its_kind_and_nothing_of_what_it_is_made_from() -> None:
    key = await key_for("acme", "a secret question")
    assert key.startswith("errata:1:grade:") and len(key) < 128
    assert "acme" not in key and "secret" not in key
    other = await key_for("acme", "another")
    assert key.split(":")[3] == other.split(":")[3] != (await key_for("globex", "another")).split(":")[3]


@given(st.lists(st.lists(st.text(max_size=3), max_size=3).map(tuple), unique=True, min_size=2, max_size=2))
def test_no_two_lists_of_parts_have_the_same_key(lists: list[tuple[str, ...]]) -> None:
    assert cache_key("grade", *lists[0]) != cache_key("grade", *lists[1])


async def test_the_longest_unused_goes_first_by_number() -> None:
    cache = LocalCache(LocalBounds(2, 1_000_000, 60.0))
    await cache.put_many({"a": b"1", "b": b"2"})
    await cache.get_many(["a"])
    await cache.put_many({"c": b"3"})
    assert await cache.get_many(["a", "b", "c"]) == {"a": b"1", "c": b"3"}


async def test_memory_is_bounded_whatever_is_put_in() -> None:
    cache = LocalCache(LocalBounds(1_000_000, 100_000, 60.0))
    for number in range(1000):
        await cache.put_many({f"k{number}": b"x" * 1000, "same": b"y" * (number % 7)})
    held = await cache.get_many([*(f"k{number}" for number in range(1000)), "same"])
    assert 50_000 < sum(map(len, held.values())) < 100_000
    assert "k999" in held and "k0" not in held and "same" in held
    # One that is larger than all of it pushes nothing out.
    await cache.put_many({"huge": b"z" * 100_001})
    assert await cache.get_many(["k999", "huge"]) == {"k999": b"x" * 1000}


async def test_a_value_goes_when_its_time_is_over_and_reading_does_not_prolong_it() -> None:
    clock = Clock()
    cache = LocalCache(LocalBounds(10, 1_000_000, 60.0), clock)
    await cache.put_many({"a": b"1"})
    clock.now += 59.9
    assert await cache.get_many(["a"]) == {"a": b"1"}
    await cache.put_many({"b": b"2"})
    clock.now += 0.1
    assert await cache.get_many(["a", "b"]) == {"b": b"2"}
    assert cache._bytes == cache_bytes(cache)


def cache_bytes(cache: LocalCache) -> int:
    return sum(_size(key, entry.value) for key, entry in cache._entries.items())


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("abcdef"), st.binary(max_size=400)),
        st.tuples(st.just("get"), st.sampled_from("abcdef"), st.just(b"")),
        st.tuples(st.just("wait"), st.just(""), st.binary(min_size=1, max_size=30)),
    ),
    max_size=60,
)


@given(STEPS)
def test_it_behaves_like_a_plain_model_of_itself(steps: list[tuple[str, str, bytes]]) -> None:
    async def compare() -> None:
        clock, bounds = Clock(), LocalBounds(3, 1500, 20.0)
        cache = LocalCache(bounds, clock)
        model: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        for step, key, value in steps:
            if step == "wait":
                clock.now += len(value)
            elif step == "put":
                await cache.put_many({key: value})
                model.pop(key, None)
                model[key] = (value, clock.now)
                while len(model) > 3 or sum(_size(key, value) for key, (value, _) in model.items()) > 1500:
                    model.popitem(last=False)
            else:
                known = model.get(key)
                if known is not None and clock.now - known[1] >= 20.0:
                    known = model.pop(key) and None
                if known is not None:
                    model.move_to_end(key)
                assert await cache.get_many([key]) == ({} if known is None else {key: known[0]})
            assert cache._bytes == cache_bytes(cache) <= 1500

    asyncio.run(compare())


def test_after_a_failure_one_attempt_a_pause_is_let_through() -> None:
    clock = Clock()
    circuit = Circuit(5.0, clock)
    assert circuit.allows() and circuit.allows() and not circuit.is_open
    assert circuit.failed() and not circuit.failed()
    assert circuit.is_open and not circuit.allows()
    clock.now += 5.0
    assert [circuit.allows() for _ in range(3)] == [True, False, False]
    assert not circuit.failed()
    clock.now += 4.9
    assert not circuit.allows()
    clock.now += 0.1
    assert circuit.allows()
    assert circuit.succeeded() == pytest.approx(10.0)
    assert circuit.succeeded() is None
    assert circuit.allows() and circuit.allows()


def test_an_attempt_that_never_comes_back_blocks_nobody_for_longer_than_a_pause() -> None:
    clock = Clock()
    circuit = Circuit(5.0, clock)
    circuit.failed()
    clock.now += 5.0
    assert circuit.allows()
    clock.now += 5.0
    assert circuit.allows()


def settings(monkeypatch: pytest.MonkeyPatch, **values: str) -> CacheSettings:
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return CacheSettings()


async def test_the_settings_open_the_cache_in_the_process_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = settings(monkeypatch, ERRATA_CACHE_ENTRIES="2", ERRATA_CACHE_BYTES="10000", ERRATA_CACHE_TTL_SECONDS="0.05")
    cache = open_cache(opened)
    await cache.put_many({"a": b"1", "b": b"2", "c": b"3"})
    assert await cache.get_many(["a", "b", "c"]) == {"b": b"2", "c": b"3"}
    await asyncio.sleep(0.06)
    assert await cache.get_many(["b", "c"]) == {}
    default = CacheSettings.model_construct()
    assert (default.cache_entries, default.cache_bytes, default.cache_ttl_seconds) == (20_000, 67_108_864, 604_800.0)


async def test_no_entries_means_no_cache_not_even_in_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache(settings(monkeypatch, ERRATA_CACHE_ENTRIES="0", ERRATA_REDIS_URL="redis://127.0.0.1:1"))
    assert isinstance(cache, NoCache)
    await cache.put_many({"a": b"1"})
    assert await cache.get_many(["a"]) == {}
    await cache.close()


@pytest.mark.parametrize(
    "url",
    ["redis://redis:6379/0", "redis://:p%40ss@redis", "rediss://user:word@redis.example:6380/1", "unix:///run/redis.sock"],
)
def test_addresses_of_the_three_kinds(url: str) -> None:
    held = CacheSettings(redis_url=SecretStr(url)).redis_url
    assert held is not None and held.get_secret_value() == url
    assert "redis" not in repr(held)


@pytest.mark.parametrize(
    "url",
    ["hunter2", "http://:hunter2@redis:6379", "redis://", "redis://:hunter2@redis:port", "unix://", "redis://:hunter2@[redis"],
)
def test_an_impossible_address_is_not_repeated(url: str) -> None:
    with pytest.raises(ValidationError) as caught:
        CacheSettings(redis_url=SecretStr(url))
    assert "ERRATA_REDIS_URL must be an address" in str(caught.value) and "hunter2" not in str(caught.value)


@pytest.mark.parametrize("option", ["?nonsense=1", "?db=hunter2", "?socket_timeout=hunter2"])
def test_an_option_that_does_not_exist_stops_the_start_and_is_not_repeated(option: str) -> None:
    with pytest.raises(StartFailed) as caught:
        open_cache(CacheSettings(redis_url=SecretStr(f"redis://:hunter2@127.0.0.1:1{option}")))
    assert "ERRATA_REDIS_URL" in str(caught.value) and "hunter2" not in repr(caught.value)


def test_the_library_for_redis_is_loaded_only_where_an_address_is_set() -> None:
    code = (
        "import sys; from errata_kit.caching.opening import open_cache; from errata_kit.caching.settings import CacheSettings;"
        "open_cache(CacheSettings()); print('redis' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("name", ["ERRATA_CACHE_ENTRIES", "ERRATA_CACHE_BYTES", "ERRATA_CACHE_TTL_SECONDS"])
def test_impossible_bounds_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match=name):
        settings(monkeypatch, **{name: "-1"})


async def test_the_largest_value_that_is_kept() -> None:
    cache = LocalCache(LocalBounds(10, 10_000_000, 60.0))
    await cache.put_many({"a": b"x" * MAX_VALUE_BYTES, "b": b"x" * (MAX_VALUE_BYTES + 1)})
    assert list(await cache.get_many(["a", "b"])) == ["a"]
