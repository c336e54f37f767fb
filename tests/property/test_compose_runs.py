"""Whatever is scored, fails or is decided, a compose run ends within its limits and approves nothing that is too weak."""

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import TypeVar

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata_kit.drafts import Criterion, CriterionScore, DraftIssue, DraftReview, IssueSeverity, Shortfall, overall
from errata_kit.errors import ModelOutputInvalid
from errata_kit.grades import AnswerGrade, Claim, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Citation, Draft, Passage, Span
from services.orchestrator.runs import events
from services.orchestrator.runs.events import ApprovalDecided, ApprovalDecision, ApprovalRequested, Outcome, RunFinished
from services.orchestrator.workflows.compose.graph import ComposeWorkflow
from services.orchestrator.workflows.compose.state import ComposeRequest, ComposeSettings
from services.orchestrator.workflows.ports import (
    BroadenedQuery,
    CheckedSegment,
    DraftToReview,
    DraftToRevise,
    GradedAnswer,
    PassageResult,
    PassageSearch,
    ReviewOfDraft,
    WrittenAnswer,
    WrittenDraft,
)
from tests.harness.replays import Bench, Script, bench, comparable, no_checkpoints, payloads_of

TASK = "Write about the retention setting."
# Few values, so that scores are often equal to each other and to thresholds.
SCORES = st.sampled_from([0.0, 0.4, 0.5, 0.79, 0.8, 0.9, 1.0])


class Services:
    """Retriever, judge and generator by the script of the example that runs."""

    script: Script

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        self.script.searched.append(search.query)
        self.script.asked(search.query)
        numbers = self.script.draw(st.lists(st.integers(1, 6), max_size=min(4, search.top_k), unique=True))
        return tuple(Passage(f"p{number}", f"text {number}") for number in numbers)

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        self.script.asked(question)
        for passage in passages:
            if self.script.failures and self.script.draw(st.integers(0, 5)) == 0:
                yield PassageResult(passage.passage_id, ModelOutputInvalid("drawn"))
                continue
            self.script.graded_ids.append(f"{question}: {passage.passage_id}")
            yield PassageResult(passage.passage_id, PassageGrade(self.script.draw(SCORES), True, "drawn"))

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        raise AssertionError("no part of this workflow")

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        assert not known
        assert passages
        self.script.asked(question)
        verdicts = self.script.draw(st.lists(st.sampled_from(Verdict), max_size=2))
        claims = tuple(Claim(f"c{place}", "claim", Span(0, 1), verdict, 0.5) for place, verdict in enumerate(verdicts))
        problematic = tuple(claim.claim_id for claim in claims if claim.verdict in {Verdict.UNSUPPORTED, Verdict.CONTRADICTED})
        return GradedAnswer(AnswerGrade(claims, self.script.draw(SCORES), HallucinationRisk.MEDIUM, problematic))

    async def review_draft(self, draft: DraftToReview) -> ReviewOfDraft:
        self.script.asked(draft.task)
        scores = tuple(
            CriterionScore(item.name, score, item.threshold, "drawn", score)
            for item in draft.criteria
            for score in [self.script.draw(SCORES)]
        )
        issues = (DraftIssue(scores[0].criterion, IssueSeverity.MAJOR, "drawn"),) if self.script.draw(st.booleans()) else ()
        return ReviewOfDraft(DraftReview(scores, overall(scores), draft.overall_threshold, issues))

    async def write_draft(
        self, task: str, passages: tuple[Passage, ...], criteria: tuple[Criterion, ...]
    ) -> AsyncIterator[str | WrittenDraft]:
        self.script.written += 1
        yield "some "
        self.script.asked(task)
        cited = (Citation(1, passages[0].passage_id, Span(0, 4)),) if passages else ()
        yield WrittenDraft(Draft("some text", cited))

    async def revise_draft(self, draft: DraftToRevise) -> AsyncIterator[str | WrittenDraft]:
        self.script.corrected += 1
        yield "other "
        self.script.asked(draft.task)
        yield WrittenDraft(Draft(f"text {self.script.corrected}"))

    async def broaden_query(self, question: str, current: str, tried: tuple[str, ...]) -> BroadenedQuery:
        raise AssertionError("no part of this workflow")

    def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        raise AssertionError("no part of this workflow")

    def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        raise AssertionError("no part of this workflow")


SERVICES = Services()
P = TypeVar("P")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("runs"), lambda kept: (ComposeWorkflow(SERVICES, SERVICES, SERVICES, kept),)) as started:
        yield started


def requests_drawn() -> st.SearchStrategy[ComposeRequest]:
    limits = st.builds(
        ComposeSettings,
        overall_threshold=st.sampled_from([0.0, 0.5, 0.8]),
        max_revisions=st.integers(0, 4),
        relevance_threshold=st.sampled_from([0.0, 0.5]),
        faithfulness_threshold=st.sampled_from([0.0, 0.5]),
    )
    criterion = st.builds(
        Criterion, name=st.sampled_from(["clarity", "kindness", "x"]), threshold=st.sampled_from([0.0, 0.5, 0.8])
    )
    return st.builds(
        ComposeRequest,
        task=st.just(TASK),
        collection=st.sampled_from(["", "notes"]),
        settings=limits,
        criteria=st.lists(criterion, min_size=1, max_size=3, unique_by=lambda item: item.name).map(tuple),
        draft=st.sampled_from(["", "a draft from elsewhere"]),
        require_approval=st.booleans(),
    )


# Without shrinking: an example is a whole run, and minutes of shrinking would say no more than the trace does.
@settings(max_examples=50, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data(), request=requests_drawn(), failures=st.booleans())
def test_every_run_ends_within_its_limits(shared: Bench, data: st.DataObject, request: ComposeRequest, failures: bool) -> None:
    script = SERVICES.script = Script(data, failures)

    def decide(asked: ApprovalRequested) -> ApprovalDecided:
        return ApprovalDecided(asked.approval, data.draw(st.sampled_from(ApprovalDecision)), "Change it.", "ada")

    stored = shared.run("compose", request, decide)
    payloads, finished = payloads_of(stored)
    # The task, and before a revision what is missing; nothing twice.
    assert script.searched[:1] == ([TASK] if request.collection else [])
    assert len(script.searched) == len(set(script.searched)) <= 1 + request.settings.max_revisions
    assert script.questions <= {TASK, *script.searched}
    assert len(script.graded_ids) == len(set(script.graded_ids))
    assert script.corrected <= request.settings.max_revisions
    assert not (request.draft and script.written)
    check_reviews(payloads, request)
    check_approvals(payloads, request)
    check_end(finished, payloads, script)
    if finished.error is None:
        # Whoever takes the run up at its end finds every step recorded, and comes to the same result.
        script.closed = True
        workflow = ComposeWorkflow(SERVICES, SERVICES, SERVICES, no_checkpoints())
        assert comparable(shared.replay(workflow, request, stored[:-1])) == comparable(finished)


def of(payloads: Sequence[events.Payload], kind: type[P]) -> list[P]:
    return [item for item in payloads if isinstance(item, kind)]


def missed(reviewed: events.DraftReviewed, request: ComposeRequest) -> dict[str, float]:
    """What a draft misses, worked out anew."""
    found = {item.criterion: item.threshold - item.score for item in reviewed.review.scores if item.score < item.threshold}
    mean = reviewed.review.overall_score
    if mean < request.settings.overall_threshold:
        found["overall"] = request.settings.overall_threshold - mean
    grade = reviewed.faithfulness
    if grade is not None:
        verdicts = {claim.verdict for claim in grade.claims}
        low = grade.faithfulness_score < request.settings.faithfulness_threshold
        if low or Verdict.CONTRADICTED in verdicts or Verdict.SUPPORTED not in verdicts:
            found["faithfulness"] = max(0.0, request.settings.faithfulness_threshold - grade.faithfulness_score)
    return found


def shown(shortfalls: Sequence[Shortfall]) -> dict[str, float]:
    return {item.criterion: item.missing for item in shortfalls}


def check_reviews(payloads: Sequence[events.Payload], request: ComposeRequest) -> None:
    """Each finding says what is missed, and which draft is the best of those that may be."""
    reviews = of(payloads, events.DraftReviewed)
    revised = {item.revision: item for item in of(payloads, events.DraftRevised)}
    assert [item.revision for item in reviews] == list(range(len(reviews)))
    since = 0
    for place, item in enumerate(reviews):
        if place in revised and revised[place].feedback:
            since = place
        assert shown(item.shortfalls) == missed(item, request)
        assert item.passed is not bool(item.shortfalls)
        eligible = reviews[since : place + 1]
        top = max(rank(one) for one in eligible)
        assert item.best_revision == next(one.revision for one in eligible if rank(one) == top)
        if place in revised:
            before = {one.criterion: one.score for one in reviews[revised[place].from_revision].review.scores}
            lost = [one.criterion for one in item.review.scores if one.score < one.threshold <= before[one.criterion]]
            assert [one.criterion for one in item.regressions] == lost
        else:
            assert not item.regressions


def rank(item: events.DraftReviewed) -> tuple[bool, bool, float]:
    return (item.passed, "faithfulness" not in shown(item.shortfalls), item.review.overall_score)


def check_approvals(payloads: Sequence[events.Payload], request: ComposeRequest) -> None:
    """A person is asked about drafts that reach everything, once each, and every answer is taken up."""
    asked, decided = of(payloads, ApprovalRequested), of(payloads, ApprovalDecided)
    assert [item.approval for item in asked] == [item.approval for item in decided] == list(range(1, len(asked) + 1))
    assert request.require_approval or not asked
    reviews = {item.revision: item for item in of(payloads, events.DraftReviewed)}
    assert all(reviews[item.revision].passed for item in asked)
    wishes = [item for item in decided if item.decision is ApprovalDecision.REVISE]
    followed = [item for item in of(payloads, events.DraftRevised) if item.feedback]
    assert len(followed) <= len(wishes) <= len(followed) + 1


def check_end(finished: RunFinished, payloads: Sequence[events.Payload], script: Script) -> None:
    """The outcome is the one that the path taken allows, and the draft is the best one."""
    reviews, decided = of(payloads, events.DraftReviewed), of(payloads, ApprovalDecided)
    last = decided[-1].decision if decided else None
    assert finished.approved is (finished.outcome is Outcome.APPROVED)
    if finished.error is not None:
        assert script.failures and finished.outcome in {Outcome.FAILED, Outcome.DEADLINE_EXCEEDED}
    elif not reviews:
        assert finished.outcome is Outcome.REFUSED_NO_EVIDENCE and finished.draft is None and not script.written
        return
    if reviews:
        drafts = {0: of(payloads, events.DraftWritten)[0].draft}
        drafts |= {item.revision: item.draft for item in of(payloads, events.DraftRevised)}
        assert finished.best_revision == reviews[-1].best_revision
        best = reviews[finished.best_revision]
        assert finished.draft == drafts[finished.best_revision]
        assert (finished.review, finished.shortfalls) == (best.review, best.shortfalls)
    match finished.outcome:
        case Outcome.APPROVED:
            assert not finished.shortfalls and reviews[finished.best_revision].passed
            assert last in {None, ApprovalDecision.APPROVE}
        case Outcome.REJECTED:
            assert last is ApprovalDecision.REJECT
        case Outcome.MAX_REVISIONS_REACHED:
            assert finished.shortfalls or last is ApprovalDecision.REVISE
