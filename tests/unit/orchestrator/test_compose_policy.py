"""Each decision of the compose workflow, by itself."""

from dataclasses import replace

import pytest

from errata_kit.drafts import DEFAULT_CRITERIA, CriterionScore, DraftIssue, DraftReview, IssueSeverity, overall
from errata_kit.grades import AnswerGrade, Claim, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Draft, Passage, Span
from services.orchestrator.runs.events import ApprovalDecision, Outcome
from services.orchestrator.workflows.compose import policy
from services.orchestrator.workflows.compose.graph import build_graph
from services.orchestrator.workflows.compose.state import ComposeRequest, ComposeSettings, ComposeState, ReviewedDraft

LIMITS = ComposeSettings()
PASSAGE = Passage("p1", "text")
FINDING = GuardFinding(FindingKind.NUMBER, "7", Span(0, 1), "No passage has 7.", "c1")


def review(*given: float) -> DraftReview:
    """A review by the default criteria; what is not given scores 1."""
    padded = (*given, *[1.0] * (len(DEFAULT_CRITERIA) - len(given)))
    scores = tuple(
        CriterionScore(item.name, score, item.threshold, "", score)
        for item, score in zip(DEFAULT_CRITERIA, padded, strict=True)
    )
    return DraftReview(scores, overall(scores), LIMITS.overall_threshold)


def grade(verdict: Verdict = Verdict.SUPPORTED, score: float = 1.0, findings: tuple[GuardFinding, ...] = ()) -> AnswerGrade:
    claim = Claim("c1", "claim", Span(0, 1), verdict, 1.0)
    return AnswerGrade((claim,), score, HallucinationRisk.LOW, (), findings)


def reviewed(revision: int, *scores: float, checked: AnswerGrade | None = None) -> ReviewedDraft:
    found = review(*scores)
    return ReviewedDraft(revision, Draft(f"draft {revision}"), found, checked, policy.shortfalls(found, checked, LIMITS))


def state(*drafts: ReviewedDraft, **more: object) -> ComposeState:
    request = ComposeRequest("t", settings=more.pop("limits", LIMITS), require_approval=bool(more.pop("asks", False)))  # type: ignore[arg-type]
    return replace(ComposeState(request, reviewed=drafts), **more)  # type: ignore[arg-type]  # a test's shorthand


@pytest.mark.parametrize(("score", "relevant", "used"), [(0.5, True, True), (0.4999, True, False), (1.0, False, False)])
def test_a_passage_is_used_by_score_and_by_yes(score: float, relevant: bool, used: bool) -> None:
    assert policy.passes(PassageGrade(score, relevant, ""), LIMITS) is used


def test_only_a_collection_is_searched_and_without_a_passage_nothing_is_written() -> None:
    assert policy.at_start(state()) == "write"
    assert policy.at_start(ComposeState(ComposeRequest("t", "notes"))) == "retrieve"
    assert policy.after_grading(state()) == "finish"
    assert policy.after_grading(state(passages=(PASSAGE,))) == "write"


def test_a_threshold_is_reached_at_its_value() -> None:
    assert policy.shortfalls(review(0.80, 0.90, 0.80, 0.90), None, LIMITS) == ()
    missed = policy.shortfalls(review(0.79, 0.90, 0.80, 0.80), None, LIMITS)
    assert [item.criterion for item in missed] == ["clarity", "overall"]
    assert [round(item.missing, 6) for item in missed] == [0.01, 0.0275]


@pytest.mark.parametrize(
    "checked", [grade(score=0.79), grade(Verdict.CONTRADICTED), grade(Verdict.UNVERIFIABLE), grade(findings=(FINDING,))]
)
def test_faithfulness_keeps_a_draft_back_for_every_reason_of_the_answer_workflow(checked: AnswerGrade) -> None:
    [missed] = policy.shortfalls(review(), checked, LIMITS)
    assert (missed.criterion, missed.threshold) == ("faithfulness", 0.80)
    assert policy.shortfalls(review(), grade(score=0.80), LIMITS) == ()


def test_after_a_review_it_is_done_or_revised_or_at_the_limit() -> None:
    good, weak = reviewed(0), reviewed(0, 0.1)
    assert policy.after_review(state(good)) == "finish"
    assert policy.after_review(state(good, asks=True)) == "approve"
    assert policy.after_review(state(weak)) == policy.after_review(state(weak, asks=True)) == "revise"
    none_left = replace(LIMITS, max_revisions=0)
    assert policy.after_review(state(weak, limits=none_left)) == "finish"
    assert policy.after_review(state(weak, weak, limits=replace(LIMITS, max_revisions=1))) == "finish"
    # The latest review decides, not the best one: that one would have ended the run.
    changed = replace(weak, draft=Draft("changed"))
    assert policy.after_review(state(good, changed)) == "revise"
    # A revision that changes nothing would be made again and again.
    assert policy.after_review(state(weak, weak)) == "finish"


def test_before_a_revision_what_is_missing_is_searched_once() -> None:
    issue = DraftIssue("clarity", IssueSeverity.MAJOR, "Nothing is said about leases.")
    weak = reviewed(0, 0.1)
    weak = replace(weak, review=replace(weak.review, issues=(issue,)))
    drawn = state(weak)
    about = replace(drawn, request=replace(drawn.request, collection="notes"), searched=("the task",))
    assert policy.after_review(about) == "retrieve" and policy.wanted(about) == issue.description
    assert policy.after_review(replace(about, searched=("the task", issue.description))) == "revise"
    assert policy.after_grading(about) == "revise"
    wish = replace(about, decision=ApprovalDecision.REVISE.value, feedback="Say more about fences.")
    assert policy.after_approval(wish) == "retrieve" and policy.wanted(wish) == "Say more about fences."


def test_a_persons_wish_counts_against_the_limit() -> None:
    wish = ApprovalDecision.REVISE.value
    assert policy.after_approval(state(reviewed(0), decision=wish)) == "revise"
    assert policy.after_approval(state(reviewed(0), decision=wish, limits=replace(LIMITS, max_revisions=0))) == "finish"
    for other in (ApprovalDecision.APPROVE, ApprovalDecision.REJECT):
        assert policy.after_approval(state(reviewed(0), decision=other.value)) == "finish"


def test_the_best_draft_passes_then_is_faithful_then_scores_and_of_equals_is_the_first() -> None:
    weak, better, same = reviewed(0, 0.1), reviewed(1, 0.5), reviewed(2, 0.5)
    assert policy.best((weak, better, same)).revision == 1
    brilliant = reviewed(1, checked=grade(score=0.1))
    assert policy.best((reviewed(0, 0.1, checked=grade()), brilliant)).revision == 0
    # It reaches everything, with a lower mean than one that misses a threshold.
    passing, uneven = reviewed(0, 0.8, 0.9, 0.85, 0.85), reviewed(1, 1.0, 0.89, 1.0, 1.0)
    assert passing.review.overall_score < uneven.review.overall_score and policy.best((passing, uneven)).revision == 0


def test_what_a_person_sent_back_is_not_the_best_again() -> None:
    assert policy.best((reviewed(0), reviewed(1, 0.2), reviewed(2, 0.1)), since=1).revision == 1


def test_a_regression_is_a_threshold_that_had_been_reached() -> None:
    before = reviewed(0, 0.8, 0.5, 1.0, 0.9)
    [lost] = policy.regressions(before, review(0.7, 0.1, 0.85, 0.95))
    assert (lost.criterion, lost.previous_score, lost.score, lost.threshold) == ("clarity", 0.8, 0.7, 0.8)


def test_the_outcome_fits_the_path() -> None:
    good, weak = reviewed(0), reviewed(0, 0.1)
    assert policy.outcome(state()) is Outcome.REFUSED_NO_EVIDENCE
    assert policy.outcome(state(good)) is Outcome.APPROVED
    assert policy.outcome(state(weak)) is Outcome.MAX_REVISIONS_REACHED
    assert policy.outcome(state(good, decision="APPROVE")) is Outcome.APPROVED
    assert policy.outcome(state(good, decision="REJECT")) is Outcome.REJECTED
    # Nobody approved: a person wanted more than the limit allows.
    assert policy.outcome(state(good, decision="REVISE")) is Outcome.MAX_REVISIONS_REACHED
    assert policy.outcome(state(weak, reviewed(1, 0.2))) is Outcome.MAX_REVISIONS_REACHED


@pytest.mark.parametrize("most", [0, 1, 10])
def test_the_bound_on_steps_has_room_for_the_longest_run(most: int) -> None:
    nodes = set(build_graph().get_graph().nodes) - {"__start__", "__end__"}
    longest = ["retrieve", "grade_passages", "write", "review"] + ["approve", "revise", "review"] * most + ["approve", "finish"]
    assert set(longest) <= nodes
    assert policy.recursion_limit(replace(LIMITS, max_revisions=most)) > len(longest)
