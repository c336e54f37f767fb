"""Finds a run by the beginning of its id."""

import datetime
import re
from collections.abc import AsyncIterator
from typing import Final

from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc

from errata_cli.calling import CALL_SECONDS
from errata_cli.terminal import UsageError
from errata_kit.bounds import MAX_PAGE_SIZE
from errata_kit.errors import RunNotFound

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A UUIDv7 begins with its time: 48 bits of milliseconds, 12 hexadecimal digits.
_TIME_DIGITS: Final = 12
# The end of the year 9999, behind which a Timestamp can't go.
_LATEST_MS: Final = 253_402_300_799_000
# The id is made before the run is stored.
_SLACK_MS: Final = 120_000
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


async def run_id_of(stub: pb2_grpc.OrchestratorServiceStub, text: str) -> str:
    """The id that begins with text. Raises UsageError when several do, RunNotFound when none does."""
    wanted = text.strip().lower()
    if _ID.fullmatch(wanted):
        return wanted
    if not wanted or len(wanted) > 36 or re.search(r"[^0-9a-f-]", wanted):
        raise UsageError(f"{text!r} is no run id, and not the beginning of one")
    earliest, latest = time_span(wanted)
    query = pb2.ListRunsRequest()
    query.create_time_from.FromDatetime(earliest)
    query.create_time_before.FromDatetime(latest)
    found: list[str] = []
    async for run in all_runs(stub, query):
        if run.run_id.startswith(wanted):
            found.append(run.run_id)
        if len(found) > 1:
            raise UsageError(f"more than one run id begins with {wanted}: {', '.join(found)}; give more of it")
    if not found:
        raise RunNotFound(wanted)
    return found[0]


def time_span(prefix: str) -> tuple[datetime.datetime, datetime.datetime]:
    """When runs whose UUIDv7 begins with prefix can have started."""
    digits = prefix.replace("-", "")[:_TIME_DIGITS]
    first, last = (int(digits.ljust(_TIME_DIGITS, fill), 16) for fill in "0f")
    earliest, latest = (min(max(0, value), _LATEST_MS) for value in (first - _SLACK_MS, last + _SLACK_MS))
    return _EPOCH + datetime.timedelta(milliseconds=earliest), _EPOCH + datetime.timedelta(milliseconds=latest)


async def all_runs(
    stub: pb2_grpc.OrchestratorServiceStub, query: pb2.ListRunsRequest, limit: int | None = None
) -> AsyncIterator[pb2.Run]:
    """The runs of a query, newest first, page by page; at most limit."""
    request = pb2.ListRunsRequest()
    request.CopyFrom(query)
    left = limit
    while left is None or left > 0:
        request.page_size = MAX_PAGE_SIZE if left is None else min(left, MAX_PAGE_SIZE)
        page = await stub.ListRuns(request, timeout=CALL_SECONDS)
        for run in page.runs[:left]:
            yield run
        left = None if left is None else left - len(page.runs)
        request.page_token = page.next_page_token
        if not request.page_token:
            return
