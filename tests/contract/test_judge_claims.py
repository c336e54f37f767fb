"""CheckClaims and known claims over gRPC: what was checked in segments is not asked again, and comes to the same grade."""

from __future__ import annotations

import re
from typing import Any

import grpc
import pytest
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as pb2
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.test_judge_service import ENDPOINT_FAULTS, REASONS, limits, verdict, verdicts
from tests.harness.model_responder import material_of
from tests.harness.model_rules import ChatRequest, Rule
from tests.harness.model_server import ModelServer
from tests.harness.services import CALL_SECONDS, Served, failure_of, judge, passage

QUESTION = "How long are files kept?"
PASSAGES = (
    passage("files", "Files are kept for 30 days. After that they are deleted by a nightly job."),
    passage("logs", "Logs are rotated every Monday. Größe zählt nicht."),
    passage("users", "Administrators can enable audit logs in the settings page."),
)
SEGMENTS = (
    "Files are kept for 30 days. [1]",
    "Größe zählt nicht. [2] Set `retention.maxAge` for penguins with lasers. [1]",
    "Penguins can enable audit logs in the settings page. [3]",
)
UNCACHED: dict[str, Any] = {"cache_entries": 0}


async def check(served: Served, segment: str, passages: Any = PASSAGES) -> pb2.CheckClaimsResponse:
    request = pb2.CheckClaimsRequest(question=QUESTION, segment=segment, passages=passages)
    return await served.stub.CheckClaims(request, timeout=CALL_SECONDS)  # type: ignore[no-any-return]


async def grade(served: Served, answer: str, known: Any = (), passages: Any = PASSAGES) -> pb2.GradeAnswerResponse:
    request = pb2.GradeAnswerRequest(question=QUESTION, answer=answer, passages=passages, known_claims=known)
    return await served.stub.GradeAnswer(request, timeout=CALL_SECONDS)  # type: ignore[no-any-return]


def counted(served: Served, name: str, **labels: str) -> float:
    page = generate_latest(served.service.metrics.registry).decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples if sample.name == name]
    return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())


def shown(model: ModelServer) -> list[list[str]]:
    """The numbers of the passages in each prompt."""
    requests = [item.request for item in model.calls()]
    return [[label for label, _ in material_of(item).passages] for item in requests if isinstance(item, ChatRequest)]


@pytest.mark.parametrize("with_model", [False, True], ids=["offline", "openai"])
async def test_segments_that_were_checked_are_not_asked_again_and_come_to_the_same_grade(with_model: bool) -> None:
    answer = " ".join(SEGMENTS)
    async with ModelServer() as model, judge(model if with_model else None, **UNCACHED) as served:
        replies = [await check(served, segment) for segment in SEGMENTS]
        whole = await grade(served, answer)
        asked = len(model.calls())
        known = [claim for reply in replies for claim in reply.claims]
        again = await grade(served, answer, known)
        assert len(model.calls()) == asked == (4 if with_model else 0)
        assert not again.usage.model_calls and not again.usage.saved_calls
        assert again.grade == whole.grade
        partly = await grade(served, answer, known[1:])
        assert partly.grade == whole.grade and len(partly.usage.model_calls) == (1 if with_model else 0)
    assert len(whole.grade.claims) == 4 and len(whole.grade.findings) == 1
    assert whole.grade.claims[0].verdict == grading_pb2.VERDICT_SUPPORTED
    for segment, reply in zip(SEGMENTS, replies, strict=True):
        assert [claim.claim_id for claim in reply.claims] == [f"c{n}" for n in range(1, len(reply.claims) + 1)]
        for claim in reply.claims:
            assert re.sub(r" \[\d\]", "", segment.encode()[claim.span.start : claim.span.end].decode()) == claim.text
        assert len(reply.usage.model_calls) == (1 if with_model else 0)
    [finding] = replies[1].findings
    assert SEGMENTS[1].encode()[finding.span.start : finding.span.end].decode() == finding.text
    assert finding.claim_id == "c2" and replies[1].claims[1].verdict == grading_pb2.VERDICT_UNSUPPORTED


async def test_claims_and_findings_are_counted_once() -> None:
    async with judge() as served:
        reply = await check(served, SEGMENTS[1])
        assert counted(served, "errata_claims_total") == 2 and counted(served, "errata_guard_findings_total") == 1
        await grade(served, f"{SEGMENTS[1]} {SEGMENTS[0]}", reply.claims)
        assert counted(served, "errata_claims_total") == 3 and counted(served, "errata_guard_findings_total") == 1
        assert counted(served, "errata_faithfulness_score_count") == 1
        assert counted(served, "errata_judgements_total", operation="check_claims") == 2


async def test_a_segment_that_states_nothing_has_no_claims_and_asks_no_model() -> None:
    async with ModelServer() as model, judge(model) as served:
        reply = await check(served, "I don't know.")
        assert model.calls() == []
    assert not reply.claims and not reply.findings and not reply.usage.model_calls


@pytest.mark.parametrize("name", ["http_401", "refusal", "finish_length", "close_mid_body"])
async def test_a_segment_whose_check_fails_has_no_verdict(name: str) -> None:
    async with ModelServer([Rule(ENDPOINT_FAULTS[name])]) as model, judge(model, **limits(name)) as served:
        request = pb2.CheckClaimsRequest(question=QUESTION, segment=SEGMENTS[0], passages=PASSAGES)
        failure = await failure_of(served.stub.CheckClaims(request, timeout=CALL_SECONDS))
    assert failure.reason == REASONS[name].value and failure.received == ()


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb2.CheckClaimsRequest(question=QUESTION, segment=" ", passages=PASSAGES), "segment"),
        (pb2.CheckClaimsRequest(question=QUESTION, segment="x" * (64 * 1024 + 1), passages=PASSAGES), "segment"),
        (pb2.CheckClaimsRequest(question=" ", segment="A.", passages=PASSAGES), "question"),
        (pb2.CheckClaimsRequest(question=QUESTION, segment="A."), "passages"),
        (pb2.CheckClaimsRequest(question=QUESTION, segment="A.", passages=[PASSAGES[0]] * 2), "passages"),
        (pb2.CheckClaimsRequest(question=QUESTION, segment="* a\n" * 1500, passages=PASSAGES), "segment"),
    ],
    ids=["blank", "long", "no question", "no passages", "equal ids", "too many claims"],
)
async def test_the_bounds_of_a_segment_hold(request_: pb2.CheckClaimsRequest, field: str) -> None:
    async with judge() as served:
        failure = await failure_of(served.stub.CheckClaims(request_, timeout=CALL_SECONDS))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == [field]


def claim(**changes: Any) -> grading_pb2.Claim:
    values = {"claim_id": "c1", "text": "Files are kept.", "verdict": "VERDICT_SUPPORTED", "support": 1.0, **changes}
    return grading_pb2.Claim(**values)


@pytest.mark.parametrize(
    ("known", "field"),
    [
        ([claim(verdict="VERDICT_UNSPECIFIED")], "known_claims[0].verdict"),
        ([claim(), claim(support=1.5)], "known_claims[1].support"),
        ([claim(support=float("nan"))], "known_claims[0].support"),
        ([claim(text="x" * 8193)], "known_claims[0].text"),
        ([claim(evidence=[grading_pb2.Evidence(passage_id="p", quote="x" * 1025)])], "known_claims[0].evidence[0].quote"),
        ([claim(evidence=[grading_pb2.Evidence(passage_id="p", quote="x")] * 101)], "known_claims[0].evidence"),
        ([claim()] * 1001, "known_claims"),
    ],
    ids=["verdict", "support", "nan", "text", "quote", "evidence", "too many"],
)
async def test_the_bounds_of_known_claims_hold(known: list[grading_pb2.Claim], field: str) -> None:
    async with judge() as served:
        request = pb2.GradeAnswerRequest(question=QUESTION, answer="Files are kept.", passages=PASSAGES, known_claims=known)
        failure = await failure_of(served.stub.GradeAnswer(request, timeout=CALL_SECONDS))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT and list(failure.violations) == [field]


async def test_a_thousand_known_claims_are_taken() -> None:
    async with judge() as served:
        reply = await grade(served, "Files are kept for 30 days.", [claim()] * 1000)
    assert reply.grade.claims[0].verdict == grading_pb2.VERDICT_SUPPORTED


# --- which passages a model is shown ----------------------------------------------------------------------------------


async def test_a_model_sees_the_passages_that_the_claims_must_be_held_against_under_their_own_numbers() -> None:
    async with ModelServer() as model, judge(model, **UNCACHED) as served:
        for segment in ("Logs are rotated every Monday.", "Administrators can enable audit settings.", SEGMENTS[0]):
            await check(served, segment)
        assert shown(model) == [["2"], ["3"], ["1"]]
        assert "Logs are rotated every Monday. Größe zählt nicht.\n<<<end passage 2 |" in model.calls()[0].request.text
        model.journal.clear()
        await grade(served, "Files are kept for 30 days. Administrators can enable audit logs in the settings page.")
        assert shown(model) == [["1", "3"]]


async def test_a_cited_passage_is_shown_whatever_its_words() -> None:
    async with ModelServer() as model, judge(model, **UNCACHED) as served:
        await check(served, "Logs are rotated every Monday. [3] [9]")
        await check(served, "Penguins migrate across frozen oceans. [2]")
        await check(served, "Penguins migrate across frozen oceans [1-2].")
        await check(served, "Penguins migrate across frozen oceans.")
        assert shown(model) == [["2", "3"], ["2"], ["1", "2"], ["1", "2", "3"]]


@pytest.mark.parametrize("number", [1, 2, 3])
async def test_evidence_is_of_the_passage_with_that_number(number: int) -> None:
    reply = verdicts(verdict(1, "SUPPORTED", (number, "rotated every Monday")))
    same = (*PASSAGES[:2], passage("third", "The fans are rotated every Monday."))
    async with ModelServer([Rule(reply)]) as model, judge(model) as served:
        checked = await check(served, "Logs are rotated every Monday nicht.", same)
        assert shown(model) == [["2"]]
    [result] = checked.claims
    assert result.verdict == (grading_pb2.VERDICT_SUPPORTED if number == 2 else grading_pb2.VERDICT_UNSUPPORTED)
    assert [item.passage_id for item in result.evidence] == (["logs"] if number == 2 else [])


async def test_the_segments_of_an_answer_begin_their_prompts_with_the_same_words() -> None:
    async with ModelServer() as model, judge(model, **UNCACHED) as served:
        for segment in ("Files are kept for 30 days.", "After that they are deleted by a nightly job.", "Files are kept."):
            await check(served, segment)
        await check(served, "Files are kept.", PASSAGES[:1])
        *texts, other = (item.request.text for item in model.calls())
    heads = {re.split(r"<<<claim 1 \|", text)[0] for text in texts}
    assert len(heads) == 1 and "<<<end passage 1 |" in next(iter(heads))
    nonces = [re.search(r"<<<question \| ([0-9a-f]{16})>>>", text) for text in (texts[0], other)]
    assert all(nonces) and len({found[1] for found in nonces if found}) == 2


async def test_what_precedes_a_segment_is_shown_where_a_claim_points_back() -> None:
    async with ModelServer() as model, judge(model, **UNCACHED) as served:
        for segment in ("They are deleted by a nightly job. [1]", "Files are deleted by a nightly job. [1]"):
            request = pb2.CheckClaimsRequest(
                question=QUESTION, segment=segment, passages=PASSAGES, preceding="Nothing else. Files are kept for 30 days. [1]"
            )
            await served.stub.CheckClaims(request, timeout=CALL_SECONDS)
        prompts = [call.request.text for call in model.calls()]
    before = [re.findall(r"<<<context of claim 1 \| \w+>>>\n(.*)\n<<<end", prompt) for prompt in prompts]
    assert before == [["Files are kept for 30 days."], []]
    assert all("Nothing else" not in prompt for prompt in prompts)


async def test_a_verdict_on_a_claim_that_points_back_is_remembered_with_what_it_points_to() -> None:
    async with ModelServer() as model, judge(model, cache_entries=100) as served:
        for preceding in ("Files are kept.", "Files are kept.", "Logs are rotated."):
            segment = "They are deleted by a nightly job. [1]"
            request = pb2.CheckClaimsRequest(question=QUESTION, segment=segment, passages=PASSAGES, preceding=preceding)
            await served.stub.CheckClaims(request, timeout=CALL_SECONDS)
        assert len(model.calls()) == 2
