"""Where runs and their events are kept. The memory store serves one process; a durable one has the same interface."""

import datetime
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from errata_kit.errors import RunNotFound
from errata_kit.paging import after_of, page_token
from services.orchestrator.runs.events import Outcome, Payload, RunFinished, RunStarted, TraceEvent


class RunState(StrEnum):
    """Whether a run is under way."""

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is listed. result is its terminal event, None while it runs."""

    run_id: str
    workflow: str
    question: str
    collection: str
    create_time: datetime.datetime
    state: RunState = RunState.RUNNING
    last_sequence: int = 0
    finish_time: datetime.datetime | None = None
    result: RunFinished | None = None


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs to list, newest first; None means any. page_size is 1–500."""

    page_size: int
    page_token: str = ""
    state: RunState | None = None
    outcome: Outcome | None = None

    def selects(self, run: Run) -> bool:
        """Whether a run is listed."""
        if self.state is not None and run.state is not self.state:
            return False
        return self.outcome is None or (run.result is not None and run.result.outcome is self.outcome)


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs; next_page_token is empty on the last."""

    runs: tuple[Run, ...]
    next_page_token: str


class RunStore(Protocol):
    """Keeps runs. Everything is stored before it is shown to anybody."""

    async def create(self, run_id: str, started: RunStarted) -> TraceEvent:
        """Begin a run; returns its first event, which has sequence 1."""
        ...

    async def append(self, run_id: str, payload: Payload) -> TraceEvent:
        """Store the next event of a run. A RunFinished ends it; after that nothing may be appended (RuntimeError)."""
        ...

    async def get(self, run_id: str) -> Run:
        """The run; RunNotFound without."""
        ...

    async def events(self, run_id: str, after: int) -> tuple[TraceEvent, ...]:
        """Its stored events with a sequence above after, in order; RunNotFound without the run."""
        ...

    async def list(self, query: RunQuery) -> RunPage:
        """A page of runs, newest first; InvalidFields for a token of another query."""
        ...


class MemoryRunStore:
    """Keeps runs in this process. Of those that have ended, the newest max_finished are kept."""

    def __init__(self, max_finished: int = 1000) -> None:
        self._max_finished = max_finished
        self._runs: dict[str, Run] = {}
        self._events: dict[str, list[TraceEvent]] = {}
        self._finished: dict[str, None] = {}

    async def create(self, run_id: str, started: RunStarted) -> TraceEvent:
        """Begin a run."""
        now = datetime.datetime.now(datetime.UTC)
        self._runs[run_id] = Run(run_id, started.workflow, started.question, started.collection, now)
        self._events[run_id] = []
        return await self.append(run_id, started)

    async def append(self, run_id: str, payload: Payload) -> TraceEvent:
        """Store the next event."""
        run = await self.get(run_id)
        if run.state is RunState.FINISHED:
            raise RuntimeError("an event was appended to a run that has ended")
        event = TraceEvent(run_id, run.last_sequence + 1, datetime.datetime.now(datetime.UTC), payload)
        self._events[run_id].append(event)
        run = replace(run, last_sequence=event.sequence)
        if isinstance(payload, RunFinished):
            run = replace(run, state=RunState.FINISHED, finish_time=event.create_time, result=payload)
            self._finished[run_id] = None
        self._runs[run_id] = run
        self._forget()
        return event

    async def get(self, run_id: str) -> Run:
        """The run."""
        try:
            return self._runs[run_id]
        except KeyError:
            raise RunNotFound(run_id) from None

    async def events(self, run_id: str, after: int) -> tuple[TraceEvent, ...]:
        """Its events behind after."""
        await self.get(run_id)
        return tuple(self._events[run_id][after:])

    async def list(self, query: RunQuery) -> RunPage:
        """A page of runs. Ids are UUIDv7, so their order is the order of time."""
        before = after_of(query.page_token, _fingerprint(query))
        selected = [
            run
            for run_id, run in sorted(self._runs.items(), reverse=True)
            if (not before or run_id < before) and query.selects(run)
        ]
        page = tuple(selected[: query.page_size])
        more = len(selected) > query.page_size
        return RunPage(page, page_token(_fingerprint(query), page[-1].run_id) if more else "")

    def _forget(self) -> None:
        while len(self._finished) > self._max_finished:
            oldest = next(iter(self._finished))
            del self._finished[oldest], self._runs[oldest], self._events[oldest]


def _fingerprint(query: RunQuery) -> list[str]:
    return ["runs", str(query.state), str(query.outcome)]
