"""A response body that fails when it gets too long. Imports httpx2: import this module lazily."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx2

from errata_kit.llm.openai_faults import ResponseTooLargeError


class BoundedStream(httpx2.AsyncByteStream):
    """Passes a body on until it has more than `limit` bytes."""

    def __init__(self, inner: object, limit: int) -> None:
        self._inner = cast(httpx2.AsyncByteStream, inner)
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for part in self._inner:
            received += len(part)
            if received > self._limit:
                raise ResponseTooLargeError(f"more than {self._limit} bytes")
            yield part

    async def aclose(self) -> None:
        await self._inner.aclose()
