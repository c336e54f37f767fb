"""Who may call, over the wire: keys that are refused, roles that lack, and what an outsider may say about itself."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from google.protobuf import descriptor_pool
from structlog.testing import capture_logs

from errata_kit.access.identity import IdentitySigner
from errata_kit.access.principals import Principal, Role
from errata_kit.access.roles import REQUIRED
from tests.harness.secured import Caller, IdentityKeys, KeyRing
from tests.harness.services import (
    CALL_SECONDS,
    Below,
    Served,
    failure_of,
    generator,
    judge,
    read_failure,
    retriever,
    scripted,
)

HOUR = datetime.timedelta(hours=1)
WRONG_SECRET = "5ec4e7" + "0" * 58
RPCS = {
    "Ask": pb2.AskRequest(question="How long?"),
    "Compose": pb2.ComposeRequest(task="Write."),
    "WatchRun": pb2.WatchRunRequest(run_id="01890000-0000-7000-8000-000000000000"),
    "GetRun": pb2.GetRunRequest(run_id="01890000-0000-7000-8000-000000000000"),
    "ListRuns": pb2.ListRunsRequest(),
    "CancelRun": pb2.CancelRunRequest(run_id="01890000-0000-7000-8000-000000000000"),
    "ResumeRun": pb2.ResumeRunRequest(run_id="01890000-0000-7000-8000-000000000000", decision="APPROVAL_DECISION_APPROVE"),
}


@pytest.fixture
def keys(tmp_path: Path) -> KeyRing:
    made = KeyRing(tmp_path / "keys")
    made.caller("nobody")
    return made


@contextlib.asynccontextmanager
async def guarded(keys: KeyRing, **settings: Any) -> AsyncIterator[Served]:
    async with scripted(Below(), **keys.settings, **settings) as served:
        yield served


async def called(served: Served, rpc: str, metadata: tuple[tuple[str, str], ...]) -> Any:
    """The failure of an RPC with this metadata."""
    return await failure_of(getattr(served.stub, rpc)(RPCS[rpc], metadata=metadata, timeout=CALL_SECONDS))


# --- who --------------------------------------------------------------------------------------------------------------


def bad_callers(keys: KeyRing) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """By name: the value of `authorization`, the cause, and texts that must appear nowhere."""
    good = keys.caller("ann")
    revoked = keys.caller("rob")
    keys.revoke(revoked)
    expired = keys.caller("eve", life=HOUR, age=7200)
    wrong = f"errata_{good.key_id}_{WRONG_SECRET}"
    return {
        "no scheme": (good.key, "missing", (good.secret,)),
        "another scheme": (f"Basic {good.key}", "missing", (good.secret,)),
        "an empty key": ("Bearer ", "missing", ()),
        "no key of ours": ("Bearer sk-5ec4e7canary", "invalid", ("5ec4e7canary",)),
        "an unknown id": (f"Bearer errata_nosuchid_{WRONG_SECRET}", "invalid", (WRONG_SECRET, "nosuchid")),
        "a wrong secret": (f"Bearer {wrong}", "invalid", (WRONG_SECRET, good.key_id)),
        "a good key cut short": (f"Bearer {good.key[:-1]}", "invalid", (good.secret[:-1],)),
        "a good key with more": (f"Bearer {good.key}0", "invalid", (good.secret,)),
        "a revoked key": (f"Bearer {revoked.key}", "revoked", (revoked.secret,)),
        "an expired key": (f"Bearer {expired.key}", "expired", (expired.secret,)),
    }


async def test_whoever_has_no_good_key_is_refused_and_reads_nothing_of_it_again(
    keys: KeyRing, caplog: pytest.LogCaptureFixture
) -> None:
    callers = bad_callers(keys)
    caplog.set_level(logging.DEBUG)
    async with guarded(keys) as served:
        with capture_logs() as logs:
            for name, (authorization, cause, canaries) in callers.items():
                refused = await called(served, "ListRuns", (("authorization", authorization),))
                assert (refused.code, refused.reason, refused.metadata) == (
                    grpc.StatusCode.UNAUTHENTICATED,
                    "UNAUTHENTICATED",
                    {"cause": cause},
                ), name
                told = repr(refused)
                assert not [text for text in canaries if text in told], name
        counted = served.service.metrics.authentication_failures
        causes = [cause for _, cause, _ in callers.values()]
        assert {cause: counted.labels(cause)._value.get() for cause in causes} == {
            cause: causes.count(cause) for cause in causes
        }
    written = repr(logs) + caplog.text
    assert written.count("ListRuns") >= len(callers)
    assert not [text for _, _, canaries in callers.values() for text in canaries if text in written]


@pytest.mark.parametrize("rpc", list(RPCS))
async def test_every_rpc_needs_a_key_and_starts_nothing_without(keys: KeyRing, rpc: str) -> None:
    ann = keys.caller("ann")
    below = Below()
    async with scripted(below, **keys.settings) as served:
        for metadata in ((), (("authorization", "Bearer nonsense"),), (("errata-principal", "ann"),)):
            refused = await called(served, rpc, metadata)
            assert refused.code is grpc.StatusCode.UNAUTHENTICATED and refused.received == ()
        assert await ann.listed(served) == []
    assert below.retriever.searches == []


async def test_both_ways_to_hand_a_key_over(keys: KeyRing) -> None:
    ann = keys.caller("ann")
    async with guarded(keys) as served:
        for metadata in (ann.metadata, (("authorization", f"bearer {ann.key}"),), (("x-api-key", ann.key),)):
            await served.stub.ListRuns(pb2.ListRunsRequest(), metadata=metadata, timeout=CALL_SECONDS)


async def test_a_key_that_is_made_or_revoked_later_counts_without_a_restart(
    keys: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("errata_kit.access.watched._LOOK_EVERY_SECONDS", 0.02)
    async with guarded(keys) as served:
        late = keys.caller("late")
        await asyncio.sleep(0.05)
        assert await late.listed(served) == []
        keys.revoke(late)
        await asyncio.sleep(0.05)
        refused = await called(served, "ListRuns", late.metadata)
        assert refused.metadata == {"cause": "revoked"}


async def test_a_key_file_that_is_spoilt_keeps_everybody_as_they_were(keys: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("errata_kit.access.watched._LOOK_EVERY_SECONDS", 0.02)
    ann = keys.caller("ann")
    async with guarded(keys) as served:
        keys.path.write_text('{"keys": [')
        await asyncio.sleep(0.05)
        assert await ann.listed(served) == []
        assert (await called(served, "ListRuns", ())).metadata == {"cause": "missing"}


async def test_the_name_and_tenant_are_those_of_the_key_and_not_what_the_caller_says(keys: KeyRing) -> None:
    ann = keys.caller("ann", "north")
    claims = (("errata-principal", "boss"), ("errata-tenant", "south"), ("errata-roles", "admin"))
    async with guarded(keys) as served:
        events = [reply async for reply in ann.call(served, "Ask", RPCS["Ask"], claims)]
        run = (await ann.get(served, events[0].event.run_id)).run
        assert run.principal == "ann"
        refused = await called(served, "CancelRun", claims)
        assert refused.code is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("token", ["", "nonsense", "eyJhbGciOiJub25lIn0.eyJzdWIiOiJib3NzIn0."])
async def test_an_identity_means_nothing_to_an_orchestrator_that_trusts_nobody(keys: KeyRing, token: str) -> None:
    ann = keys.caller("ann")
    identity = (("errata-identity", token),)
    async with guarded(keys) as served:
        assert (await called(served, "ListRuns", identity)).metadata == {"cause": "missing"}
        await ann.call(served, "ListRuns", pb2.ListRunsRequest(), identity)


async def test_an_orchestrator_takes_no_identity_even_from_itself(keys: KeyRing, tmp_path: Path) -> None:
    identity = IdentityKeys.made(tmp_path)
    stolen = IdentitySigner.from_file(identity.private).sign(Principal("boss", "north", frozenset(Role)))
    async with guarded(keys, identity_trust_file=identity.public) as served:
        assert (await called(served, "ListRuns", (("errata-identity", stolen),))).metadata == {"cause": "missing"}


# --- roles ------------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def one_of_the_services(name: str, keys: KeyRing, folder: Path) -> AsyncIterator[Served]:
    match name:
        case "orchestrator":
            block: Any = scripted(Below(), **keys.settings)
        case "retriever":
            block = retriever(folder / "data", **keys.settings)
        case "judge":
            block = judge(**keys.settings)
        case _:
            block = generator(**keys.settings)
    async with block as served:
        yield served


async def code_of(served: Served, method: str, caller: Caller | None) -> tuple[grpc.StatusCode, str]:
    """What a method says to an empty request, and the role that it asks for."""
    channel: Any = served.channel
    described: Any = descriptor_pool.Default().FindMethodByName(method[1:].replace("/", "."))
    metadata = () if caller is None else caller.metadata
    try:
        if described.client_streaming:
            stream = channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=CALL_SECONDS)
            _ = [reply async for reply in stream]
        elif described.server_streaming:
            _ = [reply async for reply in channel.unary_stream(method)(b"", metadata=metadata, timeout=CALL_SECONDS)]
        else:
            await channel.unary_unary(method)(b"", metadata=metadata, timeout=CALL_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code(), read_failure(error).metadata.get("role", "")
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("name", ["orchestrator", "retriever", "judge", "generator"])
async def test_every_rpc_of_every_service_wants_its_role_and_no_other(keys: KeyRing, tmp_path: Path, name: str) -> None:
    by_role = {role: keys.caller(f"only-{role.value}", "north", role) for role in Role}
    methods = [method for method in REQUIRED if method.startswith(f"/errata.{name}.")]
    assert methods
    async with one_of_the_services(name, keys, tmp_path) as served:
        for method in methods:
            assert await code_of(served, method, None) == (grpc.StatusCode.UNAUTHENTICATED, "")
            for role, caller in by_role.items():
                code, lacking = await code_of(served, method, caller)
                if role in {REQUIRED[method], Role.ADMIN}:
                    assert code in {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}, method
                else:
                    assert (code, lacking) == (grpc.StatusCode.PERMISSION_DENIED, REQUIRED[method].value), method


async def test_only_an_admin_cancels_what_others_of_the_tenant_have_started(keys: KeyRing) -> None:
    ann, bob, boss = keys.caller("ann", "north"), keys.caller("bob", "north"), keys.caller("boss", "north", Role.ADMIN)
    async with guarded(keys) as served:
        for run_of, by, allowed in ((ann, bob, False), (ann, ann, True), (ann, boss, True), (bob, boss, True)):
            call = run_of.call(served, "Compose", pb2.ComposeRequest(task="Write.", require_approval=True))
            run_id = await waiting(call)
            if allowed:
                assert (await by.cancel(served, run_id)).run.state == pb2.RUN_STATE_FINISHED
            else:
                refused = await failure_of(by.cancel(served, run_id))
                assert (refused.code, refused.metadata) == (grpc.StatusCode.PERMISSION_DENIED, {"role": "admin"})
                assert (await by.get(served, run_id)).run.state == pb2.RUN_STATE_WAITING
            call.cancel()


async def waiting(call: Any) -> str:
    """The run, once it waits for a person."""
    async with asyncio.timeout(CALL_SECONDS):
        while (reply := await call.read()).event.WhichOneof("payload") != "approval_requested":
            assert reply is not grpc.aio.EOF
    return str(reply.event.run_id)
