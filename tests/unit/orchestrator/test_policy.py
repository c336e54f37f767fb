"""Each decision of the answer workflow, by itself."""

from dataclasses import replace

import pytest

from errata_kit.grades import AnswerGrade, Claim, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Answer, Passage, Span
from services.orchestrator.runs.events import Outcome
from services.orchestrator.workflows.answer import policy
from services.orchestrator.workflows.answer.state import (
    AnswerRequest,
    AnswerSettings,
    AnswerState,
    GradedPassage,
    SkippableStep,
    Took,
)
from services.orchestrator.workflows.faithfulness import failing_claims, failures, kept_claims, passes

LIMITS = AnswerSettings()
THRESHOLD = LIMITS.faithfulness_threshold
FINDING = GuardFinding(FindingKind.NUMBER, "7", Span(0, 1), "No passage has 7.", "c1")


def graded(name: str, score: float, relevant: bool = True, retrieval: int = 1) -> GradedPassage:
    return GradedPassage(Passage(name, "text"), PassageGrade(score, relevant, ""), retrieval)


def claim(number: int, verdict: Verdict, support: float) -> Claim:
    return Claim(f"c{number}", "claim", Span(0, 1), verdict, support)


def grade(*claims: Claim, score: float = 1.0, findings: tuple[GuardFinding, ...] = ()) -> AnswerGrade:
    bad = {Verdict.UNSUPPORTED, Verdict.CONTRADICTED}
    problematic = tuple(item.claim_id for item in claims if item.verdict in bad)
    return AnswerGrade(claims, score, HallucinationRisk.LOW, problematic, findings)


def state(*passages: GradedPassage, queries: int = 1, **more: object) -> AnswerState:
    limits = more.pop("limits", LIMITS)
    assert isinstance(limits, AnswerSettings)
    request = AnswerRequest("q", "c", limits)
    start = AnswerState(request, "q", queries=tuple(f"q{number}" for number in range(queries)), graded=passages)
    return replace(start, **more)  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(("score", "relevant", "used"), [(0.75, True, True), (0.7499, True, False), (1.0, False, False)])
def test_a_passage_is_used_by_score_and_by_yes(score: float, relevant: bool, used: bool) -> None:
    assert policy.is_used(graded("p", score, relevant), LIMITS) is used


def test_used_passages_come_best_first_from_every_retrieval_and_within_the_bound() -> None:
    found = [graded("b", 0.8, retrieval=2), graded("a", 0.9, retrieval=2), graded("c", 0.8), graded("d", 0.2)]
    assert [item.passage.passage_id for item in policy.used_passages(state(*found))] == ["a", "c", "b"]
    many = state(*(graded(f"p{number}", 0.9) for number in range(150)))
    assert len(policy.used_passages(many)) == policy.MOST_USED


def test_after_grading_retrievals_are_used_up_before_it_goes_on_with_less() -> None:
    two = replace(LIMITS, min_relevant=2)
    assert policy.after_grading(state(graded("a", 0.9))) == "generate"
    assert policy.after_grading(state(graded("a", 0.9), limits=two)) == "broaden_query"
    assert policy.after_grading(state(graded("a", 0.9), queries=3, limits=two)) == "generate"
    assert policy.after_grading(state(graded("a", 0.1), queries=2)) == "broaden_query"
    assert policy.after_grading(state(graded("a", 0.1), queries=3)) == "finish"


def test_when_no_query_is_left_it_goes_on_with_what_passed() -> None:
    assert policy.after_broadening(state()) == "retrieve"
    assert policy.after_broadening(state(exhausted=True)) == "finish"
    assert policy.after_broadening(state(graded("a", 0.9), exhausted=True)) == "generate"


def test_an_answer_is_released_only_without_contradiction_finding_and_low_score() -> None:
    good = claim(1, Verdict.SUPPORTED, 1.0)
    assert failures(grade(good), THRESHOLD) == ()
    assert failures(grade(good, score=0.80), THRESHOLD) == ()
    assert failures(grade(good, score=0.79), THRESHOLD)
    assert failures(grade(good, findings=(FINDING,)), THRESHOLD)
    assert failures(grade(good, claim(2, Verdict.CONTRADICTED, 0.0)), THRESHOLD)


def test_an_answer_that_says_nothing_is_not_released() -> None:
    assert failures(grade(), THRESHOLD) == ("no claim is supported",)
    assert failures(grade(claim(1, Verdict.UNVERIFIABLE, 0.5)), THRESHOLD)


def test_failing_claims_are_the_problematic_ones_else_the_weak_ones() -> None:
    bad, weak, good = claim(1, Verdict.UNSUPPORTED, 0.1), claim(2, Verdict.SUPPORTED, 0.5), claim(3, Verdict.SUPPORTED, 1.0)
    assert failing_claims(grade(bad, weak, good, score=0.5), THRESHOLD) == (bad,)
    assert failing_claims(grade(weak, good, score=0.7), THRESHOLD) == (weak,)


def test_refinement_ends_at_its_limit_and_where_nothing_can_be_corrected() -> None:
    bad = grade(claim(1, Verdict.UNSUPPORTED, 0.1), score=0.1)
    assert policy.after_grading_answer(state(grade=bad)) == "refine_answer"
    assert policy.after_grading_answer(state(grade=bad, refinements=1)) == "finish"
    assert policy.after_grading_answer(state(grade=bad, limits=replace(LIMITS, max_refinements=0))) == "finish"
    assert policy.after_grading_answer(state(grade=grade())) == "finish"


def test_what_fails_and_what_is_kept_are_all_claims() -> None:
    bad, weak, good = claim(1, Verdict.UNSUPPORTED, 0.1), claim(2, Verdict.SUPPORTED, 0.5), claim(3, Verdict.UNVERIFIABLE, 0.0)
    assert kept_claims(grade(bad, weak, good, score=0.5), THRESHOLD) == (weak, good)
    assert kept_claims(grade(weak, good, score=0.7), THRESHOLD) == (good,)
    assert kept_claims(grade(good), THRESHOLD) == (good,)


def test_a_claim_may_stay_by_its_verdict_and_without_a_finding_in_it() -> None:
    stays = {Verdict.SUPPORTED: True, Verdict.UNVERIFIABLE: True, Verdict.UNSUPPORTED: False, Verdict.CONTRADICTED: False}
    assert {verdict: passes(claim(2, verdict, 1.0), (FINDING,)) for verdict in Verdict} == stays
    assert not any(passes(claim(1, verdict, 1.0), (FINDING,)) for verdict in Verdict)
    assert passes(claim(1, Verdict.SUPPORTED, 1.0), (replace(FINDING, claim_id=""),))


@pytest.mark.parametrize(("left", "late"), [(None, False), (0.0, True), (1.99, True), (2.0, False), (60.0, False)])
def test_a_step_comes_too_late_when_less_is_left_than_it_takes(left: float | None, late: bool) -> None:
    assert policy.too_late(2.0, left) is late


def test_what_took_no_time_never_comes_too_late() -> None:
    # A replica that has just taken a run up does not know how long its steps take.
    retrieval = policy.expected_seconds(SkippableStep.RETRIEVAL, state())
    refinement = policy.expected_seconds(SkippableStep.REFINEMENT, state())
    assert not policy.too_late(retrieval, 0.0) and not policy.too_late(refinement, 0.0)


def test_a_retrieval_is_worth_its_time_when_an_answer_can_still_be_made_of_it() -> None:
    took = Took(retrieval=1.5, generation=70.0, grading=70.0)
    assert policy.expected_seconds(SkippableStep.RETRIEVAL, state(took=took)) == 3.0


@pytest.mark.parametrize(("failing", "of", "share"), [(1, 8, 0.25), (4, 8, 0.5), (8, 8, 1.0), (0, 0, 0.25)])
def test_a_refinement_takes_the_part_of_the_time_that_failed(failing: int, of: int, share: float) -> None:
    claims = [
        claim(n, Verdict.UNSUPPORTED if n <= failing else Verdict.SUPPORTED, float(n > failing)) for n in range(1, of + 1)
    ]
    known = state(grade=grade(*claims, score=0.1), took=Took(generation=3.0, grading=1.0))
    assert policy.expected_seconds(SkippableStep.REFINEMENT, known) == pytest.approx(4.0 * share)
    supplied = replace(known, took=Took(grading=1.0))
    assert policy.expected_seconds(SkippableStep.REFINEMENT, supplied) == pytest.approx(2.0 * share)


def test_what_was_skipped_is_not_done_and_holds_back_nothing_else() -> None:
    bad = grade(claim(1, Verdict.UNSUPPORTED, 0.1), score=0.1)
    two = replace(LIMITS, min_relevant=2)
    retrieval, refinement = SkippableStep.RETRIEVAL, SkippableStep.REFINEMENT
    assert policy.after_grading(state(graded("a", 0.1), skipped=retrieval)) == "finish"
    assert policy.after_grading(state(graded("a", 0.9), skipped=retrieval, limits=two)) == "generate"
    assert policy.after_grading_answer(state(grade=bad, skipped=retrieval)) == "refine_answer"
    assert policy.after_grading_answer(state(grade=bad, skipped=refinement)) == "finish"


def test_the_outcome_fits_the_path() -> None:
    good, bad = grade(claim(1, Verdict.SUPPORTED, 1.0)), grade(claim(1, Verdict.UNSUPPORTED, 0.1), score=0.1)
    answer, refusal = Answer("text"), Answer("no", refusal=True)
    assert policy.outcome(state()) is Outcome.REFUSED_NO_EVIDENCE
    assert policy.outcome(state(answer=refusal)) is Outcome.REFUSED_NO_EVIDENCE
    assert policy.outcome(state(answer=answer, grade=good)) is Outcome.ANSWERED
    assert policy.outcome(state(answer=answer, grade=good, refinements=1)) is Outcome.ANSWERED_AFTER_REFINEMENT
    assert policy.outcome(state(answer=answer, grade=bad, refinements=1)) is Outcome.REFUSED_UNFAITHFUL
    assert policy.outcome(state(answer=refusal, grade=bad, refinements=1)) is Outcome.REFUSED_UNFAITHFUL
