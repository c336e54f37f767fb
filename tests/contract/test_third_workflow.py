"""The engine serves workflows that it knows nothing of: a third one is a class and its name in a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from pydantic import TypeAdapter
from pydantic.dataclasses import dataclass as validated

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import ErrataError, ModelRefused
from errata_kit.passages import Answer, Passage
from errata_kit.usage import ModelCall
from services.orchestrator.opening import Opened
from services.orchestrator.runs.events import Failure, Outcome, PassagesRetrieved, RunFinished, RunStarted, outcome_of
from services.orchestrator.runs.run import RunOptions
from services.orchestrator.runs.trace import RunTrace
from services.orchestrator.runs.workflow import Workflow
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.compose.graph import ComposeWorkflow
from tests.harness.engines import Driven, driving, served
from tests.harness.services import Served
from tests.harness.traces import (
    Fails,
    Hook,
    cancel_run,
    checked,
    end,
    get_run,
    listed,
    outcome,
    payloads,
    reason,
    steps,
    watch,
)


@validated(frozen=True)
class Count:
    """Count so far, naming each number once."""

    name: str
    most: int


_REQUEST: Final = TypeAdapter(Count)


@dataclass
class CountingWorkflow:
    """Counts, a step a number. It has no graph: what it goes on from is the trace."""

    name: Final = "counting"
    before: Any = None
    made: list[int] = field(default_factory=list)

    def dump(self, request: Count) -> str:
        return _REQUEST.dump_json(request).decode()

    def load(self, stored: str) -> Count:
        return _REQUEST.validate_json(stored)

    def started(self, request: Count, options: RunOptions) -> RunStarted:
        return RunStarted(self.name, request.name, "", None, False, principal=options.principal)

    async def run(self, request: Count, trace: RunTrace) -> RunFinished:
        for number in range(1, request.most + 1):
            await trace.once(PassagesRetrieved, str(number), lambda number=number: self._named(number))  # type: ignore[misc]
        return RunFinished(Outcome.ANSWERED, answer=Answer(text=f"{request.name}: {request.most}"), retrievals=request.most)

    def broken_off(self, request: Count, trace: RunTrace, error: ErrataError) -> RunFinished:
        made = sum(isinstance(event.payload, PassagesRetrieved) for event in trace.events)
        return RunFinished(outcome_of(error), error=Failure(error.why, error.message, dict(error.metadata)), retrievals=made)

    async def _named(self, number: int) -> tuple[PassagesRetrieved, Sequence[ModelCall]]:
        if self.before is not None and number == 2:
            await self.before()
        self.made.append(number)
        found = (Passage(f"n{number}", f"number {number}"),)
        return PassagesRetrieved(number, f"number {number}", found, (f"n{number}",)), (ModelCall("counter", "count"),)


def beside_the_others(counting: CountingWorkflow) -> Any:
    """The list of workflows with one more in it."""
    unused: Any = None

    def workflows(storage: Opened) -> tuple[Workflow, ...]:
        ports = (unused, unused, unused)
        return (AnswerWorkflow(*ports, storage.checkpoints), ComposeWorkflow(*ports, storage.checkpoints), counting)

    return workflows


@pytest_asyncio.fixture
async def counting() -> CountingWorkflow:
    return CountingWorkflow()


@pytest_asyncio.fixture
async def driven(counting: CountingWorkflow, tmp_path: Path) -> AsyncIterator[Driven]:
    async with driving(tmp_path, beside_the_others(counting)) as started:
        yield started


@pytest_asyncio.fixture
async def suite(driven: Driven) -> AsyncIterator[Served]:
    async with served(driven) as started:
        yield started


async def count(driven: Driven, most: int = 3, name: str = "apples", **options: Any) -> str:
    run_id, _ = await driven.engine.start("counting", Count(name, most), RunOptions(**options))
    return run_id


async def test_it_runs_and_is_watched_listed_and_described(suite: Served, driven: Driven, counting: CountingWorkflow) -> None:
    run_id = await count(driven, principal="ada")
    events = checked(await watch(suite, run_id))
    assert (outcome(events), end(events).answer.text, counting.made) == ("ANSWERED", "apples: 3", [1, 2, 3])
    assert steps(events) == ["run_started", *["passages_retrieved"] * 3, "run_finished"]
    assert events[0].run_started.workflow == "counting" and not events[0].run_started.HasField("settings")
    run = await get_run(suite, run_id)
    assert (run.run.workflow, run.run.question, run.run.principal) == ("counting", "apples", "ada")
    assert run.run.totals.model_calls == 3 and list(run.trace) == events
    assert [item.run_id for item in (await listed(suite, workflow="counting")).runs] == [run_id]
    assert not (await listed(suite, workflow="answer")).runs
    assert driven.metrics.runs.labels("counting", "ANSWERED")._value.get() == 1


async def test_the_same_request_is_one_run(driven: Driven, counting: CountingWorkflow) -> None:
    ids = await asyncio.gather(*(count(driven, request_id="r-1", request_hash="h") for _ in range(4)))
    assert len(set(ids)) == 1
    async for _ in driven.engine.watch(DEFAULT_TENANT, ids[0]):
        pass
    assert counting.made == [1, 2, 3]


async def test_it_is_cancelled(suite: Served, driven: Driven, counting: CountingWorkflow) -> None:
    hook = counting.before = Hook()
    run_id = await count(driven)
    await asyncio.wait_for(hook.reached.wait(), 5)
    run = await cancel_run(suite, run_id)
    assert run.state == pb2.RUN_STATE_FINISHED and counting.made == [1]
    events = checked(await watch(suite, run_id))
    assert outcome(events) == "CANCELLED" and len(payloads(events, "passages_retrieved")) == 1


async def test_what_was_being_stored_when_it_was_cancelled_counts(
    suite: Served, driven: Driven, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The database takes its time with the second step, as it may: everything behind it waits, too.
    hook, writer = Hook(), driven.storage.store._writer
    write_all = writer._write_all

    async def slow(batch: Any) -> None:
        if any(event.sequence == 3 for operation, _ in batch for event in getattr(operation, "events", ())):
            await hook()
        await write_all(batch)

    monkeypatch.setattr(writer, "_write_all", slow)
    run_id = await count(driven)
    await asyncio.wait_for(hook.reached.wait(), 5)
    cancelling = asyncio.create_task(cancel_run(suite, run_id))
    await asyncio.sleep(0.05)
    hook.release.set()
    await cancelling
    events = checked(await watch(suite, run_id))
    assert outcome(events) == "CANCELLED" and end(events).retrievals == len(payloads(events, "passages_retrieved")) == 2


async def test_its_failures_are_told(suite: Served, driven: Driven, counting: CountingWorkflow) -> None:
    counting.before = Fails(ModelRefused)
    events = checked(await watch(suite, await count(driven)))
    assert (outcome(events), reason(end(events).error)) == ("FAILED", "MODEL_REFUSED")


async def test_what_nobody_foresaw_fails_the_run_without_its_text(
    suite: Served, driven: Driven, counting: CountingWorkflow
) -> None:
    counting.before = Fails(lambda: KeyError("a secret"))
    events = checked(await watch(suite, await count(driven)))
    assert (outcome(events), reason(end(events).error)) == ("FAILED", "INTERNAL")
    assert "secret" not in end(events).error.message


async def test_it_is_taken_up_again_where_it_stood(counting: CountingWorkflow, tmp_path: Path) -> None:
    hook = counting.before = Hook()
    async with driving(tmp_path, beside_the_others(counting)) as first:
        run_id = await count(first)
        await asyncio.wait_for(hook.reached.wait(), 5)
    counting.before = None
    assert counting.made == [1]
    async with driving(tmp_path, beside_the_others(counting), replica="second") as second, served(second) as suite:
        events = checked(await watch(suite, run_id))
        run = await get_run(suite, run_id)
    assert outcome(events) == "ANSWERED" and counting.made == [1, 2, 3]
    assert steps(events) == [
        "run_started",
        "passages_retrieved",
        "run_resumed",
        "passages_retrieved",
        "passages_retrieved",
        "run_finished",
    ]
    [resumed] = payloads(events, "run_resumed")
    assert (resumed.takeover, resumed.replica, run.run.takeovers, run.run.totals.model_calls) == (1, "second", 1, 3)


async def test_a_replica_without_the_workflow_leaves_its_runs_alone(counting: CountingWorkflow, tmp_path: Path) -> None:
    hook = counting.before = Hook()
    async with driving(tmp_path, beside_the_others(counting)) as first:
        run_id = await count(first)
        await asyncio.wait_for(hook.reached.wait(), 5)
    async with driving(tmp_path, lambda storage: (), replica="older") as older:
        await asyncio.sleep(0.3)
        waiting = await older.storage.store.get(DEFAULT_TENANT, run_id)
        # To look at a run that it can't work on is no change of hands: too many of those would end the run.
        assert (waiting.last_sequence, waiting.takeovers) == (2, 0)
    counting.before = None
    async with driving(tmp_path, beside_the_others(counting), replica="newer") as newer, served(newer) as suite:
        events = checked(await watch(suite, run_id))
    assert outcome(events) == "ANSWERED" and counting.made == [1, 2, 3]
