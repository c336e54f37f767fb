"""The caches: one suite for the one in the process and the one in Redis, and Redis in every state that it may be in."""

import asyncio
import contextlib
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from pydantic import SecretStr, TypeAdapter
from structlog.testing import capture_logs

from errata_kit.caching.base import MAX_VALUE_BYTES, Cache
from errata_kit.caching.memo import Memo, Remembered
from errata_kit.caching.opening import open_cache
from errata_kit.caching.redis_cache import RedisCache
from errata_kit.caching.settings import CacheSettings
from tests.harness.certificates import Authority, write
from tests.harness.redis_server import RedisServer, redis_server

# What a look-up may cost when the cache is down: one time-out, and what a busy machine adds.
ONE_TIMEOUT = 0.45
UNHURT = 0.05


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with redis_server() as started:
        yield started


@pytest.fixture
def clean(server: RedisServer) -> RedisServer:
    asyncio.run(server.command("FLUSHALL"))
    return server


@pytest_asyncio.fixture(params=["process", "redis", "redis_socket"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[Cache]:
    async with cache_of(request, 60.0) as opened:
        yield opened


@contextlib.asynccontextmanager
async def cache_of(request: pytest.FixtureRequest, ttl_seconds: float) -> AsyncIterator[Cache]:
    url = None
    if request.param != "process":
        server: RedisServer = request.getfixturevalue("server")
        await server.command("FLUSHALL")
        url = SecretStr(server.url if request.param == "redis" else server.socket_url)
    opened = open_cache(CacheSettings(redis_url=url, cache_ttl_seconds=ttl_seconds))
    try:
        yield opened
    finally:
        await opened.close()


async def lengths(keys: tuple[str, ...]) -> Mapping[str, int]:
    return {key: len(key) for key in keys}


async def test_what_was_put_in_comes_back_and_what_was_not_is_left_out(cache: Cache) -> None:
    values = {"a": b"1", "empty": b"", "binary": bytes(range(256)) * 4, "ümlaut": "ß".encode()}
    assert await cache.get_many(list(values)) == {}
    await cache.put_many(values)
    assert await cache.get_many(["missing", *values, "a"]) == values
    await cache.put_many({"a": b"2"})
    assert await cache.get_many(["a"]) == {"a": b"2"}
    assert await cache.get_many([]) == {}
    await cache.put_many({})


async def test_a_value_that_is_too_large_is_passed_over_and_the_others_are_kept(cache: Cache) -> None:
    await cache.put_many({"a": b"1", "most": b"x" * MAX_VALUE_BYTES, "more": b"x" * (MAX_VALUE_BYTES + 1)})
    assert list(await cache.get_many(["a", "most", "more"])) == ["a", "most"]


@pytest.mark.parametrize("cache_of_a_moment", ["process", "redis"], indirect=True)
async def test_every_value_goes_when_its_time_is_over(cache_of_a_moment: Cache) -> None:
    await cache_of_a_moment.put_many({"a": b"1", "b": b"2"})
    assert len(await cache_of_a_moment.get_many(["a", "b"])) == 2
    await asyncio.sleep(0.25)
    assert await cache_of_a_moment.get_many(["a", "b"]) == {}


@pytest_asyncio.fixture
async def cache_of_a_moment(request: pytest.FixtureRequest) -> AsyncIterator[Cache]:
    async with cache_of(request, 0.2) as opened:
        yield opened


async def test_many_at_once_get_what_is_theirs(cache: Cache) -> None:
    async def work(number: int) -> None:
        mine = {f"{number}-{item}": f"{number}/{item}".encode() * 50 for item in range(10)}
        await cache.put_many(mine)
        assert await cache.get_many(list(mine)) == mine

    await asyncio.gather(*(work(number) for number in range(100)))


async def test_those_who_leave_in_the_middle_leave_nobody_a_wrong_answer(cache: Cache) -> None:
    keys = [f"k{number}" for number in range(40)]
    await cache.put_many({key: key.encode() * 100 for key in keys})
    order = random.Random(7)

    async def ask(patience: float) -> bool:
        asked = order.sample(keys, 5)
        task = asyncio.create_task(cache.get_many(asked))
        await asyncio.wait([task], timeout=patience)
        if task.cancel():
            await asyncio.wait([task])
            return False
        assert task.result() == {key: key.encode() * 100 for key in asked}
        return True

    answered = [await asyncio.gather(*(ask(order.uniform(0, 0.04)) for _ in range(40))) for _ in range(10)]
    assert any(map(any, answered))
    assert len(await cache.get_many(keys)) == len(keys)


async def test_a_memo_over_it_makes_each_value_once(cache: Cache) -> None:
    memo, again = Memo(cache, TypeAdapter(int)), Memo(cache, TypeAdapter(int))
    results = await asyncio.gather(*(memo.get(["a", "bb"], lengths) for _ in range(10)))
    assert [result["a"].known for result in results].count(False) == 1
    known = {"a": Remembered(1, True), "bb": Remembered(2, True)}
    assert await memo.get(["a", "bb"], lengths) == await again.get(["a", "bb"], lengths) == known


@contextlib.asynccontextmanager
async def over(url: str, pause_seconds: float = 0.15) -> AsyncIterator[RedisCache]:
    cache = RedisCache(url, 60.0, pause_seconds)
    try:
        yield cache
    finally:
        await cache.close()


async def until_back(cache: Cache) -> None:
    """Wait until what is put in comes back. Fails after some seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        await cache.put_many({"back": b"again"})
        if await cache.get_many(["back"]):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the cache has not come back")


async def seconds_of(*calls: Coroutine[Any, Any, object]) -> float:
    started = time.perf_counter()
    await asyncio.gather(*calls)
    return time.perf_counter() - started


def told(logs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Which outages were logged, and of what."""
    names = ("cache_unavailable", "cache_available")
    return [(line["event"], line["use"]) for line in logs if line["event"] in names]


async def test_nothing_is_connected_before_the_first_use(clean: RedisServer) -> None:
    with clean.frozen():
        started = time.perf_counter()
        cache = RedisCache(clean.url, 60.0)
        await cache.close()
        assert time.perf_counter() - started < UNHURT


async def test_where_nobody_listens_every_value_is_made_and_the_log_has_one_line(unused_tcp_port: int) -> None:
    with capture_logs() as logs:
        async with over(f"redis://:hunter2@127.0.0.1:{unused_tcp_port}/0") as cache:
            memo = Memo(cache, TypeAdapter(int))
            for _ in range(40):
                assert await memo.get(["a", "bb"], lengths) == {"a": Remembered(1, False), "bb": Remembered(2, False)}
                await asyncio.sleep(0.01)
    assert told(logs) == [("cache_unavailable", "read")]
    assert not [word for word in ("hunter2", "127.0.0.1", str(unused_tcp_port)) if word in repr(logs)]


async def test_one_that_hangs_costs_one_time_out_and_comes_back_with_the_right_values(clean: RedisServer) -> None:
    with capture_logs() as logs:
        async with over(clean.url) as cache:
            values = {f"k{number}": str(number).encode() for number in range(60)}
            await cache.put_many(values)
            # Some connections are open already, others are yet to be made.
            await asyncio.gather(*(cache.get_many([key]) for key in list(values)[:5]))
            with clean.frozen():
                assert await seconds_of(*(cache.get_many([key]) for key in values)) < ONE_TIMEOUT
                assert await seconds_of(*(cache.get_many([key]) for key in values), cache.put_many(values)) < UNHURT
                await asyncio.sleep(0.2)
                # The pause is over: one of many tries again, the others do not wait for it.
                probe = asyncio.create_task(cache.get_many(["k0"]))
                await asyncio.sleep(0)
                assert await seconds_of(*(cache.get_many([key]) for key in values)) < UNHURT
                assert await probe == {}
            await until_back(cache)
            answers = await asyncio.gather(*(cache.get_many([key]) for key in values))
            assert list(answers) == [{key: value} for key, value in values.items()]
    assert told(logs) == [("cache_unavailable", "read"), ("cache_available", "read")]


async def test_a_loop_that_stands_still_is_no_outage(clean: RedisServer) -> None:
    with capture_logs() as logs:
        async with over(clean.url) as cache:
            await cache.put_many({"a": b"1"})
            asking = asyncio.create_task(cache.get_many(["a"]))
            await asyncio.sleep(0)
            # The request has gone out; the answer comes while nobody looks.
            time.sleep(0.4)  # noqa: ASYNC251  # that is what is tried out here
            answer = await asking
    assert answer == {"a": b"1"}
    assert not logs


async def test_one_that_hangs_while_a_value_is_stored_delays_it_by_one_time_out(clean: RedisServer) -> None:
    async with over(clean.url) as cache:
        memo = Memo(cache, TypeAdapter(int))

        async def make(keys: tuple[str, ...]) -> Mapping[str, int]:
            stack.enter_context(clean.frozen())
            return await lengths(keys)

        with contextlib.ExitStack() as stack:
            started = time.perf_counter()
            assert await memo.get(["a"], make) == {"a": Remembered(1, False)}
            assert time.perf_counter() - started < ONE_TIMEOUT
        await until_back(cache)


async def test_one_that_is_killed_and_started_again_is_used_again() -> None:
    with redis_server() as server, capture_logs() as logs:
        async with over(server.url) as cache:
            memo = Memo(cache, TypeAdapter(int))
            await memo.get(["a"], lengths)
            server.kill()
            assert await memo.get(["a"], lengths) == {"a": Remembered(1, False)}
            server.start()
            await until_back(cache)
            # Restarted between two uses, it is not even missed.
            server.kill()
            server.start()
            # The loop hears of it when it next runs.
            await asyncio.sleep(0.01)
            assert await memo.get(["a"], lengths) == {"a": Remembered(1, False)}
            assert await memo.get(["a"], lengths) == {"a": Remembered(1, True)}
    assert told(logs) == [("cache_unavailable", "read"), ("cache_available", "read")]


async def test_a_full_one_takes_nothing_and_still_answers() -> None:
    with redis_server("--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as server, capture_logs() as logs:
        async with over(server.url) as cache:
            await cache.put_many({"first": b"1"})
            for number in range(40):
                await cache.put_many({f"k{number}": b"x" * 100_000})
            for _ in range(10):
                assert await cache.get_many(["first"]) == {"first": b"1"}
                await cache.put_many({"late": b"2", "later": b"3"})
            assert await cache.get_many(["late", "later"]) == {}
            await server.command("FLUSHALL")
            await until_back(cache)
    assert told(logs) == [("cache_unavailable", "write"), ("cache_available", "write")]


async def test_one_that_may_only_be_read_is_read(clean: RedisServer) -> None:
    await clean.command("ACL", "SETUSER", "reader", "on", ">hunter2", "~*", "+@read", "+@connection")
    with capture_logs() as logs:
        async with over(clean.url) as writer, over(clean.url.replace("//", "//reader:hunter2@")) as cache:
            await writer.put_many({"a": b"1"})
            for _ in range(5):
                await cache.put_many({"b": b"2"})
                assert await cache.get_many(["a", "b"]) == {"a": b"1"}
    assert told(logs) == [("cache_unavailable", "write")]
    assert "hunter2" not in repr(logs)


@pytest.mark.parametrize("given", ["", ":hunter2@", "nobody:hunter2@"])
async def test_a_wrong_password_is_an_outage_and_no_log_has_it(given: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with redis_server(password="s3cr3t") as server, capture_logs() as logs:
        async with over(server.url) as right, over(f"redis://{given}127.0.0.1:{server.port}/0") as wrong:
            for _ in range(5):
                await wrong.put_many({"a": b"1"})
                assert await wrong.get_many(["a"]) == {}
            await right.put_many({"a": b"1"})
            assert await right.get_many(["a"]) == {"a": b"1"}
    assert told(logs) == [("cache_unavailable", "write")]
    assert not [word for word in ("hunter2", "s3cr3t", str(server.port)) if word in repr(logs) + caplog.text]


async def test_what_something_else_wrote_counts_as_missing(clean: RedisServer) -> None:
    async with over(clean.url) as cache:
        await cache.put_many({"a": b"1", "b": b"2"})
        stored = await clean.command("GET", "a")
        strange: dict[str, bytes] = {
            "text": b"no value of ours",
            "short": b"x",
            "nothing": b"",
            "moved": stored,
            "longer": stored + b"0",
            "cut": stored[:-1],
        }
        for key, value in strange.items():
            await clean.command("SET", key, value)
        await clean.command("RPUSH", "list", "1")
        assert await cache.get_many(["a", *strange, "list", "b"]) == {"a": b"1", "b": b"2"}
        memo = Memo(cache, TypeAdapter(int))
        assert (await memo.get(["text", "list"], lengths))["text"] == Remembered(4, False)
        assert await memo.get(["text", "list"], lengths) == {"text": Remembered(4, True), "list": Remembered(4, True)}


async def test_every_value_has_its_time(clean: RedisServer) -> None:
    async with over(clean.url) as cache:
        await cache.put_many({"a": b"1", "b": b"2"})
    for key in ("a", "b"):
        assert 50_000 < int(await clean.command("PTTL", key)) <= 60_000


async def test_an_encrypted_connection_is_made_to_a_server_that_proves_itself_alone(tmp_path: Path) -> None:
    authority, stranger = Authority(), Authority("stranger")
    files = write(tmp_path, authority.issue(), authority.pem)
    (tmp_path / "other.pem").write_bytes(stranger.pem)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ["--tls-port", str(port), "--tls-cert-file", str(files.cert), "--tls-key-file", str(files.key)]
    with redis_server(*options, "--tls-auth-clients", "no", "--tls-ca-cert-file", str(files.ca)):
        for trusted, found in ((files.ca, {"a": b"1"}), (tmp_path / "other.pem", {})):
            async with over(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={trusted}") as cache:
                await cache.put_many({"a": b"1"})
                assert await cache.get_many(["a"]) == found


ANSWERS = {
    "silence": None,
    "hang up": b"",
    "another protocol": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "half an answer": b"%7\r\n$6\r\nser",
    "nonsense": b"\x00\xff\r\n" * 50,
    "an error without end": b"-" + b"x" * 100_000,
}


@pytest.mark.parametrize("answer", list(ANSWERS.values()), ids=list(ANSWERS))
async def test_what_is_no_redis_costs_time_only(answer: bytes | None) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(100)
            if answer is None:
                await reader.read()
            writer.write(answer or b"")
            await writer.drain()
        writer.close()

    listener = await asyncio.start_server(talk, "127.0.0.1", 0)
    with capture_logs() as logs:
        async with listener, over(f"redis://127.0.0.1:{listener.sockets[0].getsockname()[1]}/0") as cache:
            memo = Memo(cache, TypeAdapter(int))
            assert await seconds_of(memo.get(["a"], lengths)) < ONE_TIMEOUT
            assert await seconds_of(memo.get(["a"], lengths)) < UNHURT
    assert told(logs) == [("cache_unavailable", "read")]


async def test_callers_who_leave_during_an_outage_do_not_wear_it_out(clean: RedisServer) -> None:
    async with over(clean.url) as cache:
        await cache.put_many({"a": b"1"})
        with clean.frozen():
            for _ in range(3):
                calls = [asyncio.create_task(cache.get_many(["a"])) for _ in range(40)]
                await asyncio.sleep(0.02)
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)
        await until_back(cache)
        assert await asyncio.gather(*(cache.get_many(["a"]) for _ in range(100))) == [{"a": b"1"}] * 100
    assert len(asyncio.all_tasks()) == 1
