"""Runs of another tenant do not exist: for no RPC, live or stored, here or on another replica."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2

from errata_kit.access.principals import Role
from tests.contract.test_access import waiting
from tests.harness.secured import Caller, KeyRing, events_of, run_id_of
from tests.harness.services import Below, FakeGenerator, Served, failure_of, fakes, orchestrator, scripted
from tests.harness.traces import Hook

NOWHERE = "01890000-0000-7000-8000-000000000000"
SAME_NAME = "ann"


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    return KeyRing(tmp_path / "keys")


@pytest.fixture
def ann(keys: KeyRing) -> Caller:
    return keys.caller(SAME_NAME, "north")


@pytest.fixture
def other(keys: KeyRing) -> Caller:
    """An admin of another tenant, who even has the same name."""
    return keys.caller(SAME_NAME, "south", Role.ADMIN)


async def refusals(caller: Caller, served: Served, run_id: str) -> dict[str, Any]:
    """What every RPC that names a run says about it; the id itself is taken out, so that two runs can be compared."""
    calls: dict[str, Callable[[], Any]] = {
        "WatchRun": lambda: caller.watch(served, run_id),
        "WatchRun from later": lambda: caller.watch(served, run_id, 2),
        "GetRun": lambda: caller.get(served, run_id),
        "CancelRun": lambda: caller.cancel(served, run_id),
        "ResumeRun": lambda: caller.resume(served, run_id),
        "ResumeRun of request 1": lambda: caller.resume(served, run_id, approval=1),
    }
    said = {}
    for name, call in calls.items():
        refused = await failure_of(call())
        assert refused.code is grpc.StatusCode.NOT_FOUND and refused.reason == "RUN_NOT_FOUND", name
        said[name] = replace(
            refused,
            message=refused.message.replace(run_id, "ID"),
            metadata={key: value.replace(run_id, "ID") for key, value in refused.metadata.items()},
            resource=None if refused.resource is None else (refused.resource[0], refused.resource[1].replace(run_id, "ID")),
            trailers={key: value for key, value in refused.trailers.items() if key != "grpc-status-details-bin"},
        )
    return said


async def test_a_run_that_has_ended_is_there_for_its_tenant_alone(ann: Caller, other: Caller, keys: KeyRing) -> None:
    async with scripted(Below(), **keys.settings) as served:
        events = await events_of(ann.ask(served))
        run_id = events[0].run_id
        assert await refusals(other, served, run_id) == await refusals(other, served, NOWHERE)
        assert await events_of(ann.watch(served, run_id)) == [event for event in events if event.sequence]
        assert await ann.listed(served) == [run_id] and await other.listed(served) == []
        assert await other.listed(served, principal=SAME_NAME) == []


async def test_a_run_that_is_worked_on_here_is_there_for_its_tenant_alone(ann: Caller, other: Caller, keys: KeyRing) -> None:
    hook = Hook()
    async with scripted(Below(generator=FakeGenerator(before=hook)), **keys.settings) as served:
        call = ann.ask(served)
        run_id = (await call.read()).event.run_id
        await asyncio.wait_for(hook.reached.wait(), 5)
        assert await refusals(other, served, run_id) == await refusals(other, served, NOWHERE)
        assert await other.listed(served) == []
        # None of it has disturbed the run.
        assert (await ann.get(served, run_id)).run.state == pb2.RUN_STATE_RUNNING
        hook.release.set()
        rest = await events_of(call)
    assert rest[-1].run_finished.answer.text


async def test_a_run_that_waits_for_a_person_is_decided_by_its_tenant_alone(ann: Caller, other: Caller, keys: KeyRing) -> None:
    bob = keys.caller("bob", "north")
    async with scripted(Below(), **keys.settings) as served:
        call = ann.call(served, "Compose", pb2.ComposeRequest(task="Write.", require_approval=True))
        run_id = await waiting(call)
        assert await refusals(other, served, run_id) == await refusals(other, served, NOWHERE)
        assert (await ann.get(served, run_id)).run.state == pb2.RUN_STATE_WAITING
        assert (await bob.resume(served, run_id)).run.run_id == run_id
        rest = await events_of(call)
    assert [event.approval_decided.principal for event in rest if event.HasField("approval_decided")] == ["bob"]


@contextlib.asynccontextmanager
async def two_replicas(below: Below, folder: Path, **settings: Any) -> AsyncIterator[tuple[Served, Served]]:
    async with (
        fakes(below) as targets,
        orchestrator(**targets, data_dir=folder, **settings) as first,
        orchestrator(**targets, data_dir=folder, **settings) as second,
    ):
        yield first, second


async def test_from_another_replica_it_is_the_same(ann: Caller, other: Caller, keys: KeyRing, tmp_path: Path) -> None:
    hook = Hook()
    below = Below(generator=FakeGenerator(before=hook))
    async with two_replicas(below, tmp_path / "runs", **keys.settings) as (first, second):
        call = ann.ask(first)
        run_id = (await call.read()).event.run_id
        await asyncio.wait_for(hook.reached.wait(), 5)
        assert await refusals(other, second, run_id) == await refusals(other, second, NOWHERE)
        assert await other.listed(second) == [] and await ann.listed(second) == [run_id]
        watching = ann.watch(second, run_id)
        assert (await watching.read()).event.run_id == run_id
        hook.release.set()
        assert (await events_of(call))[-1].HasField("run_finished")
        assert (await events_of(watching))[-1].HasField("run_finished")
        assert await refusals(other, second, run_id) == await refusals(other, second, NOWHERE)


async def test_a_page_token_is_good_for_its_tenant_alone(ann: Caller, other: Caller, keys: KeyRing) -> None:
    async with scripted(Below(), **keys.settings) as served:
        runs: dict[str, list[str]] = {"north": [], "south": []}
        for caller in (ann, other, ann, other, ann):
            runs[caller.tenant].append(await run_id_of(caller.ask(served)))
        page = await ann.call(served, "ListRuns", pb2.ListRunsRequest(page_size=2))
        assert [run.run_id for run in page.runs] == runs["north"][:0:-1]
        refused = await failure_of(
            other.call(served, "ListRuns", pb2.ListRunsRequest(page_size=2, page_token=page.next_page_token))
        )
        assert (refused.reason, list(refused.violations)) == ("INVALID_FIELD", ["page_token"])
        assert await ann.listed(served, page_size=2, page_token=page.next_page_token) == runs["north"][:1]
        assert await other.listed(served, page_size=1) == runs["south"][:0:-1]


async def test_one_request_id_of_one_name_is_a_run_in_each_tenant(ann: Caller, other: Caller, keys: KeyRing) -> None:
    async with scripted(Below(), **keys.settings) as served:
        first = {}
        for caller, question in ((ann, "How long?"), (other, "Another one?")):
            events = await events_of(caller.ask(served, question, request_id="one"))
            first[caller.tenant] = events[0].run_id
            again = await events_of(caller.ask(served, question, request_id="one"))
            assert again == [event for event in events if event.sequence]
        assert first["north"] != first["south"]
        assert await ann.listed(served) == [first["north"]] and await other.listed(served) == [first["south"]]
        reused = await failure_of(ann.ask(served, "Another one?", request_id="one"))
        assert reused.reason == "REQUEST_ID_REUSED" and reused.metadata["run_id"] == first["north"]


async def test_within_a_tenant_everybody_sees_everything(ann: Caller, keys: KeyRing) -> None:
    bob = keys.caller("bob", "north")
    async with scripted(Below(), **keys.settings) as served:
        run_id = await run_id_of(ann.ask(served, request_id="one"))
        assert (await bob.get(served, run_id)).run.principal == "ann"
        assert await bob.listed(served) == [run_id] and await bob.listed(served, principal="bob") == []
        # A request_id is its principal's own.
        assert await run_id_of(bob.ask(served, request_id="one")) != run_id
