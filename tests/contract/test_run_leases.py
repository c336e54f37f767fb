"""Who works on which run, and what a person decides: the same on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid

import pytest

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import RunNotFound, RunNotWaiting
from services.orchestrator.runs.run import Budget, Lease, LeaseLost, RunState
from services.orchestrator.runs.store.store import RunStore
from tests.harness.run_stores import (
    CALL,
    SHORT,
    WORKFLOWS,
    Stores,
    create,
    decision,
    event,
    eventually,
    finish,
    sequences,
    wait_for_a_person,
)

# --- leases -----------------------------------------------------------------------------------------------------------


async def test_a_run_is_taken_up_with_everything(stores: Stores) -> None:
    lease = await create(stores.hasty, "hasty", principal="ann", budget=Budget(1000, 50))
    await stores.hasty.append(lease, (event(lease, 2),), {0: CALL}, {})
    await stores.hasty.note_calls(lease, 2, {1: CALL})
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    [claimed] = await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    assert (claimed.workflow, claimed.request, claimed.principal) == ("answer", '{"asked": 1}', "ann")
    assert (claimed.takeovers, claimed.resumed, claimed.cancelled, claimed.budget) == (1, True, False, Budget(1000, 50))
    assert 25.0 < claimed.seconds < 30.0
    assert [item.sequence for item in claimed.events] == [1, 2]
    assert claimed.model_calls == (CALL, CALL)
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()


async def test_who_has_lost_a_run_writes_nothing_to_it(stores: Stores) -> None:
    lost = await create(stores.hasty, "hasty")
    kept = await create(stores.one)
    [claimed] = await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))
    assert claimed.lease.run_id == lost.run_id
    for attempt in (
        stores.hasty.append(lost, (event(lost, 2),), {0: CALL}, {"score": 0.1, "state": "FINISHED"}),
        stores.hasty.note_calls(lost, 1, {0: CALL}),
        stores.hasty.append(dataclasses.replace(lost, owner="two"), (event(lost, 2),), {}, {}),
        stores.hasty.append(dataclasses.replace(lost, fence=2), (event(lost, 2),), {}, {}),
    ):
        with pytest.raises(LeaseLost):
            await attempt
    # In one transaction with a write of a run that is still held.
    results = await asyncio.gather(
        stores.one.append(kept, (event(kept, 2),), {}, {}),
        stores.one.append(lost, (event(lost, 2),), {}, {}),
        return_exceptions=True,
    )
    assert [type(item) for item in results] == [type(None), LeaseLost]
    assert await sequences(stores.one, kept.run_id) == [1, 2]
    run = await stores.one.get(DEFAULT_TENANT, lost.run_id)
    assert await sequences(stores.one, lost.run_id) == [1]
    assert (run.state, run.score, run.last_sequence, run.totals.model_calls) == (RunState.RUNNING, None, 1, 0)
    await stores.two.append(claimed.lease, (event(lost, 2),), {0: CALL}, {})
    assert await sequences(stores.one, lost.run_id) == [1, 2]


async def test_two_who_take_up_at_once_get_each_run_once(stores: Stores) -> None:
    ids = {lease.run_id for lease in await asyncio.gather(*(create(stores.hasty, "hasty") for _ in range(40)))}
    await asyncio.sleep(SHORT)
    seen: list[str] = []

    async def take(store: RunStore) -> None:
        while len(seen) < len(ids):
            seen.extend(item.lease.run_id for item in await store.claim_expired(3, WORKFLOWS))

    async with asyncio.timeout(20):
        await asyncio.gather(*(take(store) for store in (stores.one, stores.two, stores.one, stores.two)))
    assert sorted(seen) == sorted(ids)


async def test_what_ends_or_waits_is_taken_up_by_nobody(stores: Stores) -> None:
    ended, waiting, running = [await create(stores.hasty, "hasty") for _ in range(3)]
    await finish(stores.hasty, ended)
    await wait_for_a_person(stores.hasty, waiting)
    [claimed] = await eventually(lambda: stores.one.claim_expired(10, WORKFLOWS))
    assert claimed.lease.run_id == running.run_id


async def test_a_run_of_an_unknown_workflow_is_left_to_those_who_know_it(stores: Stores) -> None:
    lease = await create(stores.one, workflow="newer")
    await stores.one.release((lease,))
    assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    [claimed] = await stores.two.claim_expired(10, (*WORKFLOWS, "newer"))
    assert claimed.workflow == "newer"


async def test_renewed_leases_last(stores: Stores) -> None:
    leases = [await create(stores.hasty, "hasty") for _ in range(3)]
    other = await create(stores.one)
    await stores.one.request_cancel(leases[1].run_id)
    for _ in range(5):
        await asyncio.sleep(SHORT / 3)
        kept = await stores.hasty.renew()
        assert kept == {leases[0]: False, leases[1]: True, leases[2]: False}
        assert await stores.two.claim_expired(10, WORKFLOWS) == ()
    await finish(stores.hasty, leases[0])
    assert set(await stores.hasty.renew()) == set(leases[1:])
    assert set(await stores.one.renew()) == {other}
    taken: set[str] = set()
    while len(taken) < 2:
        taken |= {claimed.lease.run_id for claimed in await eventually(lambda: stores.two.claim_expired(10, WORKFLOWS))}
    assert await stores.hasty.renew() == {}


async def test_a_run_that_is_let_go_is_free_at_once(stores: Stores) -> None:
    lease, kept = await create(stores.one), await create(stores.one)
    await stores.one.release((lease, dataclasses.replace(kept, fence=7)))
    [claimed] = await stores.two.claim_expired(10, WORKFLOWS)
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    with pytest.raises(LeaseLost):
        await stores.one.append(lease, (event(lease, 2),), {}, {})
    # Late, and for nothing: it is the other's.
    await stores.one.release((lease,))
    assert await stores.one.claim_expired(10, WORKFLOWS) == ()


async def test_a_wish_to_cancel_comes_with_the_run(stores: Stores) -> None:
    lease = await create(stores.one)
    await stores.two.request_cancel(lease.run_id)
    await stores.one.release((lease,))
    [claimed] = await stores.two.claim_expired(10, WORKFLOWS)
    assert claimed.cancelled


# --- decisions --------------------------------------------------------------------------------------------------------


async def test_a_decision_takes_the_run(stores: Stores) -> None:
    lease = await create(stores.one)
    await wait_for_a_person(stores.one, lease)
    assert (await stores.two.get(DEFAULT_TENANT, lease.run_id)).approval == 1
    claimed = await stores.two.decide(DEFAULT_TENANT, lease.run_id, decision(), 30.0)
    assert (claimed.lease, claimed.resumed, claimed.takeovers) == (Lease(lease.run_id, "two", 2), False, 0)
    decided = claimed.events[-1]
    assert (decided.sequence, decided.payload) == (3, decision(1))
    run = await stores.one.get(DEFAULT_TENANT, lease.run_id)
    assert (run.state, run.approval, run.last_sequence) == (RunState.RUNNING, 0, 3)
    with pytest.raises(LeaseLost):
        await stores.one.append(lease, (event(lease, 4),), {}, {})
    await stores.two.append(claimed.lease, (event(lease, 4),), {}, {})


async def test_a_second_decision_is_refused(stores: Stores) -> None:
    lease = await create(stores.one)
    with pytest.raises(RunNotWaiting):
        await stores.one.decide(DEFAULT_TENANT, lease.run_id, decision(), 30.0)
    with pytest.raises(RunNotFound):
        await stores.one.decide(DEFAULT_TENANT, str(uuid.uuid4()), decision(), 30.0)
    await wait_for_a_person(stores.one, lease)
    with pytest.raises(RunNotWaiting) as refused:
        await stores.one.decide(DEFAULT_TENANT, lease.run_id, decision(2), 30.0)
    assert refused.value.metadata == {"run_id": lease.run_id, "state": "WAITING", "approval": "1"}
    results = await asyncio.gather(
        *(
            store.decide(DEFAULT_TENANT, lease.run_id, decision(1), 30.0)
            for store in (stores.one, stores.two, stores.one, stores.two)
        ),
        return_exceptions=True,
    )
    assert sorted(type(item).__name__ for item in results) == ["ClaimedRun", *["RunNotWaiting"] * 3]
    assert await sequences(stores.one, lease.run_id) == [1, 2, 3]


async def test_a_waiting_run_can_be_taken_without_a_decision_once(stores: Stores) -> None:
    lease = await create(stores.one)
    assert await stores.two.claim_waiting(lease.run_id, 30.0) is None
    await wait_for_a_person(stores.one, lease)
    claimed = await stores.two.claim_waiting(lease.run_id, 30.0)
    assert claimed is not None
    assert claimed.lease == Lease(lease.run_id, "two", 2)
    assert await stores.one.claim_waiting(lease.run_id, 30.0) is None
