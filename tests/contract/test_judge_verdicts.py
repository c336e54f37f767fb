"""GradeAnswer over gRPC: what is made of a model's verdicts."""

from __future__ import annotations

from typing import Any

import pytest
from errata.grading.v1 import grading_pb2

from tests.contract.test_judge_service import QUOTED, WANTED, answer_call, graded, verdict, verdicts
from tests.harness.model_rules import Reply, Rule
from tests.harness.model_server import ModelServer
from tests.harness.services import judge, passage


async def one_claim(reply: Reply, answer: str, *passages: Any) -> grading_pb2.AnswerGrade:
    async with ModelServer([Rule(reply)]) as model, judge(model) as served:
        return await graded(served, answer, *passages)


async def test_a_supported_claim_has_evidence_that_stands_in_the_passage() -> None:
    grade = await one_claim(verdicts(QUOTED), "Files are kept for 30 days. [1]")
    [claim] = grade.claims
    assert claim.verdict == grading_pb2.VERDICT_SUPPORTED and claim.support == 1
    [evidence] = claim.evidence
    assert (evidence.passage_id, evidence.quote) == ("wanted", "kept for 30 days")
    assert WANTED.text.encode()[evidence.span.start : evidence.span.end].decode() == evidence.quote
    assert grade.faithfulness_score == 1 and grade.hallucination_risk == grading_pb2.HALLUCINATION_RISK_LOW
    assert not grade.problematic_claim_ids and not grade.findings and grade.model == "gpt-4o-mini"


@pytest.mark.parametrize(
    "quotes",
    [
        (),
        ((1, "kept for 90 days"),),
        ((1, ""),),
        ((0, "kept for 30 days"),),
        ((2, "kept for 30 days"),),
        ((-1, "kept for 30 days"),),
    ],
    ids=["none", "invented", "empty", "passage-0", "passage-2", "passage-negative"],
)
async def test_a_quote_that_is_in_no_passage_supports_nothing(quotes: tuple[tuple[int, str], ...]) -> None:
    grade = await one_claim(verdicts(verdict(1, "SUPPORTED", *quotes)), "Files are kept for 30 days. [1]")
    [claim] = grade.claims
    assert claim.verdict == grading_pb2.VERDICT_UNSUPPORTED and claim.support == 0 and not claim.evidence
    assert list(grade.problematic_claim_ids) == ["c1"] and grade.faithfulness_score < 0.8
    assert grade.refinement_suggestion


async def test_a_quote_from_another_passage_than_the_one_it_names_supports_nothing() -> None:
    other = passage("other", "Files are compressed.")
    grade = await one_claim(
        verdicts(verdict(1, "SUPPORTED", (2, "kept for 30 days"))), "Files are kept for 30 days.", WANTED, other
    )
    assert grade.claims[0].verdict == grading_pb2.VERDICT_UNSUPPORTED


async def test_the_guard_lowers_a_claim_with_an_invented_option_and_names_it() -> None:
    answer = "Files are kept for 30 days when `retention.maxAge` is set. [1]"
    grade = await one_claim(verdicts(QUOTED), answer)
    [claim] = grade.claims
    assert claim.verdict == grading_pb2.VERDICT_UNSUPPORTED and claim.support == 0
    [finding] = grade.findings
    assert "retention.maxAge" in finding.text and finding.claim_id == "c1"
    assert answer.encode()[finding.span.start : finding.span.end].decode() == finding.text
    assert grade.hallucination_risk == grading_pb2.HALLUCINATION_RISK_HIGH
    assert list(grade.problematic_claim_ids) == ["c1"]


@pytest.mark.parametrize("name", ["UNSUPPORTED", "CONTRADICTED"])
async def test_the_guard_and_the_evidence_never_raise_a_verdict(name: str) -> None:
    grade = await one_claim(verdicts(verdict(1, name, (1, "kept for 30 days"))), "Files are kept for 30 days. [1]")
    assert grade.claims[0].verdict == grading_pb2.Verdict.Value(f"VERDICT_{name}") and grade.claims[0].support == 0


async def test_spans_are_bytes_and_claims_are_in_the_order_of_the_answer() -> None:
    answer = "Größe zählt: Dateien bleiben 30 Tage. [1] Die Prüfung läuft täglich. [1]"
    source = passage("p", "Dateien bleiben 30 Tage. Die Prüfung läuft täglich. Größe zählt.")
    reply = verdicts(verdict(2, "SUPPORTED", (1, "Die Prüfung läuft täglich")), verdict(1, "SUPPORTED", (1, "bleiben 30 Tage")))
    grade = await one_claim(reply, answer, source)
    shown = [answer.encode()[claim.span.start : claim.span.end].decode() for claim in grade.claims]
    assert [claim.claim_id for claim in grade.claims] == ["c1", "c2"]
    assert shown[0].startswith("Größe zählt") and shown[1].startswith("Die Prüfung")
    assert [claim.evidence[0].quote for claim in grade.claims] == ["bleiben 30 Tage", "Die Prüfung läuft täglich"]


async def test_an_answer_that_states_nothing_needs_no_model() -> None:
    async with ModelServer() as model, judge(model) as served:
        reply = await answer_call(served, "I don't know.")
        assert model.calls() == [] and not reply.usage.model_calls
    assert not reply.grade.claims and reply.grade.faithfulness_score == 1


async def test_usage_says_what_the_check_cost() -> None:
    async with ModelServer([Rule(verdicts(QUOTED))]) as model, judge(model) as served:
        reply = await answer_call(served, "Files are kept for 30 days. [1]")
    [call] = reply.usage.model_calls
    assert (call.model, call.operation, call.attempts) == ("gpt-4o-mini", "check_claims", 1)
    assert call.input_tokens > 0 and call.output_tokens > 0 and len(call.prompt_version) == 12 and not call.estimated
