"""The whole suite as processes with mutual TLS, API keys and signed identities."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from errata_kit.access.principals import Role
from tests.harness.certificates import Authority, serial, shown, write
from tests.harness.secured import SERVICES, Caller, SecuredSuite, secured_suite, told_health
from tests.harness.suite import Background, eventually

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("secured")]

QUESTION = "How long is a backup kept?"
TEXT = "# Backups\n\nA backup is made every night at 02:00 and is kept for 30 days."


@pytest.fixture(scope="module")
def secured(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSuite]:
    with secured_suite(background, tmp_path_factory.mktemp("secured")) as running:
        yield running


@pytest.fixture(scope="module")
def ann(secured: SecuredSuite) -> Caller:
    """Somebody of the tenant north, with a document in its collection."""
    made = secured.keys.caller("ann", "north", Role.ASK, Role.INGEST)
    # The services look at the file once a second.
    eventually(lambda: ingested(secured, made), 10, "the new key is known to the retriever")
    eventually(lambda: known(secured, made), 10, "and to the orchestrator")
    return made


def known(secured: SecuredSuite, caller: Caller) -> bool:
    """Whether the orchestrator takes the caller's key already."""
    with secured.channel("orchestrator") as channel:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        try:
            stub.ListRuns(pb2.ListRunsRequest(), metadata=caller.metadata, timeout=20)
        except grpc.RpcError as error:
            failed: Any = error
            assert failed.code() is grpc.StatusCode.UNAUTHENTICATED, failed
            return False
    return True


def ingested(secured: SecuredSuite, caller: Caller) -> bool:
    with secured.channel("retriever") as channel:
        stub: Any = retriever_grpc.RetrieverServiceStub(channel)
        document = retriever_pb2.Document(document_id="backup.md", text=TEXT)
        request = retriever_pb2.IngestDocumentsRequest(collection="tidepool", document=document)
        try:
            [result] = stub.IngestDocuments(iter([request]), metadata=caller.metadata, timeout=20)
        except grpc.RpcError as error:
            failed: Any = error
            assert failed.code() is grpc.StatusCode.UNAUTHENTICATED, failed
            return False
    return bool(result.HasField("ingested"))


def asked(secured: SecuredSuite, metadata: tuple[tuple[str, str], ...], **fields: Any) -> list[trace_pb2.TraceEvent]:
    """The trace of an Ask."""
    with secured.channel("orchestrator") as channel:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        request = pb2.AskRequest(question=QUESTION, collection="tidepool", **fields)
        return [reply.event for reply in stub.Ask(request, metadata=metadata, timeout=30)]


def refusal(call: Callable[[], Any]) -> grpc.StatusCode:
    """The status of a call that must fail."""
    with pytest.raises(grpc.RpcError) as refused:
        call()
    failed: Any = refused.value
    code: grpc.StatusCode = failed.code()
    return code


def test_who_has_a_key_is_answered_and_who_has_none_is_not(secured: SecuredSuite, ann: Caller) -> None:
    events = asked(secured, ann.metadata)
    finished = events[-1].run_finished
    assert finished.outcome == trace_pb2.OUTCOME_ANSWERED and "30 days" in finished.answer.text
    for metadata in ((), (("authorization", f"Bearer {ann.key[:-1]}"),), (("errata-principal", "ann"),)):
        assert refusal(lambda metadata=metadata: asked(secured, metadata)) is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[misc]


def test_another_tenant_finds_neither_the_documents_nor_the_run(secured: SecuredSuite, ann: Caller) -> None:
    run_id = asked(secured, ann.metadata)[0].run_id
    other = secured.keys.caller("ann", "south", Role.ADMIN)
    eventually(lambda: listed(secured, other) == [], 10, "the new key is known")
    with secured.channel("orchestrator") as channel, secured.channel("retriever") as beside:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        retriever: Any = retriever_grpc.RetrieverServiceStub(beside)
        request = pb2.GetRunRequest(run_id=run_id)
        assert stub.GetRun(request, metadata=ann.metadata, timeout=5).run.principal == "ann"
        assert refusal(lambda: stub.GetRun(request, metadata=other.metadata, timeout=5)) is grpc.StatusCode.NOT_FOUND
        assert not retriever.ListCollections(
            retriever_pb2.ListCollectionsRequest(), metadata=other.metadata, timeout=5
        ).collections
    assert refusal(lambda: asked(secured, other.metadata)) is grpc.StatusCode.NOT_FOUND


def listed(secured: SecuredSuite, caller: Caller) -> list[str] | None:
    """The caller's runs; None while its key is not known."""
    with secured.channel("orchestrator") as channel:
        stub: Any = pb2_grpc.OrchestratorServiceStub(channel)
        try:
            page = stub.ListRuns(pb2.ListRunsRequest(), metadata=caller.metadata, timeout=5)
        except grpc.RpcError:
            return None
    return [run.run_id for run in page.runs]


def test_the_judge_does_not_work_for_whoever_comes_by_another_way(secured: SecuredSuite, ann: Caller) -> None:
    request = judge_pb2.GradeAnswerRequest(question=QUESTION, answer="30 days.")
    request.passages.add(passage_id="p1", text=TEXT)
    with secured.channel("judge") as channel:
        stub: Any = judge_grpc.JudgeServiceStub(channel)
        for metadata in ((), (("errata-identity", "nonsense"),), (("errata-identity", "nonsense"), *ann.metadata)):
            refused = refusal(lambda metadata=metadata: stub.GradeAnswer(request, metadata=metadata, timeout=10))  # type: ignore[misc]
            assert refused is grpc.StatusCode.UNAUTHENTICATED
        assert stub.GradeAnswer(request, metadata=ann.metadata, timeout=10).grade.claims
    # Neither does it talk to whoever shows no certificate of the authority, key or not.
    with secured.channel("judge", certificate=False) as nameless, secured.suite.channel("judge") as plain:
        for channel in (nameless, plain):
            bare: Any = judge_grpc.JudgeServiceStub(channel)
            refused = refusal(lambda bare=bare: bare.GradeAnswer(request, metadata=ann.metadata, timeout=3))  # type: ignore[misc]
            assert refused in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}


def test_a_revoked_key_is_refused_within_seconds_and_everywhere(secured: SecuredSuite, ann: Caller) -> None:
    rob = secured.keys.caller("rob", "north")
    eventually(lambda: listed(secured, rob) is not None, 10, "the new key is known")
    secured.keys.revoke(rob)
    eventually(lambda: listed(secured, rob) is None, 5, "the key is refused")
    assert listed(secured, ann) is not None


def test_the_ports_for_probes_answer_in_plain_text(secured: SecuredSuite) -> None:
    for name in SERVICES:
        for asked_for in ("", "liveness", f"errata.{name}.v1.{name.capitalize()}Service"):
            assert told_health(secured.suite.log, name, asked_for) == "SERVING"


@pytest.mark.parametrize("another", [False, True], ids=["same authority", "another authority"])
def test_certificates_are_replaced_while_it_works(
    secured: SecuredSuite, ann: Caller, background: Background, another: bool
) -> None:
    folder = secured.files.cert.parent if secured.files.cert is not None else None
    assert folder is not None
    authority = Authority("another") if another else secured.authority
    fresh = authority.issue("errata")
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        stop = False

        def asking() -> int:
            done = 0
            while not stop or not done:
                assert asked(secured, ann.metadata)[-1].run_finished.outcome == trace_pb2.OUTCOME_ANSWERED
                done += 1
            return done

        working = [threads.submit(asking) for _ in range(2)]
        try:
            # Whoever rolls authorities trusts both for a while.
            write(folder, None, secured.authority.pem + authority.pem)
            time.sleep(1.2 if another else 0)
            write(folder, fresh, None)
            for name in SERVICES:
                eventually(lambda name=name: shows(secured, background, name) == serial(fresh), 10, f"{name} has it")  # type: ignore[misc]
            # The orchestrator's own channels look for it once a second.
            time.sleep(1.5)
        finally:
            stop = True
        assert all(work.result(30) >= 1 for work in working)
    if another:
        write(folder, secured.authority.issue("errata"), None)
    assert {entry["event"] for entry in secured.suite.entries("orchestrator")} >= {"tls_files_reloaded"}


def shows(secured: SecuredSuite, background: Background, name: str) -> int:
    try:
        return background.run(shown(secured.suite.plan.ports[name], secured.files), 10)
    except OSError:
        return 0
