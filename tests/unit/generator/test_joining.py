"""Pieces that are there together travel together, and nothing is held back, lost or reordered."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from services.generator.joining import joined


async def at_once() -> AsyncGenerator[str | int, None]:
    for piece in ("a", "b", "", "c", 7):
        yield piece


async def test_what_arrives_together_becomes_one_piece() -> None:
    assert [piece async for piece in joined(at_once())] == ["abc", 7]


async def test_a_piece_that_comes_alone_does_not_wait_for_the_next() -> None:
    more = asyncio.Event()

    async def slow() -> AsyncGenerator[str | int, None]:
        yield "first"
        await more.wait()
        yield "second"

    async with contextlib.aclosing(joined(slow())) as pieces:
        assert await asyncio.wait_for(anext(pieces), 1) == "first"
        more.set()
        assert [piece async for piece in pieces] == ["second"]


async def test_an_error_comes_behind_what_arrived_before_it() -> None:
    async def broken() -> AsyncGenerator[str | int, None]:
        yield "text"
        raise ConnectionError

    found: list[str | int] = []
    with pytest.raises(ConnectionError):
        async for piece in joined(broken()):
            found.append(piece)
    assert found == ["text"]


async def test_leaving_early_stops_the_reading() -> None:
    closed = asyncio.Event()

    async def endless() -> AsyncGenerator[str | int, None]:
        try:
            while True:
                yield "x"
                await asyncio.sleep(0.001)
        finally:
            closed.set()

    source = endless()
    async with contextlib.aclosing(source), contextlib.aclosing(joined(source)) as pieces:
        await anext(pieces)
    assert closed.is_set()
    assert len(asyncio.all_tasks()) == 1


async def test_fast_pieces_are_joined_and_none_waits_for_the_end() -> None:
    async def fast() -> AsyncGenerator[str | int, None]:
        for _ in range(200):
            yield "x"
            await asyncio.sleep(0.001)

    found = [piece async for piece in joined(fast())]
    assert "".join(map(str, found)) == "x" * 200
    assert found[0] == "x"
    assert 3 <= len(found) <= 30


async def test_an_empty_piece_is_no_piece() -> None:
    async def empty() -> AsyncGenerator[str | int, None]:
        yield ""
        yield ""

    assert [piece async for piece in joined(empty())] == []


async def test_nothing_gives_nothing() -> None:
    async def nothing() -> AsyncGenerator[str | int, None]:
        return
        yield ""

    assert [piece async for piece in joined(nothing())] == []
