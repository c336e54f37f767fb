"""Whatever the judge says and whatever fails, an answer run ends within its limits, with a trace that proves its outcome."""

from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata_kit.drafts import Criterion
from errata_kit.edits import Edit
from errata_kit.errors import ModelOutputInvalid
from errata_kit.grades import AnswerGrade, Claim, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Answer, Passage, Span
from services.orchestrator.runs import events
from services.orchestrator.runs.events import Outcome, RunFinished
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings
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

QUESTION = "What does the retention setting do in Flink 1.18?"


class Services:
    """Retriever, judge and generator by the script of the example that runs."""

    script: Script

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        self.script.searched.append(search.query)
        self.script.asked(QUESTION)
        numbers = self.script.draw(st.lists(st.integers(1, 12), max_size=search.top_k, unique=True))
        return tuple(Passage(f"p{number}", f"text {number}") for number in numbers)

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        self.script.asked(question)
        for passage in passages:
            if self.script.failures and self.script.draw(st.integers(0, 3)) == 0:
                yield PassageResult(passage.passage_id, ModelOutputInvalid("drawn"))
                continue
            self.script.graded_ids.append(passage.passage_id)
            score = self.script.draw(st.floats(0, 1))
            yield PassageResult(passage.passage_id, PassageGrade(score, self.script.draw(st.booleans()), "drawn"))

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        raise AssertionError("nothing is checked while it is written here")

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        self.script.asked(question)
        verdicts = self.script.draw(st.lists(st.sampled_from(Verdict), max_size=4))
        claims = tuple(
            Claim(f"c{number}", "claim", Span(0, 1), verdict, self.script.draw(st.floats(0, 1)))
            for number, verdict in enumerate(verdicts, start=1)
        )
        findings = (GuardFinding(FindingKind.NUMBER, "7", Span(0, 1), "drawn"),) if self.script.draw(st.booleans()) else ()
        problematic = tuple(claim.claim_id for claim in claims if claim.verdict in {Verdict.UNSUPPORTED, Verdict.CONTRADICTED})
        score = self.script.draw(st.floats(0, 1))
        return GradedAnswer(AnswerGrade(claims, score, HallucinationRisk.MEDIUM, problematic, findings))

    async def broaden_query(self, question: str, current: str, tried: tuple[str, ...]) -> BroadenedQuery:
        self.script.asked(question)
        if self.script.draw(st.integers(0, 3)) == 0:
            return BroadenedQuery("", exhausted=True)
        return BroadenedQuery(f"{question} broadened {len(tried)}", exhausted=False)

    async def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        self.script.written += 1
        assert passages
        yield "some "
        self.script.asked(question)
        yield WrittenAnswer(Answer("some text", refusal=self.script.draw(st.integers(0, 4)) == 0))

    async def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        self.script.corrected += 1
        assert failing
        self.script.asked(question)
        refined = f"{answer} refined"
        edits = (Edit(Span(0, len(answer)), answer, refined),)
        yield WrittenAnswer(Answer(refined, refusal=self.script.draw(st.integers(0, 4)) == 0), edits=edits)

    async def review_draft(self, draft: DraftToReview) -> ReviewOfDraft:
        raise AssertionError("no part of this workflow")

    def write_draft(
        self, task: str, passages: tuple[Passage, ...], criteria: tuple[Criterion, ...]
    ) -> AsyncIterator[str | WrittenDraft]:
        raise AssertionError("no part of this workflow")

    def revise_draft(self, draft: DraftToRevise) -> AsyncIterator[str | WrittenDraft]:
        raise AssertionError("no part of this workflow")


SERVICES = Services()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with bench(tmp_path_factory.mktemp("runs"), lambda kept: (AnswerWorkflow(SERVICES, SERVICES, SERVICES, kept),)) as started:
        yield started


def nobody(request: events.ApprovalRequested) -> events.ApprovalDecided:
    raise AssertionError("an answer waits for nobody")


def settings_drawn() -> st.SearchStrategy[AnswerSettings]:
    return st.builds(
        AnswerSettings,
        top_k=st.integers(1, 6),
        relevance_threshold=st.floats(0, 1),
        min_relevant=st.integers(1, 3),
        max_retrievals=st.integers(1, 4),
        faithfulness_threshold=st.floats(0, 1),
        max_refinements=st.integers(0, 3),
    )


# Without shrinking: an example is a whole run, and minutes of shrinking would say no more than the trace does.
@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(data=st.data(), limits=settings_drawn(), failures=st.booleans(), supplied=st.booleans())
def test_every_run_ends_within_its_limits(
    shared: Bench, data: st.DataObject, limits: AnswerSettings, failures: bool, supplied: bool
) -> None:
    script = SERVICES.script = Script(data, failures)
    request = AnswerRequest(QUESTION, "default", limits, "a draft from elsewhere" if supplied else "")
    stored = shared.run("answer", request, nobody)
    payloads, finished = payloads_of(stored)

    assert script.questions <= {QUESTION}
    assert script.searched[:1] == [QUESTION]
    assert len(script.searched) == len(set(script.searched)) <= limits.max_retrievals
    assert len(script.graded_ids) == len(set(script.graded_ids))
    assert script.corrected <= limits.max_refinements
    assert not (supplied and script.written)
    check_outcome(finished, payloads, script, limits)
    if finished.error is None:
        # Whoever takes the run up at its end finds every step recorded, and comes to the same result.
        script.closed = True
        workflow = AnswerWorkflow(SERVICES, SERVICES, SERVICES, no_checkpoints())
        assert comparable(shared.replay(workflow, request, stored[:-1])) == comparable(finished)


def check_outcome(finished: RunFinished, payloads: list[events.Payload], script: Script, limits: AnswerSettings) -> None:
    """The outcome is the one that the path taken allows."""
    used = [item for item in payloads if isinstance(item, events.PassageGraded) and item.used]
    grades = [item for item in payloads if isinstance(item, events.AnswerGraded)]
    refined = [item for item in payloads if isinstance(item, events.AnswerRefined)]
    for item in payloads:
        if isinstance(item, events.PassageGraded):
            assert (item.grade is None) != (item.error is None)
            assert not (item.used and item.grade is None)
    match finished.outcome:
        case Outcome.ANSWERED:
            assert grades[-1].passed
            assert not refined
            assert used
        case Outcome.ANSWERED_AFTER_REFINEMENT:
            assert grades[-1].passed
            assert refined
            assert payloads.index(grades[-1]) > payloads.index(refined[-1])
        case Outcome.REFUSED_NO_EVIDENCE:
            assert not used or script.written
            assert finished.refusal is not None
            assert list(finished.refusal.queries) == script.searched
        case Outcome.REFUSED_UNFAITHFUL:
            assert grades
            assert not grades[-1].passed
        case Outcome.FAILED | Outcome.DEADLINE_EXCEEDED:
            assert script.failures
            assert finished.error is not None
            assert finished.answer is None
        case other:
            raise AssertionError(other)
    if script.broken:
        assert finished.outcome in {Outcome.FAILED, Outcome.DEADLINE_EXCEEDED}
    if not used and finished.error is None:
        assert not script.written
        assert not grades
    if finished.outcome in {Outcome.ANSWERED, Outcome.ANSWERED_AFTER_REFINEMENT}:
        last = grades[-1].grade
        assert not last.findings
        assert last.faithfulness_score >= limits.faithfulness_threshold
        assert all(claim.verdict is not Verdict.CONTRADICTED for claim in last.claims)
