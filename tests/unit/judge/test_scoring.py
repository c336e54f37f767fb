from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errata_kit.grades import HallucinationRisk, Verdict
from errata_kit.passages import Passage
from services.judge.claims.evidence import check_evidence, with_checked_evidence
from services.judge.claims.scoring import assess, faithfulness_score, refinement_suggestion
from services.judge.claims.verdicts import CheckedClaim, Finding, Quote

VERDICTS = st.lists(st.sampled_from(list(Verdict)), min_size=1, max_size=12)


def claims(verdicts: Sequence[Verdict]) -> list[CheckedClaim]:
    return [CheckedClaim(f"claim number {i} says this much", i * 10, i * 10 + 9, v) for i, v in enumerate(verdicts)]


def test_all_supported_is_one_and_no_claims_are_one() -> None:
    assert faithfulness_score(claims([Verdict.SUPPORTED] * 3)) == 1.0
    assert faithfulness_score([]) == 1.0


@pytest.mark.parametrize("good", [1, 2, 9, 99])
@pytest.mark.parametrize("bad", [Verdict.UNSUPPORTED, Verdict.CONTRADICTED])
def test_one_claim_without_support_holds_any_answer_below_the_threshold(good: int, bad: Verdict) -> None:
    assert faithfulness_score(claims([Verdict.SUPPORTED] * good + [bad])) < 0.80


@given(VERDICTS, st.integers(0, 11))
def test_worsening_a_verdict_never_raises_the_score(verdicts: list[Verdict], index: int) -> None:
    worse = list(verdicts)
    worse[index % len(worse)] = Verdict.UNSUPPORTED
    assert 0 <= faithfulness_score(claims(worse)) <= faithfulness_score(claims(verdicts)) <= 1


@given(VERDICTS)
def test_a_failing_answer_names_what_has_to_change(verdicts: list[Verdict]) -> None:
    assessment = assess(claims(verdicts), ())
    if assessment.faithfulness_score < 0.80:
        assert assessment.problematic_claims
        assert assessment.refinement_suggestion
        assert not assessment.releasable()
        assert assessment.hallucination_risk is not HallucinationRisk.LOW


def test_a_finding_blocks_the_release_whatever_the_score() -> None:
    finding = Finding("flag", "--fast", 0, 6, "No passage has the flag --fast.")
    assessment = assess(claims([Verdict.SUPPORTED]), (finding,))
    assert assessment.faithfulness_score == 1.0
    assert not assessment.releasable()
    assert assessment.hallucination_risk is HallucinationRisk.MEDIUM


def test_the_suggestion_for_a_contradiction_quotes_the_passage() -> None:
    claim = CheckedClaim("The port is 80.", 0, 15, Verdict.CONTRADICTED, evidence=(Quote("p", "The port is 8080."),))
    assert '"The port is 8080."' in refinement_suggestion([claim], ())


PASSAGE = Passage("p", "The  default “timeout” is\n30 seconds. It's air - to - air .")


@pytest.mark.parametrize("quote", ['the default "timeout" is 30 seconds', '"It’s air-to-air."', "30 SECONDS"])
def test_a_quote_is_found_whatever_its_typography(quote: str) -> None:
    found = check_evidence(quote, PASSAGE)
    assert found is not None
    assert found in PASSAGE.text


@pytest.mark.parametrize("quote", ["The timeout is 30 seconds", "", "  ", "default ... seconds", "econds"])
def test_a_quote_that_is_not_in_the_passage_is_none(quote: str) -> None:
    assert check_evidence(quote, PASSAGE) is None


def test_supported_without_valid_evidence_becomes_unsupported() -> None:
    claim = CheckedClaim("x", 0, 1, Verdict.SUPPORTED, evidence=(Quote("p", "made up words"), Quote("q", "30 seconds")))
    (checked,) = with_checked_evidence([claim], {"p": PASSAGE})
    assert checked.verdict is Verdict.UNSUPPORTED
    assert checked.evidence == ()


def test_valid_evidence_is_kept_as_the_passage_writes_it() -> None:
    claim = CheckedClaim("x", 0, 1, Verdict.SUPPORTED, evidence=(Quote("p", "Default timeout"), Quote("p", "30 Seconds")))
    (checked,) = with_checked_evidence([claim], {"p": PASSAGE})
    assert checked.verdict is Verdict.SUPPORTED
    assert [item.quote for item in checked.evidence] == ["30 seconds"]
