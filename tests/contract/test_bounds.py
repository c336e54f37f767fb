"""Every bound that the protos state: at it a request is taken, beyond it the call names the field. Two broken fields are both
named. The real servicers and their checks run; what stands behind them answers at once.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as orchestrator_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2

from errata_kit.drafts import Criterion
from errata_kit.grades import PassageGrade, Verdict
from errata_kit.metrics import Metrics
from errata_kit.passages import Answer, Draft, Passage
from errata_kit.rpc.server import Service
from services.generator.provider import Query, Written, WrittenDraft
from services.generator.server import GeneratorServicer
from services.judge.assessment import AnswerAssessor
from services.judge.claims.splitting import ClaimText
from services.judge.claims.verdicts import CheckedClaim
from services.judge.grading.batch import PassageGrader
from services.judge.provider import CheckedClaims, CriterionJudgement, GradedPassage, ReviewedDraft
from services.judge.review.reviewer import DraftReviewer
from services.judge.server import JudgeServicer
from tests.harness.bounds import (
    ANSWER_BROKEN,
    COLLECTION_BROKEN,
    COLLECTION_TAKEN,
    CRITERIA_BROKEN,
    CRITERIA_TAKEN,
    CRITERION_NAMES_BROKEN,
    DRAFT_BROKEN,
    DRAFT_TAKEN,
    FILTER_BROKEN,
    FILTER_TAKEN,
    KIB,
    OVERALL_BROKEN,
    OVERALL_TAKEN,
    PAGES_BROKEN,
    PAGES_TAKEN,
    PASSAGES_BROKEN,
    PASSAGES_TAKEN,
    QUESTION_BROKEN,
    QUESTION_TAKEN,
    REVISE_DRAFT,
    TASK_BROKEN,
    TASK_TAKEN,
    WRITE_DRAFT,
    Change,
    Rpc,
    at,
    claim,
    criteria,
    passages,
    put,
    wide,
)
from tests.harness.run_bounds import RUN_RPCS
from tests.harness.services import (
    CALL_SECONDS,
    Below,
    FakeRetriever,
    Served,
    collected,
    failure_of,
    plain_settings,
    retriever,
    scripted,
    serving,
)


class InstantJudge:
    """Grades everything alike, at once."""

    model = "instant"

    @property
    def versions(self) -> Mapping[str, str]:
        return {}

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> tuple[GradedPassage, ...]:
        return tuple(GradedPassage(PassageGrade(1.0, True, "")) for _ in passages)

    def evidence_sets(self, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> tuple[tuple[int, ...], ...]:
        return ((),) * len(claims)

    async def check_claims(self, question: str, claims: tuple[ClaimText, ...], passages: tuple[Passage, ...]) -> CheckedClaims:
        return CheckedClaims(tuple(CheckedClaim(item.text, item.start, item.end, Verdict.UNSUPPORTED) for item in claims))

    async def review_draft(
        self, task: str, draft: str, criteria: tuple[Criterion, ...], passages: tuple[Passage, ...]
    ) -> ReviewedDraft:
        return ReviewedDraft(tuple(CriterionJudgement(1.0, "") for _ in criteria))


class InstantWriter:
    """Writes the same, at once."""

    async def broaden(self, question: str, current: str, tried: tuple[str, ...]) -> Query:
        return Query("something new")

    async def answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | Written]:
        yield Written(Answer("Written."))

    async def refine(self, correction: Any) -> AsyncIterator[str | Written]:
        yield Written(Answer("Corrected."))

    async def write(self, task: Any) -> AsyncIterator[str | WrittenDraft]:
        yield WrittenDraft(Draft("Written."))

    async def revise(self, revision: Any) -> AsyncIterator[str | WrittenDraft]:
        yield WrittenDraft(Draft("Revised."))


def _service(name: str, register: Callable[[Any], None]) -> Service:
    return Service(name, 0, 0, f"errata.{name}.v1.{name.capitalize()}Service", register, Metrics())


@contextlib.asynccontextmanager
async def instant(name: str, folder: Path) -> AsyncIterator[Served]:
    """The service whose bounds are tested."""
    metrics = Metrics()
    instant_judge = InstantJudge()
    judge = JudgeServicer(
        PassageGrader(instant_judge, 8, metrics), AnswerAssessor(instant_judge, metrics), DraftReviewer(instant_judge)
    )
    writer = GeneratorServicer(InstantWriter())  # type: ignore[arg-type]  # an async generator function is what it needs
    served: contextlib.AbstractAsyncContextManager[Served]
    match name:
        case "judge":
            service = _service(name, lambda server: judge_grpc.add_JudgeServiceServicer_to_server(judge, server))
            served = serving(service, plain_settings(), judge_grpc.JudgeServiceStub)
        case "generator":
            service = _service(name, lambda server: generator_grpc.add_GeneratorServiceServicer_to_server(writer, server))
            served = serving(service, plain_settings(), generator_grpc.GeneratorServiceStub)
        case "retriever":
            served = retriever(folder)
        case _:
            served = scripted(Below(retriever=FakeRetriever(found=[["p1"]])))
    async with served as started:
        if name == "retriever":
            document = retriever_pb2.Document(document_id="d", text="files")
            requests = [retriever_pb2.IngestDocumentsRequest(collection=item, document=document) for item in ("", "a" * 63)]
            for request in requests:
                await collected(started.stub.IngestDocuments(iter([request])))
        yield started


RPCS = [
    Rpc(
        "judge",
        "GradePassages",
        lambda: judge_pb2.GradePassagesRequest(question="q", passages=passages(4)),
        {**QUESTION_BROKEN, **PASSAGES_BROKEN, "passages  ": put(passages=[])},
        {**QUESTION_TAKEN, **PASSAGES_TAKEN},
    ),
    Rpc(
        "judge",
        "GradeAnswer",
        lambda: judge_pb2.GradeAnswerRequest(question="q", answer="An answer.", passages=passages(4)),
        {**QUESTION_BROKEN, **ANSWER_BROKEN, **PASSAGES_BROKEN, "passages  ": put(passages=[])},
        {**QUESTION_TAKEN, **PASSAGES_TAKEN, "answer": put(answer=wide(64 * KIB))},
    ),
    Rpc(
        "judge",
        "CheckClaims",
        lambda: judge_pb2.CheckClaimsRequest(question="q", segment="A segment.", passages=passages(4)),
        {**QUESTION_BROKEN, "segment": put(segment=wide(64 * KIB + 1)), **PASSAGES_BROKEN, "passages  ": put(passages=[])},
        {**QUESTION_TAKEN, **PASSAGES_TAKEN, "segment": put(segment=wide(64 * KIB))},
    ),
    Rpc(
        "judge",
        "ReviewDraft",
        lambda: judge_pb2.ReviewDraftRequest(task="t", draft="A draft.", criteria=criteria(3), passages=passages(4)),
        {
            **TASK_BROKEN,
            **DRAFT_BROKEN,
            **CRITERIA_BROKEN,
            **CRITERION_NAMES_BROKEN,
            **OVERALL_BROKEN,
            **PASSAGES_BROKEN,
            "criteria[2].threshold": at("criteria.2", threshold=-0.001),
        },
        {**TASK_TAKEN, **DRAFT_TAKEN, **CRITERIA_TAKEN, **OVERALL_TAKEN, **PASSAGES_TAKEN, "no passages": put(passages=[])},
    ),
    Rpc(
        "generator",
        "BroadenQuery",
        lambda: generator_pb2.BroadenQueryRequest(question="q"),
        {
            **QUESTION_BROKEN,
            "current_query": put(current_query=wide(8 * KIB + 1)),
            "tried_queries": put(tried_queries=["q"] * 17),
            "tried_queries[2]": put(tried_queries=["a", "b", wide(8 * KIB + 1)]),
        },
        {**QUESTION_TAKEN, "queries": put(current_query=wide(8 * KIB), tried_queries=[wide(8 * KIB)] * 16)},
    ),
    Rpc(
        "generator",
        "GenerateAnswer",
        lambda: generator_pb2.GenerateAnswerRequest(question="q", passages=passages(4)),
        {**QUESTION_BROKEN, **PASSAGES_BROKEN},
        {**QUESTION_TAKEN, **PASSAGES_TAKEN, "no passages": put(passages=[])},
    ),
    Rpc(
        "generator",
        "RefineAnswer",
        lambda: generator_pb2.RefineAnswerRequest(
            question="q", answer="made up", passages=passages(4), failing_claims=[claim(), claim(claim_id="c2")]
        ),
        {
            **QUESTION_BROKEN,
            **ANSWER_BROKEN,
            **PASSAGES_BROKEN,
            "passages  ": put(passages=[]),
            "failing_claims": put(failing_claims=[]),
            "failing_claims ": put(failing_claims=[claim()] * 201),
            "failing_claims[1].text": at("failing_claims.1", text=wide(8 * KIB + 1)),
            "failing_claims[1].verdict": at("failing_claims.1", verdict=0),
            "failing_claims[1].verdict ": at("failing_claims.1", verdict=77),
            "failing_claims[1].support": at("failing_claims.1", support=1.5),
            "failing_claims[1].span.start": at("failing_claims.1.span", start=-1),
            "failing_claims[1].evidence[0].quote": at(
                "failing_claims.1", evidence=[grading_pb2.Evidence(passage_id="p0", quote=wide(KIB + 1))]
            ),
            "refinement_suggestion": put(refinement_suggestion=wide(8 * KIB + 1)),
        },
        {
            **QUESTION_TAKEN,
            **PASSAGES_TAKEN,
            "answer": put(answer=wide(64 * KIB)),
            "200 claims": put(failing_claims=[claim()] * 200),
            "text": at("failing_claims.0", text=wide(8 * KIB)),
            "quote": at("failing_claims.0", evidence=[grading_pb2.Evidence(passage_id="p0", quote=wide(KIB))]),
            "suggestion": put(refinement_suggestion=wide(8 * KIB)),
        },
    ),
    Rpc(
        "retriever",
        "Search",
        lambda: retriever_pb2.SearchRequest(query="files"),
        {
            **COLLECTION_BROKEN,
            **FILTER_BROKEN,
            "query": put(query=""),
            "query ": put(query=" "),
            "query  ": put(query=wide(8 * KIB + 1)),
            "top_k": put(top_k=-1),
            "top_k ": put(top_k=101),
            "mode": put(mode=9),
        },
        {**COLLECTION_TAKEN, **FILTER_TAKEN, "query": put(query=wide(8 * KIB)), "top_k": put(top_k=100)},
    ),
    Rpc(
        "retriever",
        "ListDocuments",
        retriever_pb2.ListDocumentsRequest,
        {**COLLECTION_BROKEN, **PAGES_BROKEN, "document_id_prefix": put(document_id_prefix=wide(513))},
        {**COLLECTION_TAKEN, **PAGES_TAKEN, "prefix": put(document_id_prefix=wide(512))},
    ),
    Rpc("retriever", "ListCollections", retriever_pb2.ListCollectionsRequest, PAGES_BROKEN, PAGES_TAKEN),
    Rpc(
        "retriever",
        "DeleteDocuments",
        lambda: retriever_pb2.DeleteDocumentsRequest(document_ids=["nothing"]),
        {
            **COLLECTION_BROKEN,
            "document_ids": put(document_ids=[]),
            "document_ids ": put(document_ids=[str(number) for number in range(501)]),
            "document_ids[1]": put(document_ids=["a", ""]),
            "document_ids[1] ": put(document_ids=["a", wide(513)]),
        },
        {
            **COLLECTION_TAKEN,
            "500": put(document_ids=[str(number) for number in range(500)]),
            "id": put(document_ids=[wide(512)]),
        },
    ),
    Rpc(
        "retriever",
        "DeleteCollection",
        lambda: retriever_pb2.DeleteCollectionRequest(collection="nowhere"),
        {**COLLECTION_BROKEN, "collection" + " " * 20: put(collection="")},
        {"name": put(collection="b" * 63)},
        missing=True,
    ),
    WRITE_DRAFT,
    REVISE_DRAFT,
    *RUN_RPCS,
]
NAMES = [rpc.method for rpc in RPCS]


def changed(rpc: Rpc, *changes: Change) -> Any:
    request = rpc.valid()
    for change in changes:
        change(request)
    return request


def disjoint(one: str, other: str) -> bool:
    """Whether two breaks touch different fields, neither inside the other."""
    first, second = one.strip(), other.strip()
    root = (first.split("[")[0].split(".")[0], second.split("[")[0].split(".")[0])
    return root[0] != root[1] or (root[0] == "settings" and first != second)


async def named(rpc: Rpc, served: Served, request: Any) -> set[str]:
    """The fields that the service names as broken."""
    try:
        failure = await failure_of(rpc.call(served, request))
    except AssertionError:
        return {"(none: the request was taken)"}
    if failure.code is not grpc.StatusCode.INVALID_ARGUMENT:
        return {f"{failure.code.name}: {failure.message[:80]}"}
    assert (failure.reason, failure.domain) == ("INVALID_FIELD", "errata") and failure.received == ()
    assert all(failure.violations.values())
    return set(failure.violations)


async def taken(rpc: Rpc, served: Served, request: Any) -> str:
    """Empty when the service takes the request, else what it says."""
    call = rpc.call(served, request)
    try:
        await (collected(call) if hasattr(call, "__aiter__") else call)
    except grpc.aio.AioRpcError as error:
        if rpc.missing and error.code() is grpc.StatusCode.NOT_FOUND:
            return ""
        return f"{error.code().name}: {error.details()}"
    return ""


@pytest.mark.parametrize("rpc", RPCS, ids=NAMES)
async def test_each_bound_is_enforced_and_names_its_field(rpc: Rpc, tmp_path: Path) -> None:
    wrong = {}
    async with instant(rpc.service, tmp_path) as served:
        for path, change in rpc.broken.items():
            found = await named(rpc, served, changed(rpc, change))
            if found != {path.strip()}:
                wrong[path] = found
    assert not wrong


@pytest.mark.parametrize(
    "rpc", [rpc for rpc in RPCS if len({path.strip() for path in rpc.broken}) > 1], ids=lambda rpc: rpc.method
)
async def test_two_broken_fields_are_both_named(rpc: Rpc, tmp_path: Path) -> None:
    wrong = {}
    # One way to break each field is enough here.
    firsts = {path.strip(): change for path, change in reversed(list(rpc.broken.items()))}
    async with instant(rpc.service, tmp_path) as served:
        for (one, first), (other, second) in itertools.combinations(firsts.items(), 2):
            if not disjoint(one, other):
                continue
            if rpc.method == "ListRuns" and "page_token" in {one, other}:
                # Only the store of the runs can read this token, and it is asked once all else holds.
                continue
            found = await named(rpc, served, changed(rpc, first, second))
            if found != {one, other}:
                wrong[one, other] = found
    assert not wrong


@pytest.mark.parametrize("rpc", RPCS, ids=NAMES)
async def test_at_its_bound_a_request_is_taken(rpc: Rpc, tmp_path: Path) -> None:
    wrong = {}
    async with instant(rpc.service, tmp_path) as served:
        assert await taken(rpc, served, rpc.valid()) == ""
        for name, change in rpc.taken.items():
            said = await taken(rpc, served, changed(rpc, change))
            if said:
                wrong[name] = said
    assert not wrong


def test_every_method_of_every_service_is_here() -> None:
    modules = (judge_pb2, generator_pb2, retriever_pb2, orchestrator_pb2)
    services = [service for module in modules for service in module.DESCRIPTOR.services_by_name.values()]
    methods = {method.name for service in services for method in service.methods}
    # Each document of a stream has a result of its own; its bounds are below.
    assert methods - {"IngestDocuments"} == set(NAMES)


DOCUMENT_BROKEN: dict[str, Change] = {
    "document_id": put(document_id=wide(513)),
    "title": put(title=wide(KIB + 1)),
    "source_uri": put(source_uri=wide(2 * KIB + 1)),
    "metadata": lambda document: document.metadata.update({str(number): "" for number in range(65)}),
    "metadata.k": lambda document: document.metadata.update({"k": wide(KIB + 1)}),
    "metadata.a b": lambda document: document.metadata.update({"a b": ""}),
    "metadata.long": lambda document: document.metadata.update({"k" * 65: ""}),
}
DOCUMENT_TAKEN: dict[str, Change] = {
    "document_id": put(document_id=wide(512)),
    "title": put(title=wide(KIB)),
    "source_uri": put(source_uri=wide(2 * KIB)),
    "metadata": lambda document: document.metadata.update({f"k{number}": wide(KIB) for number in range(64)}),
    "key": lambda document: document.metadata.update({"k" * 64: ""}),
    "4 MiB": put(text="word\n" * (4 * KIB * KIB // 5 // 100)),
}


async def ingested(served: Served, *changes: Change) -> Any:
    document = retriever_pb2.Document(document_id="doc", text="files")
    for change in changes:
        change(document)
    [result] = await collected(served.stub.IngestDocuments(iter([retriever_pb2.IngestDocumentsRequest(document=document)])))
    return result


async def test_the_bounds_of_a_document(tmp_path: Path) -> None:
    wrong = {}
    async with instant("retriever", tmp_path) as served:
        for path, change in DOCUMENT_BROKEN.items():
            result = await ingested(served, change)
            # An item's error carries no BadRequest: its sentence names the field.
            if result.WhichOneof("result") != "error" or path.split(".")[0] not in result.error.message:
                wrong[path] = str(result)
        for name, change in DOCUMENT_TAKEN.items():
            result = await ingested(served, change)
            found = await served.stub.Search(retriever_pb2.SearchRequest(query="files word", top_k=1))
            if result.WhichOneof("result") != "ingested" or not found.passages:
                wrong[f"taken: {name}"] = str(result)
        result = await ingested(served, DOCUMENT_BROKEN["title"], DOCUMENT_BROKEN["source_uri"])
        assert "title" in result.error.message and "source_uri" in result.error.message
    assert not wrong


async def test_a_message_beyond_8_mib_is_refused_by_the_transport(tmp_path: Path) -> None:
    request = judge_pb2.GradePassagesRequest(question="a" * (8 * KIB * KIB))
    async with instant("judge", tmp_path) as served:
        failure = await failure_of(served.stub.GradePassages(request, timeout=CALL_SECONDS))
    assert failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED
