"""What people write, and what proves who they are, is in no log at the default level; which run a line belongs to is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from errata_kit.access.identity import IdentitySigner
from errata_kit.access.principals import Principal, Role
from tests.harness.model_rules import ApiError, Fault, Reply, Rule
from tests.harness.model_server import ModelServer
from tests.harness.secured import Caller, IdentityKeys, KeyRing, Metadata
from tests.harness.suite import Background, Suite, running_suite

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("logs")]

CANARY = {
    name: f"canary{name.title()}"
    for name in ("question", "document", "title", "metadata", "draft", "task", "feedback", "filter", "model", "token", "field")
}
MODEL_KEY = "sk-canaryModelKey"
WRONG_KEY = "errata_canaryid00_" + "c0ffee" * 10 + "beef"
TEXT = f"# {CANARY['title']}\n\nA backup {CANARY['document']} is made every night and is kept for 30 days."
QUESTION = f"How long is a backup {CANARY['question']} kept?"


@dataclass(frozen=True, slots=True)
class Watched:
    """A suite with a model, callers with keys, and a signer that the services trust."""

    suite: Suite
    model: ModelServer
    ann: Caller
    eve: Caller
    signer: IdentitySigner

    def texts(self) -> dict[str, str]:
        """What must be in no log."""
        secrets = {"key": self.ann.secret, "revoked key": self.eve.secret, "wrong key": WRONG_KEY[-60:], "model key": MODEL_KEY}
        # Every identity that is signed begins like this: {"alg" in base64.
        return {**CANARY, **secrets, "identity": "eyJhbGciOi", "authorization": "Bearer"}

    def leaks(self, since: int = 0) -> list[tuple[str, str]]:
        """Which of it is in a log all the same, and the line."""
        lines = self.suite.log[since:]
        return [
            (name, f"{service}: {line}"[:600]) for service, line in lines for name, text in self.texts().items() if text in line
        ]

    @contextlib.contextmanager
    def stub(self, name: str, kind: Any) -> Iterator[Any]:
        with self.suite.channel(name) as channel:
            yield kind(channel)


@pytest.fixture(scope="module")
def watched(background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("logs")
    keys, identity = KeyRing(folder), IdentityKeys.made(folder)
    ann = keys.caller("ann", "north", Role.ADMIN)
    eve = keys.caller("eve", "north")
    keys.revoke(eve)
    model = ModelServer()
    background.run(model.__aenter__())
    try:
        variables = {
            "ERRATA_AUTH": "api-key",
            "ERRATA_API_KEYS_FILE": str(keys.path),
            "ERRATA_IDENTITY_KEY_FILE": str(identity.private),
            "ERRATA_IDENTITY_TRUST_FILE": str(identity.public),
            "ERRATA_LLM_PROVIDER": "openai",
            "RETRIEVER_EMBEDDING_PROVIDER": "openai",
            "OPENAI_BASE_URL": model.base_url,
            "OPENAI_API_KEY": MODEL_KEY,
            "ERRATA_LOG_LEVEL": None,
        }
        with running_suite(background, folder / "data", variables) as suite:
            made = Watched(suite, model, ann, eve, IdentitySigner.from_file(identity.private))
            ingest(made, TEXT, "backup.md")
            yield made
    finally:
        background.run(model.__aexit__(None, None, None))


def ingest(watched: Watched, text: str, name: str, metadata: Metadata | None = None) -> list[Any]:
    document = retriever_pb2.Document(document_id=name, text=text, metadata={"who": CANARY["metadata"]})
    request = retriever_pb2.IngestDocumentsRequest(collection="tidepool", document=document)
    with watched.stub("retriever", retriever_grpc.RetrieverServiceStub) as stub:
        shown = watched.ann.metadata if metadata is None else metadata
        return list(stub.IngestDocuments(iter([request]), metadata=shown, timeout=20))


def call(watched: Watched, rpc: str, request: Any, metadata: Metadata | None = None) -> tuple[list[Any], str]:
    """What an RPC of the orchestrator says, and the name of its status. A stream is left when it waits for a person."""
    shown = watched.ann.metadata if metadata is None else metadata
    said: list[Any] = []
    with watched.stub("orchestrator", pb2_grpc.OrchestratorServiceStub) as stub:
        try:
            replies = getattr(stub, rpc)(request, metadata=shown, timeout=30)
            for reply in replies if hasattr(replies, "__next__") else [replies]:
                said.append(reply)
                if rpc == "Compose" and reply.event.HasField("approval_requested"):
                    replies.cancel()
                    break
        except grpc.RpcError as error:
            failed: Any = error
            return said, str(failed.code().name)
    return said, "OK"


def ask(**fields: Any) -> pb2.AskRequest:
    return pb2.AskRequest(**{"question": QUESTION, "collection": "tidepool", **fields})


def settled(watched: Watched) -> None:
    """Give the lines that are on their way the time to come."""
    known = -1
    while known != len(watched.suite.log):
        known = len(watched.suite.log)
        time.sleep(0.3)


def test_what_works_leaves_nothing_of_it_in_the_logs(watched: Watched) -> None:
    said, status = call(watched, "Ask", ask())
    assert status == "OK" and CANARY["document"] in said[-1].event.run_finished.answer.text
    run_id = said[0].event.run_id
    assert call(watched, "Ask", ask(draft_answer=f"It is kept for 7 years, says {CANARY['draft']}."))[1] == "OK"
    composed, _ = call(
        watched,
        "Compose",
        pb2.ComposeRequest(
            task=f"Write about {CANARY['task']}.",
            draft=f"A page {CANARY['draft']} about backups.",
            require_approval=True,
            on_disconnect="ON_DISCONNECT_CONTINUE",
        ),
    )
    waits = composed[-1].event
    if waits.HasField("approval_requested"):
        wish = pb2.ResumeRunRequest(run_id=waits.run_id, decision="APPROVAL_DECISION_REVISE")
        wish.feedback = f"Say more of {CANARY['feedback']}."
        assert call(watched, "ResumeRun", wish)[1] == "OK"
    for rpc, request in (
        ("GetRun", pb2.GetRunRequest(run_id=run_id)),
        ("WatchRun", pb2.WatchRunRequest(run_id=run_id)),
        ("ListRuns", pb2.ListRunsRequest()),
    ):
        said, status = call(watched, rpc, request)
        assert status == "OK" and CANARY["question"].encode() in b"".join(reply.SerializeToString() for reply in said)
    settled(watched)
    # The texts did go through the services and to the model.
    sent = repr([exchange.request for exchange in watched.model.journal])
    assert all(CANARY[name] in sent for name in ("question", "document", "draft", "task"))
    assert watched.leaks() == []


def test_what_is_refused_leaves_nothing_of_it_in_the_logs(watched: Watched) -> None:
    since = len(watched.suite.log)
    token = watched.signer.sign(Principal("ann", "north", frozenset({Role.ASK})))
    for metadata in (
        (),
        (("authorization", f"Bearer {WRONG_KEY}"),),
        (("authorization", CANARY["token"]),),
        (("x-api-key", WRONG_KEY),),
        watched.eve.metadata,
        (("errata-identity", token[:-6] + "AAAAAA"),),
    ):
        assert call(watched, "Ask", ask(), metadata)[1] == "UNAUTHENTICATED"
    with watched.stub("judge", judge_grpc.JudgeServiceStub) as stub:
        request = judge_pb2.GradeAnswerRequest(question=QUESTION, answer=f"30 days {CANARY['draft']}")
        for identity in (CANARY["token"], token[:-4] + "AAAA", "eyJhbGciOiJub25lIn0.e30."):
            with pytest.raises(grpc.RpcError):
                stub.GradeAnswer(request, metadata=(("errata-identity", identity),), timeout=10)
    settled(watched)
    assert watched.leaks(since) == []
    refused = [entry for entry in watched.suite.entries("orchestrator") if entry.get("code") == "UNAUTHENTICATED"]
    assert len(refused) >= 6 and not any("principal" in entry for entry in refused)


def test_what_is_not_valid_leaves_nothing_of_it_in_the_logs(watched: Watched) -> None:
    since = len(watched.suite.log)
    field = CANARY["field"]
    for rpc, request in (
        ("Ask", ask(collection=f"{field}!")),
        ("Ask", ask(collection=field.lower())),
        ("Ask", ask(question=QUESTION * 1000)),
        ("Ask", ask(request_id=field * 100)),
        ("Ask", ask(draft_answer=CANARY["draft"] * 10_000)),
        ("Compose", pb2.ComposeRequest(task=CANARY["task"] + "\0", criteria=[{"name": field}, {"name": field}])),
        ("WatchRun", pb2.WatchRunRequest(run_id=field)),
        ("GetRun", pb2.GetRunRequest(run_id=field)),
        ("ListRuns", pb2.ListRunsRequest(page_token=field)),
        ("ListRuns", pb2.ListRunsRequest(workflow=f"{field}\0")),
        ("ResumeRun", pb2.ResumeRunRequest(run_id=field, feedback=CANARY["feedback"])),
    ):
        assert call(watched, rpc, request)[1] in {"INVALID_ARGUMENT", "NOT_FOUND"}, (rpc, str(request)[:80])
    [rejected] = ingest(watched, f"{CANARY['document']}\0binary", "bad.md")
    assert rejected.HasField("error")
    with watched.stub("retriever", retriever_grpc.RetrieverServiceStub) as stub:
        broken = watched.suite.channel("retriever")
        with broken as channel, pytest.raises(grpc.RpcError):
            raw: Any = channel.unary_unary("/errata.retriever.v1.RetrieverService/Search")
            raw(b"\x0a\xff\xff" + CANARY["document"].encode(), metadata=watched.ann.metadata, timeout=10)
        search = retriever_pb2.SearchRequest(collection="tidepool", query=QUESTION, top_k=-5)
        with pytest.raises(grpc.RpcError):
            stub.Search(search, metadata=watched.ann.metadata, timeout=10)
    settled(watched)
    assert watched.leaks(since) == []


ECHO = ApiError(f"Your prompt was: {QUESTION} {CANARY['model']}", "invalid_request_error")
FAULTS = {
    "the provider fails": Reply(status=500, error=ECHO),
    "the provider rejects the key": Reply(
        status=401, error=ApiError(f"Incorrect API key {MODEL_KEY}", "invalid_request_error")
    ),
    "the provider rejects the request": Reply(status=400, error=ECHO),
    "the model writes no JSON": Reply(f"Sorry, about {CANARY['model']} I can't say."),
    "the model writes other JSON": Reply('{"score": "' + CANARY["model"] + '"}'),
    "the model refuses": Reply(refusal=f"I do not talk about {CANARY['model']}."),
    "the connection breaks": Reply(f"{CANARY['model']} " * 20, fault=Fault.CLOSE_MID_BODY),
}


@pytest.mark.parametrize("fault", list(FAULTS))
@pytest.mark.parametrize("schema", ["PassageGradeOutput", "ClaimVerdictsOutput"])
def test_what_the_model_says_when_it_fails_is_not_in_the_logs(
    watched: Watched, background: Background, fault: str, schema: str
) -> None:
    since = len(watched.suite.log)

    async def change(*rules: Rule) -> None:
        watched.model.rules.replace(rules)

    background.run(change(Rule(FAULTS[fault], name="fault", schema=schema)))
    try:
        said, _ = call(watched, "Ask", ask())
        assert said[0].event.run_id
    finally:
        background.run(change())
    time.sleep(0.3)
    assert watched.leaks(since) == []
    # It does say that, and where, something went wrong.
    assert [entry for entry in watched.suite.entries() if entry["level"] in {"warning", "error"}]


def test_lines_say_which_run_and_trace_they_belong_to_and_who_has_asked(watched: Watched) -> None:
    trace_id = "0123456789abcdef0123456789abcdef"
    parent = (("traceparent", f"00-{trace_id}-0123456789abcdef-01"),)
    said, status = call(watched, "Ask", ask(), (*watched.ann.metadata, *parent))
    assert status == "OK"
    run_id = said[0].event.run_id
    settled(watched)
    whose = {"run_id": run_id, "trace_id": trace_id, "principal": "ann", "tenant": "north"}
    for service in ("orchestrator", "retriever", "judge", "generator"):
        lines = [entry for entry in watched.suite.entries(service) if entry.get("run_id") == run_id]
        assert lines, service
        for entry in lines:
            assert {name: entry.get(name) for name in whose} == whose, entry
    [finished] = [entry for entry in watched.suite.entries("orchestrator") if entry.get("event") == "run_finished"
                  and entry.get("run_id") == run_id]  # fmt: skip
    assert finished["outcome"] == "ANSWERED"
    # The call that has started it knows its caller, and each line when it was and who wrote it.
    calls = [entry for entry in watched.suite.entries("orchestrator") if entry.get("event") == "call"]
    assert [entry for entry in calls if entry.get("trace_id") == trace_id and entry.get("principal") == "ann"]
    assert all(entry["service"] and entry["time"] for entry in watched.suite.entries())
