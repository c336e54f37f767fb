"""Finding a run, and reading its stream: prefixes, lost connections, approvals, exit codes."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2

from errata_cli import calling
from errata_cli.calling import Follower, exit_code, follow_watch
from errata_cli.finding import all_runs, run_id_of, time_span
from errata_cli.terminal import ExitCode, UsageError
from errata_kit.errors import RunNotFound

RUN_ID = "01a22c99-8cab-7038-8d25-e7fab977b93c"
OTHER = "01a22c99-8495-7031-8d5b-b1f2e7f0bc9c"


def lost(code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata())


def event(sequence: int, **payload: Any) -> trace_pb2.TraceEvent:
    return trace_pb2.TraceEvent(run_id=RUN_ID, sequence=sequence, **payload)


STARTED = event(1, run_started=trace_pb2.RunStarted())
WANTED = event(2, approval_requested=trace_pb2.ApprovalRequested(approval=1))
DONE = event(3, run_finished=trace_pb2.RunFinished(outcome="OUTCOME_APPROVED"))


class Stream:
    """A response stream that yields events, and raises at its end what it is given."""

    def __init__(self, *events: trace_pb2.TraceEvent, error: Exception | None = None) -> None:
        self._events, self._error = events, error
        self.cancelled = False

    async def __aiter__(self) -> AsyncIterator[pb2.WatchRunResponse]:
        for item in self._events:
            yield pb2.WatchRunResponse(event=item)
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class Stub:
    """The orchestrator's stub, scripted."""

    run: pb2.Run = field(default_factory=pb2.Run)
    runs: Sequence[str] = ()
    streams: list[Stream] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)

    async def GetRun(self, request: pb2.GetRunRequest, timeout: float) -> pb2.GetRunResponse:  # noqa: N802, ASYNC109
        return pb2.GetRunResponse(run=self.run, result=trace_pb2.RunFinished(outcome=self.run.outcome))

    async def ListRuns(self, request: pb2.ListRunsRequest, timeout: float) -> pb2.ListRunsResponse:  # noqa: N802, ASYNC109
        self.asked.append(pb2.ListRunsRequest.FromString(request.SerializeToString()))
        first = int(request.page_token or 0)
        page = self.runs[first : first + request.page_size]
        after = first + len(page)
        token = str(after) if after < len(self.runs) else ""
        return pb2.ListRunsResponse(runs=[pb2.Run(run_id=run_id) for run_id in page], next_page_token=token)

    def WatchRun(self, request: pb2.WatchRunRequest, timeout: float | None = None) -> Stream:  # noqa: N802
        self.asked.append(request)
        return self.streams.pop(0)


def follower(stub: Stub, **options: bool) -> Follower:
    return Follower(stub, json_lines=False, **options)  # type: ignore[arg-type]  # scripted


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_REATTACH_PAUSE", 0.0)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("ANSWERED", ExitCode.OK),
        ("ANSWERED_AFTER_REFINEMENT", ExitCode.OK),
        ("APPROVED", ExitCode.OK),
        ("REFUSED_NO_EVIDENCE", ExitCode.REFUSED),
        ("REFUSED_UNFAITHFUL", ExitCode.REFUSED),
        ("MAX_REVISIONS_REACHED", ExitCode.REFUSED),
        ("REJECTED", ExitCode.REFUSED),
        ("BUDGET_EXHAUSTED", ExitCode.REFUSED),
        ("FAILED", ExitCode.FAILED),
        ("CANCELLED", ExitCode.FAILED),
        ("DEADLINE_EXCEEDED", ExitCode.FAILED),
    ],
)
def test_the_exit_code_tells_the_ends_apart(outcome: str, code: ExitCode) -> None:
    assert exit_code(trace_pb2.RunFinished(outcome=f"OUTCOME_{outcome}")) is code
    assert exit_code(None) is ExitCode.FAILED


async def test_the_status_behind_the_last_event_says_nothing_new() -> None:
    failed = event(2, run_finished=trace_pb2.RunFinished(outcome="OUTCOME_REJECTED"))
    stream = Stream(STARTED, failed, error=lost(grpc.StatusCode.INTERNAL))
    assert await follower(Stub()).follow(stream) is ExitCode.REFUSED
    assert stream.cancelled


async def test_a_lost_connection_is_taken_up_behind_the_last_event(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(streams=[Stream(error=lost()), Stream(DONE)])
    assert await follower(stub).follow(Stream(STARTED, event(2), error=lost())) is ExitCode.OK
    assert [(request.run_id, request.after_sequence) for request in stub.asked] == [(RUN_ID, 2)] * 2
    assert capsys.readouterr().err.count("attaching to the run again") == 1


async def test_a_run_that_never_began_and_other_failures_are_not_attached_to_again() -> None:
    with pytest.raises(grpc.aio.AioRpcError):
        await follower(Stub()).follow(Stream(error=lost()))
    with pytest.raises(grpc.aio.AioRpcError):
        await follower(Stub()).follow(Stream(STARTED, error=lost(grpc.StatusCode.DEADLINE_EXCEEDED)))


async def test_it_does_not_try_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "_REATTACH_SECONDS", -1.0)
    with pytest.raises(grpc.aio.AioRpcError):
        await follower(Stub()).follow(Stream(STARTED, error=lost()))


async def test_it_leaves_when_a_person_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(run=pb2.Run(state="RUN_STATE_WAITING", last_sequence=2))
    assert await follower(stub).follow(Stream(STARTED, WANTED, DONE)) is ExitCode.WAITING
    assert f"errata approve {RUN_ID}" in capsys.readouterr().out


async def test_a_watcher_stays_when_a_person_is_wanted() -> None:
    stub = Stub(run=pb2.Run(state="RUN_STATE_WAITING", last_sequence=2))
    assert await follower(stub, waits=True).follow(Stream(STARTED, WANTED, DONE)) is ExitCode.OK


@pytest.mark.parametrize(("state", "last"), [("FINISHED", 3), ("WAITING", 9), ("RUNNING", 3)])
async def test_what_was_decided_long_ago_is_not_asked_again(state: str, last: int, capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(run=pb2.Run(state=f"RUN_STATE_{state}", last_sequence=last))
    assert await follower(stub).follow(Stream(STARTED, WANTED, DONE)) is ExitCode.OK
    assert "errata approve" not in capsys.readouterr().out


async def test_watching_behind_the_end_tells_how_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    stub = Stub(run=pb2.Run(outcome="OUTCOME_REJECTED"), streams=[Stream()])
    code = await follow_watch(follower(stub), stub, RUN_ID, 99)  # type: ignore[arg-type]  # scripted
    assert code is ExitCode.REFUSED
    assert "had ended before" in capsys.readouterr().err


async def found(stub: Stub, text: str) -> str:
    return await run_id_of(stub, text)  # type: ignore[arg-type]  # scripted


async def test_a_whole_id_is_not_looked_up() -> None:
    stub = Stub()
    assert await found(stub, RUN_ID.upper()) == RUN_ID
    assert stub.asked == []


async def test_a_beginning_finds_its_run_among_those_of_its_time() -> None:
    stub = Stub(runs=[RUN_ID, OTHER])
    assert await found(stub, "01a22c99-8c") == RUN_ID
    asked = stub.asked[0]
    started = int("01a22c998cab", 16) / 1000
    assert asked.create_time_from.seconds <= started <= asked.create_time_before.seconds
    assert asked.create_time_before.seconds - asked.create_time_from.seconds < 300


async def test_a_beginning_of_several_or_none_is_a_sentence() -> None:
    stub = Stub(runs=[RUN_ID, OTHER])
    with pytest.raises(UsageError, match=f"{RUN_ID}, {OTHER}; give more"):
        await found(stub, "01a2")
    with pytest.raises(RunNotFound):
        await found(stub, "01a3")
    for text in ("", "nonsense", "0" * 37, "01a2%"):
        with pytest.raises(UsageError, match="no run id"):
            await found(stub, text)


@pytest.mark.parametrize("prefix", ["0", "f", "01a2", "ffffffff-ffff", "0" * 12, RUN_ID[:-1]])
def test_every_prefix_has_a_span_that_a_timestamp_holds(prefix: str) -> None:
    earliest, latest = time_span(prefix)
    assert earliest < latest or prefix[0] == "f"
    request = pb2.ListRunsRequest()
    request.create_time_from.FromDatetime(earliest)
    request.create_time_before.FromDatetime(latest)


@pytest.mark.parametrize(("limit", "expected", "sizes"), [(None, 1203, [500, 500, 500]), (700, 700, [500, 200]), (3, 3, [3])])
async def test_pages_are_fetched_as_far_as_needed(limit: int | None, expected: int, sizes: list[int]) -> None:
    stub = Stub(runs=[str(number) for number in range(1203)])
    listed = [run.run_id async for run in all_runs(stub, pb2.ListRunsRequest(workflow="compose"), limit)]  # type: ignore[arg-type]
    assert listed == [str(number) for number in range(expected)]
    assert [request.page_size for request in stub.asked] == sizes
    assert {request.workflow for request in stub.asked} == {"compose"}
