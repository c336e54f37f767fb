"""The judge's cache over gRPC: what is known costs nothing, and usage and metrics say so."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from errata.judge.v1 import judge_service_pb2 as pb2
from errata.usage.v1 import usage_pb2

from tests.contract.test_judge_claims import counted
from tests.contract.test_judge_service import good
from tests.harness.model_faults import rate_limited
from tests.harness.model_responder import respond
from tests.harness.model_rules import Reply, Rule
from tests.harness.model_server import ModelServer, with_latency
from tests.harness.services import CALL_SECONDS, Served, collected, failure_of, judge, passage

QUESTION = "How long are files kept?"
PASSAGES = tuple(
    passage(f"p{n}", text) for n, text in enumerate(("Files are kept for 30 days.", "Logs are rotated on Mondays at noon."))
)
ANSWER = "Files are kept for 30 days. [1] Logs are rotated on Mondays at noon. [2]"
CACHED: dict[str, Any] = {"cache_entries": 1000}


def grading(served: Served, *passages: Any, question: str = QUESTION) -> Any:
    return served.stub.GradePassages(pb2.GradePassagesRequest(question=question, passages=passages), timeout=CALL_SECONDS)


def answering(served: Served, answer: str = ANSWER, *passages: Any, question: str = QUESTION) -> Any:
    request = pb2.GradeAnswerRequest(question=question, answer=answer, passages=passages or PASSAGES)
    return served.stub.GradeAnswer(request, timeout=CALL_SECONDS)


def spent(calls: Any) -> tuple[int, ...]:
    return tuple(sum(getattr(call, name) for call in calls) for name in ("input_tokens", "output_tokens", "cost_micros"))


async def test_a_passage_that_is_known_is_not_graded_again() -> None:
    async with ModelServer() as model, judge(model, **CACHED) as served:
        first = await collected(grading(served, *PASSAGES))
        again = await collected(grading(served, *PASSAGES))
        assert len(model.calls()) == 1
        assert counted(served, "errata_cache_requests_total", cache="passage_grades", result="hit") == 2
        assert counted(served, "errata_cache_requests_total", cache="passage_grades", result="miss") == 2
        assert counted(served, "errata_model_calls_total") == 1
        await collected(grading(served, *PASSAGES, question="What else?"))
        assert len(model.calls()) == 2
    assert {item.passage_id: item.grade for item in first} == {item.passage_id: item.grade for item in again}
    assert not any(item.usage.saved_calls for item in first) and not any(item.usage.model_calls for item in again)
    [paid] = [call for item in first for call in item.usage.model_calls]
    saved = [call for item in again for call in item.usage.saved_calls]
    assert len(saved) == 2
    for whole, part in zip(spent([paid]), spent(saved), strict=True):
        assert whole - 2 < part <= whole
    for call in saved:
        assert (call.model, call.operation, call.prompt_version) == (paid.model, "grade_passage", paid.prompt_version)
        assert call.attempts == 0 and call.latency.ToNanoseconds() == 0 and not call.error


async def test_only_what_is_not_known_goes_to_the_model() -> None:
    new = passage("new", "Something new.")
    async with ModelServer() as model, judge(model, **CACHED) as served:
        await collected(grading(served, *PASSAGES))
        results = {item.passage_id: item.usage for item in await collected(grading(served, *PASSAGES, new))}
        assert len(model.calls()) == 2 and "Logs are rotated" not in model.calls()[1].request.text
    told = [item for usage in results.values() for item in usage.model_calls]
    assert len(told) == 1 and {key for key, usage in results.items() if usage.saved_calls} == {"p0", "p1"}


async def test_a_claim_that_is_known_is_not_checked_again_in_whatever_answer() -> None:
    async with ModelServer() as model, judge(model, **CACHED) as served:
        first = await answering(served)
        again = await answering(served, question="Tell me about files and logs.")
        assert len(model.calls()) == 1 and again.grade == first.grade
        assert counted(served, "errata_cache_requests_total", cache="claim_verdicts", result="hit") == 2
        moved = await answering(served, f"Cats purr in general at night. {ANSWER}", PASSAGES[0], PASSAGES[1])
        assert (
            len(model.calls()) == 2
            and "Logs are rotated on Mondays at noon.\n<<<end claim" not in model.calls()[1].request.text
        )
    assert first.usage.model_calls and not first.usage.saved_calls and not again.usage.model_calls
    [saved] = again.usage.saved_calls
    for whole, part in zip(spent(first.usage.model_calls), spent([saved]), strict=True):
        assert whole - 2 < part <= whole
    assert [claim.evidence for claim in moved.grade.claims[1:]] == [claim.evidence for claim in first.grade.claims]
    assert len(moved.usage.model_calls) == 1 and len(moved.usage.saved_calls) == 1


async def test_segments_save_the_check_of_the_whole() -> None:
    async with ModelServer() as model, judge(model, **CACHED) as served:
        request = pb2.CheckClaimsRequest(question=QUESTION, segment="Files are kept for 30 days. [1]", passages=PASSAGES)
        await served.stub.CheckClaims(request, timeout=CALL_SECONDS)
        whole = await answering(served)
        assert len(model.calls()) == 2 and "Files are kept for 30 days.\n<<<end claim" not in model.calls()[1].request.text
    assert len(whole.usage.model_calls) == len(whole.usage.saved_calls) == 1


async def test_evidence_names_the_passage_as_it_is_called_now() -> None:
    async with ModelServer() as model, judge(model, **CACHED) as served:
        await answering(served)
        renamed = [passage(f"new-{item.passage_id}", item.text) for item in PASSAGES]
        again = await answering(served, ANSWER, *renamed)
        assert len(model.calls()) == 1
    assert [claim.evidence[0].passage_id for claim in again.grade.claims] == ["new-p0", "new-p1"]


async def test_a_failure_is_not_remembered() -> None:
    async with ModelServer([Rule(Reply(refusal="No."), times=1)]) as model, judge(model, **CACHED) as served:
        assert (await failure_of(answering(served))).reason == "MODEL_REFUSED"
        assert (await answering(served)).grade.claims
        model.rules.replace([Rule(rate_limited(), times=1), Rule(good)])
        [failed, *_] = await collected(grading(served, PASSAGES[0]))
        [graded] = await collected(grading(served, PASSAGES[0]))
    assert failed.WhichOneof("result") == "error" and graded.WhichOneof("result") == "grade"


async def test_equal_calls_in_flight_are_made_once() -> None:
    async with ModelServer(default=with_latency(respond, 0.1)) as model, judge(model, **CACHED) as served:
        replies = await asyncio.gather(*(answering(served) for _ in range(3)))
        assert len(model.calls()) == 1
        results = await asyncio.gather(*(collected(grading(served, *PASSAGES)) for _ in range(3)))
        assert len(model.calls()) == 2
    assert sum(len(reply.usage.model_calls) for reply in replies) == 1
    assert sum(len(reply.usage.saved_calls) for reply in replies) == 2
    usages: list[usage_pb2.Usage] = [item.usage for result in results for item in result]
    assert sum(len(usage.model_calls) for usage in usages) == 1 and sum(len(usage.saved_calls) for usage in usages) == 4


@pytest.mark.parametrize("entries", [0, 1000])
async def test_offline_is_remembered_too_and_saves_no_model_calls(entries: int) -> None:
    async with judge(cache_entries=entries) as served:
        outcomes = []
        for _ in range(2):
            reply = await answering(served)
            results = {item.passage_id: item for item in await collected(grading(served, *PASSAGES))}
            outcomes.append((reply.grade, results["p0"].grade, results["p1"].grade))
            assert not reply.usage.model_calls and not reply.usage.saved_calls
            assert not any(item.usage.saved_calls for item in results.values())
        hits = {name: counted(served, "errata_cache_requests_total", cache=name, result="hit") for name in KINDS}
    assert outcomes[0] == outcomes[1]
    assert set(hits.values()) == ({2.0} if entries else {0.0})


KINDS = ("passage_grades", "claim_verdicts")


async def test_a_hit_needs_no_budget_and_a_miss_does() -> None:
    spending = (("errata-budget-tokens", "1"),)
    async with ModelServer() as model, judge(model, **CACHED) as served:
        request = pb2.GradeAnswerRequest(question=QUESTION, answer=ANSWER, passages=PASSAGES)
        await served.stub.GradeAnswer(request, timeout=CALL_SECONDS)
        again = await served.stub.GradeAnswer(request, timeout=CALL_SECONDS, metadata=spending)
        assert again.usage.saved_calls and len(model.calls()) == 1
        request.answer = "Cats purr in general at night."
        failure = await failure_of(served.stub.GradeAnswer(request, timeout=CALL_SECONDS, metadata=spending))
    assert failure.reason == "BUDGET_EXHAUSTED"
