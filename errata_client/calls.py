"""One call: its deadline, its credentials, waiting as a busy service asks, and errors by their reason."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from errata_client.credentials import Credentials
from errata_kit.bounds import MAX_PAGE_SIZE
from errata_kit.errors import ErrataError, Reason, RemoteError, RunCancelled, ServiceUnavailable
from errata_kit.rpc.channels import reading
from errata_kit.rpc.status import from_rpc_error

RUN_SECONDS: Final = 120.0
"""Deadline of a run, and of an ingest, that is given none."""
CALL_SECONDS: Final = 30.0
"""Deadline of every other call that is given none."""
_BUSY: Final = frozenset({Reason.OVERLOADED, Reason.RATE_LIMITED})
_AWAY: Final = frozenset({Reason.SERVICE_UNAVAILABLE, Reason.DRAINING})
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Retries:
    """What a client does by itself. Whatever it waits for, a call's deadline ends it.

    when_busy: wait as long as OVERLOADED and RATE_LIMITED ask for, and call again; a wait beyond the deadline is not begun.
    start_seconds: how long the orchestrator may be out of reach before a run's first event. Behind the first event it is
    looked for until the deadline. jitter: waits are longer by a random part of at most this, so that clients that were
    turned away together do not come back together; 0 or more.
    """

    when_busy: bool = True
    start_seconds: float = 10.0
    jitter: float = 0.2

    def stretched(self, seconds: float) -> float:
        """A wait with its random part."""
        return seconds * (1 + random.uniform(0, self.jitter))  # noqa: S311 - spreads load, keeps no secret

    def pause(self, attempt: int) -> float:
        """Seconds before trying again to reach a service. attempt: failed ones in a row before this one, from 0."""
        return self.stretched(min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(attempt, 10)))


class Deadline:
    """When a call with all its repetitions must have ended."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds, never negative."""
        return max(0.0, self._end - time.monotonic())


class Caller:
    """Calls one service. Every failure is an ErrataError with the service's reason."""

    def __init__(self, service: str, credentials: Credentials | None, retries: Retries) -> None:
        self.service = service
        self.retries = retries
        self._credentials = credentials

    async def opened(self, method: Any, request: Any, deadline: Deadline) -> Any:
        """Start a call; reading it raises AioRpcError."""
        metadata = () if self._credentials is None else await self._credentials.metadata()
        return method(request, timeout=deadline.left(), metadata=metadata)

    async def unary(self, method: Any, request: Message, timeout: float | None = None) -> Any:
        """The reply. timeout: seconds, None for CALL_SECONDS. Raises ErrataError."""
        deadline = Deadline(CALL_SECONDS if timeout is None else timeout)
        while True:
            try:
                return await (await self.opened(method, request, deadline))
            except grpc.aio.AioRpcError as error:
                await self.wait_if_busy(self.error_of(error), deadline)

    async def stream(
        self,
        method: Any,
        request: Message,
        timeout: float | None = None,
    ) -> AsyncGenerator[Any, None]:
        """The replies of a stream that is not repeated once it has begun. Leaving it cancels it. Raises ErrataError."""
        deadline, begun = Deadline(CALL_SECONDS if timeout is None else timeout), False
        while True:
            try:
                async with reading(await self.opened(method, request, deadline)) as replies:
                    async for reply in replies:
                        begun = True
                        yield reply
                return
            except grpc.aio.AioRpcError as error:
                failed = self.error_of(error)
                if begun:
                    raise failed from error
                await self.wait_if_busy(failed, deadline)

    def error_of(self, error: grpc.aio.AioRpcError) -> ErrataError:
        """What went wrong. UNIMPLEMENTED is a service that is older than this client, or another one, and no outage."""
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            message = f"The {self.service} does not know this call; its version may differ, or it is another service"
            return RemoteError(Reason.INTERNAL, message, metadata={"service": self.service})
        return from_rpc_error(error, self.service)

    async def wait_if_busy(self, failed: ErrataError, deadline: Deadline) -> None:
        """Wait as a busy service asks. Raises the error when it is another one, or would take longer than there is time."""
        if not self.retries.when_busy or failed.why not in _BUSY or failed.retry_after is None:
            raise failed
        wait = self.retries.stretched(failed.retry_after)
        if wait >= deadline.left():
            raise failed
        await asyncio.sleep(wait)


def is_busy(failed: ErrataError) -> bool:
    """Whether the service turned the call away for now."""
    return failed.why in _BUSY and failed.retry_after is not None


def is_lost(failed: ErrataError) -> bool:
    """Whether the connection, or the replica behind it, is gone, and what was asked for may go on elsewhere.

    A cancelled call without a reason of Errata was cancelled by what lies in between, such as a proxy or a stopping server.
    """
    return failed.why in _AWAY or isinstance(failed, ServiceUnavailable | RunCancelled)


async def all_pages(
    caller: Caller,
    method: Any,
    request: Any,
    items: str,
    limit: int | None,
    timeout: float | None,
) -> AsyncGenerator[Any, None]:
    """The items of a listing, page by page, at most limit. items: their field. timeout: seconds for each page."""
    wanted = type(request)()
    wanted.CopyFrom(request)
    left = limit
    while left is None or left > 0:
        if left is not None:
            wanted.page_size = min(left, wanted.page_size or MAX_PAGE_SIZE)
        page = await caller.unary(method, wanted, timeout)
        found = getattr(page, items)
        for item in found[:left]:
            yield item
        left = None if left is None else left - len(found)
        wanted.page_token = page.next_page_token
        if not wanted.page_token:
            return
