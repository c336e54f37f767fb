"""Joins pieces of text that follow each other closely, so that a fast model does not cost a message a token."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, TypeVar

from errata_kit.calls import stop_task

End = TypeVar("End")

# Shorter than anybody sees, and a few tokens of a fast model.
_INTERVAL_SECONDS: Final = 0.02


async def joined(pieces: AsyncIterator[str | End]) -> AsyncGenerator[str | End, None]:
    """The same text in no more pieces than it came in, and what is no text in its place.

    The first piece, and one that comes later than 20 ms behind the one before, is passed on at once. Those in between become
    one piece, as does what is left at the end, which waits for nothing. Leaving early stops the reading of pieces.
    """
    loop = asyncio.get_running_loop()
    waiting: deque[str | End] = deque()
    arrived = asyncio.Event()
    ended = asyncio.Event()

    async def read() -> None:
        try:
            async for piece in pieces:
                waiting.append(piece)
                arrived.set()
        finally:
            ended.set()
            arrived.set()

    reader = asyncio.create_task(read())
    due = loop.time()
    try:
        while waiting or not ended.is_set():
            await arrived.wait()
            arrived.clear()
            await _until(due, ended)
            while waiting:
                piece = _next(waiting)
                if piece != "":
                    yield piece
            due = loop.time() + _INTERVAL_SECONDS
        await reader
    finally:
        await stop_task(reader)


async def _until(due: float, ended: asyncio.Event) -> None:
    """Wait until a moment on the loop's clock, or until everything is there."""
    try:
        async with asyncio.timeout_at(due):
            await ended.wait()
    except TimeoutError:
        return


def _next(waiting: deque[str | End]) -> str | End:
    text = ""
    if not isinstance(waiting[0], str):
        return waiting.popleft()
    while waiting and isinstance(waiting[0], str):
        text += str(waiting.popleft())
    return text
