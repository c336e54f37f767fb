"""One engine for many examples, and what must hold for the trace of every run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import strategies as st
from langgraph.checkpoint.memory import InMemorySaver

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import DeadlineExceeded, ErrataError, ModelOutputInvalid, ModelRefused, ModelUnavailable
from services.orchestrator.runs.checkpoints import Checkpoints
from services.orchestrator.runs.events import ApprovalDecided, ApprovalRequested, Payload, RunFinished, TraceEvent
from services.orchestrator.runs.run import Lease, RunOptions, RunState
from services.orchestrator.runs.trace import Recording, RunTrace
from services.orchestrator.runs.workflow import Workflow
from tests.harness.engines import Driven, driving

ERRORS: tuple[Callable[[str], ErrataError], ...] = (ModelUnavailable, ModelOutputInvalid, ModelRefused, DeadlineExceeded)
T = TypeVar("T")


@dataclass
class Script:
    """Draws what happens next, and keeps what the services were asked. closed: any call is a mistake."""

    data: st.DataObject
    failures: bool
    questions: set[str] = field(default_factory=set)
    searched: list[str] = field(default_factory=list)
    graded_ids: list[str] = field(default_factory=list)
    written: int = 0
    corrected: int = 0
    broken: bool = False
    closed: bool = False

    def draw(self, strategy: st.SearchStrategy[T]) -> T:
        return self.data.draw(strategy)

    def asked(self, question: str) -> None:
        assert not self.closed, "a recorded step was done again"
        self.questions.add(question)
        if self.failures and self.draw(st.integers(0, 7)) == 0:
            self.broken = True
            raise self.draw(st.sampled_from(ERRORS))("drawn")


@dataclass
class Bench:
    """A loop and an engine that all examples of a test share."""

    runner: asyncio.Runner
    driven: Driven

    def run(self, workflow: str, request: Any, decide: Callable[[ApprovalRequested], ApprovalDecided]) -> list[TraceEvent]:
        """Run to the end and return the trace as it was watched; it must be the stored one."""
        return self.runner.run(self._run(workflow, request, decide))

    async def _run(
        self, workflow: str, request: Any, decide: Callable[[ApprovalRequested], ApprovalDecided]
    ) -> list[TraceEvent]:
        engine, store = self.driven.engine, self.driven.storage.store
        run_id, new = await engine.start(workflow, request, RunOptions())
        assert new
        live: list[TraceEvent] = []
        async with asyncio.timeout(20), contextlib.aclosing(engine.watch(DEFAULT_TENANT, run_id)) as watching:
            async for event in watching:
                live.append(event)
                if isinstance(event.payload, ApprovalRequested):
                    await engine.decide(DEFAULT_TENANT, run_id, decide(event.payload))
        stored = await store.events(DEFAULT_TENANT, run_id, 0)
        assert [event for event in live if event.sequence] == list(stored)
        run = await store.get(DEFAULT_TENANT, run_id)
        assert (run.state, run.last_sequence) == (RunState.FINISHED, len(stored))
        return list(stored)

    def replay(self, workflow: Workflow, request: Any, stored: list[TraceEvent]) -> RunFinished | ApprovalRequested:
        """The result of going through the graph from its start with a recorded trace; nothing may be recorded anew."""
        lease = Lease(stored[0].run_id, "nobody", 1)
        recording = Recording(_Nothing(), _Nothing(), lambda event: None, 0.0)  # type: ignore[arg-type]  # nothing is stored
        return self.runner.run(workflow.run(request, RunTrace(lease, recording, stored)))


class _Nothing:
    """A store that takes nothing, and a lease that is kept."""

    async def check(self, lease: Lease) -> None:
        return None

    async def append(self, *_: Any) -> None:
        raise AssertionError("an event was recorded twice")


def no_checkpoints() -> Checkpoints:
    """Checkpoints of a run that has none yet."""
    return Checkpoints(InMemorySaver())


@contextlib.contextmanager
def bench(folder: Path, workflows: Callable[[Checkpoints], tuple[Workflow, ...]]) -> Iterator[Bench]:
    """The shared engine inside the block. An outage is told at once."""
    with asyncio.Runner() as runner:
        block: contextlib.AbstractAsyncContextManager[Driven] = driving(folder, lambda storage: workflows(storage.checkpoints))
        driven = runner.run(block.__aenter__())
        try:
            yield Bench(runner, driven)
        finally:
            runner.run(block.__aexit__(None, None, None))


def payloads_of(stored: list[TraceEvent]) -> tuple[list[Payload], RunFinished]:
    """The payloads of a whole trace and its end: no gap, and one terminal event, which comes last."""
    assert [event.sequence for event in stored] == list(range(1, len(stored) + 1))
    assert [event for event in stored if isinstance(event.payload, RunFinished)] == [stored[-1]]
    finished = stored[-1].payload
    assert isinstance(finished, RunFinished)
    return [event.payload for event in stored], finished


def comparable(finished: RunFinished | ApprovalRequested) -> RunFinished:
    """A terminal event without what the engine adds to it."""
    assert isinstance(finished, RunFinished)
    return replace(finished, elapsed_seconds=0.0, model_calls=())
