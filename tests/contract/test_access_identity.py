"""On whose behalf the orchestrator calls, and what the other services make of identities that others show them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from errata_kit.access.identity import AUDIENCE, ISSUER, IdentitySigner
from errata_kit.access.principals import Principal, Role
from tests.contract.test_access import waiting
from tests.harness.secured import Caller, IdentityKeys, KeyRing, Witness, events_of, run_id_of, secured, trusting
from tests.harness.services import (
    CALL_SECONDS,
    Below,
    Failure,
    FakeGenerator,
    FakeJudge,
    FakeRetriever,
    failure_of,
    orchestrator,
)
from tests.harness.traces import Hook

ANN = Principal("ann", "north", frozenset({Role.ASK}))


@dataclass(frozen=True, slots=True)
class Services:
    """Scripted services that trust an orchestrator, its keys, whom they saw, and somebody whom they know."""

    targets: dict[str, str]
    identity: IdentityKeys
    witness: Witness
    boss: Caller


def witnessed(witness: Witness, **scripts: Any) -> Below:
    """Services that note on whose behalf they are called in each step. scripts: before_answer and so on, as further hooks."""
    return Below(
        FakeRetriever(before=witness.hook("search")),
        FakeJudge(
            before=witness.hook("grade_passages"),
            before_answer=witness.hook("grade_answer"),
            before_review=witness.hook("review_draft"),
            reviews=scripts.get("reviews", (1.0,)),
        ),
        FakeGenerator(
            before=witness.hook("write", scripts.get("write")),
            before_revision=witness.hook("revise_draft", scripts.get("revise")),
        ),
    )


@contextlib.asynccontextmanager
async def services(folder: Path) -> AsyncIterator[Services]:
    witness = Witness()
    keys, identity = KeyRing(folder), IdentityKeys.made(folder)
    boss = keys.caller("boss", "north", Role.ADMIN)
    async with trusting(witnessed(witness), keys, identity) as targets:
        yield Services(targets, identity, witness, boss)


async def calls(targets: dict[str, str], metadata: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    """The failure, or None, of a call of each service with this metadata."""
    requests: dict[str, tuple[Any, str, Any]] = {
        "retriever": (retriever_grpc.RetrieverServiceStub, "Search", retriever_pb2.SearchRequest(query="q")),
        "judge": (judge_grpc.JudgeServiceStub, "GradeAnswer", judge_pb2.GradeAnswerRequest(question="q", answer="a")),
        "generator": (generator_grpc.GeneratorServiceStub, "BroadenQuery", generator_pb2.BroadenQueryRequest(question="q")),
    }
    ends: dict[str, Any] = {}
    for name, (stub, rpc, request) in requests.items():
        async with grpc.aio.insecure_channel(targets[name]) as channel:
            call = getattr(stub(channel), rpc)(request, metadata=metadata, timeout=CALL_SECONDS)
            try:
                await call
                ends[name] = None
            except grpc.aio.AioRpcError:
                ends[name] = await failure_of(call)
    return ends


def forged(key_file: Path, **changes: Any) -> str:
    """An identity signed with this key; a claim that is None is left out."""
    key: Any = serialization.load_pem_private_key(key_file.read_bytes(), None)
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "tenant": "north", "roles": ["ask"], "iat": now, "exp": now + 60}
    return jwt.encode({name: value for name, value in {**claims, **changes}.items() if value is not None}, key, "EdDSA")


def bad_identities(folder: Path, identity: IdentityKeys) -> dict[str, str]:
    """Tokens that prove nothing, by what is wrong with them."""
    stranger = IdentityKeys.made(folder, "stranger")
    good = IdentitySigner.from_file(identity.private).sign(ANN)
    head, body, signature = good.split(".")
    now = int(time.time())
    public = identity.public.read_bytes().decode()
    return {
        "empty": "",
        "nonsense": "nonsense",
        "of another key": IdentitySigner.from_file(stranger.private).sign(ANN),
        "with another body": ".".join((head, forged(stranger.private, roles=["admin"]).split(".")[1], signature)),
        "without a signature": f"{head}.{body}.",
        "with the algorithm none": jwt.encode({"sub": "ann", "tenant": "north", "roles": ["ask"]}, "", "none"),
        "with the public key as a secret": _with_secret(public),
        "that ended long ago": forged(identity.private, iat=now - 300, exp=now - 240),
        "that starts tomorrow": forged(identity.private, iat=now + 86_400, exp=now + 86_460),
        "for somebody else": forged(identity.private, aud="others"),
        "from somebody else": forged(identity.private, iss="others"),
        "without an end": forged(identity.private, exp=None),
        "without a tenant": forged(identity.private, tenant=None),
        "with a tenant that can't be one": forged(identity.private, tenant="../south"),
        "longer than any": good + "A" * 5000,
    }


def _with_secret(public: str) -> str:
    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "tenant": "north", "roles": ["ask"], "iat": now, "exp": now + 60}
    signed = f"{part(json.dumps({'alg': 'HS256'}).encode())}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.digest(public.encode(), signed.encode(), hashlib.sha256))}"


async def test_no_forged_identity_is_taken_not_even_with_a_good_key_beside_it(tmp_path: Path) -> None:
    async with services(tmp_path) as below:
        assert set((await calls(below.targets, below.boss.metadata)).values()) == {None}
        below.witness.seen.clear()
        for name, token in bad_identities(tmp_path, below.identity).items():
            ends = await calls(below.targets, (("errata-identity", token), *below.boss.metadata))
            for service, refused in ends.items():
                assert refused is not None, (name, service)
                told = (refused.code, refused.reason, refused.metadata)
                assert told == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED", {"cause": "identity"}), (name, service)
                assert not token or token not in repr(refused)
        assert below.witness.seen == []


async def test_the_services_want_a_key_of_whoever_calls_them_directly(tmp_path: Path) -> None:
    async with services(tmp_path) as below:
        for metadata in ((), (("errata-principal", "ann"),)):
            for refused in (await calls(below.targets, metadata)).values():
                assert (refused.code, refused.metadata) == (grpc.StatusCode.UNAUTHENTICATED, {"cause": "missing"})
        token = IdentitySigner.from_file(below.identity.private).sign(ANN)
        assert set((await calls(below.targets, (("errata-identity", token),))).values()) == {None}
        assert below.witness.callers() == {("north", "ann")}
        nothing = IdentitySigner.from_file(below.identity.private).sign(Principal("ann", "north"))
        for refused in (await calls(below.targets, (("errata-identity", nothing),))).values():
            assert (refused.code, refused.metadata) == (grpc.StatusCode.PERMISSION_DENIED, {"role": "ask"})


def only(witness: Witness, tenant: str, name: str) -> None:
    """Every step was done for this principal, which may ask and no more."""
    assert witness.callers() == {(tenant, name)}
    assert {(seen.roles, seen.delegated) for seen in witness.seen} == {(frozenset({Role.ASK}), True)}


async def test_every_step_of_a_run_is_done_for_whoever_has_asked(tmp_path: Path) -> None:
    witness = Witness()
    keys = KeyRing(tmp_path)
    boss, ann = keys.caller("boss", "south", Role.ADMIN), keys.caller("ann", "north")
    async with secured(witnessed(witness, reviews=(0.5, 1.0, 0.5, 1.0)), tmp_path) as (served, _, _):
        for caller in (boss, ann):
            witness.seen.clear()
            assert (await events_of(caller.ask(served)))[-1].run_finished.answer.text
            assert witness.steps() == {"search", "grade_passages", "write", "grade_answer"}
            only(witness, caller.tenant, caller.name)
            witness.seen.clear()
            events = await events_of(caller.call(served, "Compose", pb2.ComposeRequest(task="Write.")))
            assert events[-1].run_finished.approved
            assert witness.steps() == {"write", "review_draft", "revise_draft"}
            only(witness, caller.tenant, caller.name)


async def test_two_runs_at_once_keep_their_callers_apart(tmp_path: Path) -> None:
    witness, hook = Witness(), Hook()
    keys = KeyRing(tmp_path)
    callers = [keys.caller(f"p{number}", f"t{number % 3}") for number in range(6)]
    async with secured(witnessed(witness, write=hook), tmp_path) as (served, _, _):
        asking = [asyncio.create_task(run_id_of(caller.ask(served))) for caller in callers]
        await asyncio.wait_for(hook.reached.wait(), 5)
        hook.release.set()
        runs = await asyncio.gather(*asking)
        for caller, run_id in zip(callers, runs, strict=True):
            assert (await caller.get(served, run_id)).run.principal == caller.name
    assert witness.callers() == {(caller.tenant, caller.name) for caller in callers}
    for step in ("search", "grade_passages", "write", "grade_answer"):
        assert sorted(seen.name for seen in witness.seen if seen.step == step) == sorted(caller.name for caller in callers)


async def test_a_run_that_another_replica_has_taken_up_goes_on_for_whoever_has_asked(tmp_path: Path) -> None:
    witness, hook = Witness(), Hook()
    keys, identity = KeyRing(tmp_path), IdentityKeys.made(tmp_path)
    ann = keys.caller("ann", "north")
    own: dict[str, Any] = {"identity_key_file": identity.private, "data_dir": tmp_path / "runs", **keys.settings}
    async with trusting(witnessed(witness, write=hook), keys, identity) as targets:
        async with orchestrator(**targets, lease_seconds=0.6, **own) as first:
            call = ann.ask(first, on_disconnect="ON_DISCONNECT_CONTINUE")
            run_id = (await call.read()).event.run_id
            await asyncio.wait_for(hook.reached.wait(), 5)
            witness.seen.clear()
        hook.release.set()
        async with orchestrator(**targets, lease_seconds=0.6, **own) as second:
            events = await events_of(ann.watch(second, run_id))
            assert events[-1].run_finished.answer.text
            assert (await ann.get(second, run_id)).run.principal == "ann"
    assert [event for event in events if event.HasField("run_resumed")]
    assert "grade_answer" in witness.steps()
    only(witness, "north", "ann")


async def test_after_a_persons_decision_it_is_still_for_whoever_has_asked(tmp_path: Path) -> None:
    witness = Witness()
    keys = KeyRing(tmp_path)
    ann, bob = keys.caller("ann", "north"), keys.caller("bob", "north", Role.ADMIN)
    async with secured(witnessed(witness), tmp_path) as (served, _, _):
        call = ann.call(served, "Compose", pb2.ComposeRequest(task="Write.", require_approval=True))
        run_id = await waiting(call)
        witness.seen.clear()
        await bob.resume(served, run_id, "REVISE", feedback="Shorter.")
        assert await waiting(call) == run_id
        assert {"revise_draft", "review_draft"} <= witness.steps()
        only(witness, "north", "ann")
        call.cancel()


STRANGERS = pytest.mark.parametrize("signs", [True, False], ids=["another key", "no key"])


async def refused_below(folder: Path, signs: bool) -> tuple[Failure, Witness]:
    """What becomes of an Ask through an orchestrator that the services below do not trust."""
    witness = Witness()
    keys, identity = KeyRing(folder), IdentityKeys.made(folder)
    ann = keys.caller("ann", "north")
    signing: dict[str, Any] = {"identity_key_file": IdentityKeys.made(folder, "stranger").private} if signs else {}
    async with (
        trusting(witnessed(witness), keys, identity) as targets,
        orchestrator(**targets, **signing, **keys.settings) as served,
    ):
        return await failure_of(ann.ask(served)), witness


@STRANGERS
async def test_an_orchestrator_that_is_not_trusted_has_nothing_done(tmp_path: Path, signs: bool) -> None:
    refused, witness = await refused_below(tmp_path, signs)
    assert witness.seen == []
    assert refused.received[-1].event.run_finished.outcome == trace_pb2.OUTCOME_FAILED
    assert refused.metadata["service"] == "retriever"


@STRANGERS
async def test_the_caller_is_not_told_that_its_own_key_is_bad(tmp_path: Path, signs: bool) -> None:
    refused, _ = await refused_below(tmp_path, signs)
    assert refused.code is not grpc.StatusCode.UNAUTHENTICATED and refused.reason != "UNAUTHENTICATED"
