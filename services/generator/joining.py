"""Joins pieces of text that are there at the same time, so that each message on the wire carries what has arrived."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

from errata_kit.calls import stop_task

End = TypeVar("End")


async def joined(pieces: AsyncIterator[str | End]) -> AsyncGenerator[str | End, None]:
    """The same text in no more pieces than it came in, and what is no text in its place. Holds nothing back.

    A piece that arrives while nobody waits for one is passed on at once. Those that arrive together, or while the one before is
    being sent, become one piece. Leaving early stops the reading of pieces.
    """
    waiting: deque[str | End] = deque()
    arrived = asyncio.Event()

    async def read() -> None:
        try:
            async for piece in pieces:
                waiting.append(piece)
                arrived.set()
        finally:
            arrived.set()

    reader = asyncio.create_task(read())
    try:
        while waiting or not reader.done():
            await arrived.wait()
            arrived.clear()
            while waiting:
                text = ""
                while waiting and isinstance(waiting[0], str):
                    text += str(waiting.popleft())
                if text:
                    yield text
                elif waiting:
                    yield waiting.popleft()
        await reader
    finally:
        await stop_task(reader)
