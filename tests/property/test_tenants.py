"""Three tenants do everything at once, over the wire and on two replicas: nobody ever reads a word of another tenant."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata_kit.access.principals import Role
from errata_kit.calls import current_call
from tests.harness.scripted import passage
from tests.harness.secured import Caller, IdentityKeys, KeyRing, trusting
from tests.harness.services import Below, FakeRetriever, Served, failure_of, orchestrator, read_failure
from tests.harness.suite import Background

TENANTS: Final = ("north", "south", "east")
NAMED: Final = ("WatchRun", "GetRun", "CancelRun", "ResumeRun")
RPCS: Final = ("Ask", "Compose", "ListRuns", *NAMED)
PATIENCE: Final = 0.4


def canary(tenant: str) -> str:
    """A text that only this tenant's requests and passages hold."""
    return f"canary-of-{tenant}"


class TenantsRetriever(FakeRetriever):
    """Finds passages with the canary of the tenant that it is called for."""

    async def Search(self, request: retriever_pb2.SearchRequest, context: Any) -> retriever_pb2.SearchResponse:  # noqa: N802
        text = f"The text of p1. {canary(current_call().principal.tenant)}"
        scored = [retriever_pb2.ScoredPassage(passage=passage("p1", text), score=1.0)]
        return retriever_pb2.SearchResponse(passages=scored, mode="SEARCH_MODE_SPARSE")


@dataclass(frozen=True, slots=True)
class Step:
    """One call, as drawn. The numbers choose among what there is when it is made."""

    caller: int
    rpc: str
    replica: int
    run: int
    own: bool
    wish: int


@dataclass
class World:
    """The two replicas, who calls them, and what each tenant has: its runs with their principals, and page tokens."""

    served: tuple[Served, Served]
    callers: tuple[Caller, ...]
    admins: frozenset[str]
    runs: dict[str, dict[str, str]] = field(default_factory=lambda: {tenant: {} for tenant in TENANTS})
    tokens: dict[str, list[str]] = field(default_factory=lambda: {tenant: [] for tenant in TENANTS})
    told: int = 0
    refused: int = 0

    def others(self, tenant: str) -> list[str]:
        """The other tenants."""
        return [other for other in TENANTS if other != tenant]

    def check(self, caller: Caller, said: bytes, named: str = "") -> None:
        """What a caller was sent holds nothing of another tenant. named: a run that the caller itself has named."""
        for other in self.others(caller.tenant):
            assert canary(other).encode() not in said
            assert f"someone-of-{other}".encode() not in said
            for run_id in self.runs[other]:
                assert run_id == named or run_id.encode() not in said
        self.told += 1

    def check_failure(self, caller: Caller, error: grpc.aio.AioRpcError, named: str = "") -> None:
        """The same for a failure: its message, its details and its trailers."""
        trailing = [value if isinstance(value, bytes) else value.encode() for _, value in error.trailing_metadata() or ()]
        initial = [value if isinstance(value, bytes) else value.encode() for _, value in error.initial_metadata() or ()]
        self.check(caller, b"\n".join([(error.details() or "").encode(), *trailing, *initial]), named)

    async def take(self, step: Step) -> None:
        """Make the call, and check what comes of it."""
        caller = self.callers[step.caller % len(self.callers)]
        served = self.served[step.replica]
        if step.rpc in {"Ask", "Compose"}:
            await self._start(caller, served, step)
        elif step.rpc == "ListRuns":
            await self._list(caller, served, step)
        else:
            await self._name(caller, served, step)

    async def _start(self, caller: Caller, served: Served, step: Step) -> None:
        shared: dict[str, Any] = {"on_disconnect": "ON_DISCONNECT_CONTINUE", "collection": "default"}
        # The same few for everybody, so that they meet.
        shared["request_id"] = f"request-{step.run % 3}" if step.own else ""
        request: Any = pb2.AskRequest(question=f"How long? {canary(caller.tenant)}", **shared)
        if step.rpc == "Compose":
            task = f"Write. {canary(caller.tenant)}"
            request = pb2.ComposeRequest(task=task, require_approval=bool(step.wish % 2), **shared)
        call = caller.call(served, step.rpc, request, timeout=PATIENCE * 5)
        try:
            while (reply := await call.read()) is not grpc.aio.EOF:
                self.runs[caller.tenant].setdefault(reply.event.run_id, caller.name)
                assert self.runs[caller.tenant][reply.event.run_id] == caller.name
                self.check(caller, reply.SerializeToString())
                if reply.event.WhichOneof("payload") == "approval_requested":
                    break
        except grpc.aio.AioRpcError as error:
            self.check_failure(caller, error)
            failure = read_failure(error)
            assert failure.reason in {"REQUEST_ID_REUSED", "CANCELLED"}, failure
            if failure.reason == "REQUEST_ID_REUSED":
                assert self.runs[caller.tenant].get(failure.metadata["run_id"], caller.name) == caller.name
        call.cancel()

    async def _list(self, caller: Caller, served: Served, step: Step) -> None:
        before = set(self.runs[caller.tenant])
        tokens = self.tokens[TENANTS[step.run % len(TENANTS)]]
        foreign = bool(tokens) and not step.own and tokens is not self.tokens[caller.tenant]
        request = pb2.ListRunsRequest(page_size=3, page_token=tokens[step.wish % len(tokens)] if foreign else "")
        if foreign:
            refused = await failure_of(caller.call(served, "ListRuns", request))
            self.check(caller, repr(refused).encode())
            self.refused += 1
            assert refused.reason == "INVALID_FIELD"
            return
        listed: list[str] = []
        while True:
            page = await caller.call(served, "ListRuns", request)
            self.check(caller, page.SerializeToString())
            listed += [run.run_id for run in page.runs]
            if not page.next_page_token:
                break
            self.tokens[caller.tenant].append(page.next_page_token)
            request.page_token = page.next_page_token
        assert before <= set(listed) and len(listed) == len(set(listed))

    async def _name(self, caller: Caller, served: Served, step: Step) -> None:
        tenant = caller.tenant if step.own else TENANTS[step.run % len(TENANTS)]
        known = list(self.runs[tenant])
        if not known:
            return
        run_id = known[-1 - step.wish % len(known)]
        outcome = "OK"
        try:
            await self._told(caller, served, step, run_id)
        except grpc.aio.AioRpcError as error:
            self.check_failure(caller, error, run_id)
            outcome = read_failure(error).reason or error.code().name
        if tenant != caller.tenant:
            self.refused += 1
            assert outcome == "RUN_NOT_FOUND", step
        elif step.rpc == "CancelRun" and self.runs[tenant][run_id] != caller.name and caller.name not in self.admins:
            assert outcome == "PERMISSION_DENIED", step
        else:
            allowed = {"WatchRun": {"DEADLINE_EXCEEDED"}, "ResumeRun": {"RUN_NOT_WAITING"}}
            assert outcome in {"OK"} | allowed.get(step.rpc, set()), step

    async def _told(self, caller: Caller, served: Served, step: Step, run_id: str) -> None:
        if step.rpc == "WatchRun":
            request = pb2.WatchRunRequest(run_id=run_id, after_sequence=step.wish % 4)
            async for reply in caller.call(served, "WatchRun", request, timeout=PATIENCE):
                self.check(caller, reply.SerializeToString(), run_id)
            return
        if step.rpc == "ResumeRun":
            decision, feedback = (("APPROVE", ""), ("REJECT", ""), ("REVISE", canary(caller.tenant)))[step.wish % 3]
            reply = await caller.resume(served, run_id, decision, feedback=feedback)
        else:
            reply = await (caller.get if step.rpc == "GetRun" else caller.cancel)(served, run_id)
        self.check(caller, reply.SerializeToString(), run_id)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[World]:
    keys, identity = KeyRing(folder), IdentityKeys.made(folder)
    callers = [keys.caller(f"someone-of-{tenant}", tenant) for tenant in TENANTS]
    # The same name everywhere, and somebody who may do everything, in the own tenant.
    callers += [keys.caller("ann", tenant) for tenant in TENANTS]
    callers += [keys.caller("boss", tenant, Role.ADMIN) for tenant in TENANTS]
    own: dict[str, Any] = {"identity_key_file": identity.private, "data_dir": folder / "runs", **keys.settings}
    async with (
        trusting(Below(retriever=TenantsRetriever()), keys, identity) as targets,
        orchestrator(**targets, **own) as first,
        orchestrator(**targets, **own) as second,
    ):
        yield World((first, second), tuple(callers), frozenset({"boss"}))


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    with Background() as loop:
        yield loop


@pytest.fixture(scope="module")
def world(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    block = opened(tmp_path_factory.mktemp("tenants"))
    made = background.run(block.__aenter__())
    try:
        yield made
    finally:
        background.run(block.__aexit__(None, None, None))


def drawn() -> st.SearchStrategy[Step]:
    number = st.integers(0, 40)
    return st.builds(Step, number, st.sampled_from(RPCS), st.integers(0, 1), number, st.booleans(), number)


async def all_of(world: World, rounds: list[list[Step]]) -> None:
    async with asyncio.timeout(60):
        for steps in rounds:
            await asyncio.gather(*(world.take(step) for step in steps))


# Without shrinking: what there is when a step is made depends on all steps before it, and each takes its time.
@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(rounds=st.lists(st.lists(drawn(), min_size=1, max_size=8), min_size=2, max_size=5))
def test_nobody_is_told_anything_of_another_tenant(world: World, background: Background, rounds: list[list[Step]]) -> None:
    background.run(all_of(world, rounds))


def test_each_tenant_has_asked_and_tried(world: World, background: Background) -> None:
    """The same with every pair of tenants and every RPC, so that no run of the above can have been about nothing."""
    starts = [Step(caller, rpc, caller % 2, caller, False, 1) for caller in range(9) for rpc in ("Ask", "Compose")]
    background.run(all_of(world, [starts]))
    tries = [
        Step(caller, rpc, replica, tenant, False, 0)
        for caller in range(9)
        for rpc in ("ListRuns", *NAMED)
        for replica in (0, 1)
        for tenant in range(len(TENANTS))
    ]
    listing = [Step(caller, "ListRuns", 0, 0, True, 0) for caller in range(9)]
    before = world.refused
    background.run(all_of(world, [listing, *(tries[start : start + 27] for start in range(0, len(tries), 27))]))
    assert world.refused - before == 9 * 5 * 2 * 2
    own = [read for read in map(world.runs.__getitem__, TENANTS) if len(read) >= 6]
    assert len(own) == len(TENANTS) and world.told > 500
    # The canaries are there for those whose they are.
    caller = world.callers[0]
    reply = background.run(_got(world, caller))
    assert canary(caller.tenant).encode() in reply


async def _got(world: World, caller: Caller) -> bytes:
    reply = await caller.get(world.served[1], next(iter(world.runs[caller.tenant])))
    return bytes(reply.SerializeToString())
