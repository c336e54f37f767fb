"""CPU work beside the event loop, where it is large enough to be worth the way."""

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

_INLINE_CHARACTERS: Final = 16 * 1024

P = ParamSpec("P")
R = TypeVar("R")


async def off_loop(characters: int, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do CPU work in a thread, unless it is so little (about 2 ms) that the way there would cost more."""
    if characters <= _INLINE_CHARACTERS:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
