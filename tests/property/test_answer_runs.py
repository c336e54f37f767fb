"""Whatever the judge says and whatever fails, an answer run ends within its limits, with a trace that proves its outcome."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from errata_kit.errors import DeadlineExceeded, ErrataError, ModelOutputInvalid, ModelUnavailable, ServiceUnavailable
from errata_kit.grades import AnswerGrade, Claim, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.metrics import Metrics
from errata_kit.passages import Answer, Passage, Span
from services.orchestrator.runs import events
from services.orchestrator.runs.engine import RunEngine
from services.orchestrator.runs.events import Outcome, RunFinished, TraceEvent
from services.orchestrator.runs.store import MemoryRunStore
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.answer.ports import BroadenedQuery, GradedAnswer, PassageResult, WrittenAnswer
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings

QUESTION = "What does the retention setting do in Flink 1.18?"
ERRORS: tuple[Callable[[str], ErrataError], ...] = (ModelUnavailable, ModelOutputInvalid, ServiceUnavailable, DeadlineExceeded)
T = TypeVar("T")


@dataclass
class Script:
    """Draws what happens next, and keeps what the services were asked."""

    data: st.DataObject
    failures: bool
    questions: set[str] = field(default_factory=set)
    searched: list[str] = field(default_factory=list)
    graded_ids: list[str] = field(default_factory=list)
    generated: int = 0
    refined: int = 0
    broken: bool = False

    def draw(self, strategy: st.SearchStrategy[T]) -> T:
        return self.data.draw(strategy)

    def maybe_fail(self) -> None:
        if self.failures and self.draw(st.integers(0, 7)) == 0:
            self.broken = True
            raise self.draw(st.sampled_from(ERRORS))("drawn")


class Services:
    """Retriever, judge and generator by the script."""

    def __init__(self, script: Script) -> None:
        self.script = script

    async def search(self, request: AnswerRequest, query: str) -> tuple[Passage, ...]:
        self.script.questions.add(request.question)
        self.script.searched.append(query)
        self.script.maybe_fail()
        numbers = self.script.draw(st.lists(st.integers(1, 12), max_size=request.settings.top_k, unique=True))
        return tuple(Passage(f"p{number}", f"text {number}") for number in numbers)

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        self.script.questions.add(question)
        self.script.maybe_fail()
        for passage in passages:
            if self.script.failures and self.script.draw(st.integers(0, 3)) == 0:
                yield PassageResult(passage.passage_id, ModelOutputInvalid("drawn"))
                continue
            self.script.graded_ids.append(passage.passage_id)
            score = self.script.draw(st.floats(0, 1))
            yield PassageResult(passage.passage_id, PassageGrade(score, self.script.draw(st.booleans()), "drawn"))

    async def grade_answer(self, question: str, answer: str, passages: tuple[Passage, ...]) -> GradedAnswer:
        self.script.questions.add(question)
        self.script.maybe_fail()
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
        self.script.questions.add(question)
        self.script.maybe_fail()
        if self.script.draw(st.integers(0, 3)) == 0:
            return BroadenedQuery("", exhausted=True)
        return BroadenedQuery(f"{question} broadened {len(tried)}", exhausted=False)

    async def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        self.script.questions.add(question)
        self.script.generated += 1
        assert passages
        yield "some "
        self.script.maybe_fail()
        yield WrittenAnswer(Answer("some text", refusal=self.script.draw(st.integers(0, 4)) == 0))

    async def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        self.script.questions.add(question)
        self.script.refined += 1
        assert failing
        self.script.maybe_fail()
        yield WrittenAnswer(Answer(f"{answer} refined", refusal=self.script.draw(st.integers(0, 4)) == 0))


async def run(script: Script, request: AnswerRequest) -> tuple[list[TraceEvent], tuple[TraceEvent, ...]]:
    """The trace as watched live, and as stored."""
    services = Services(script)
    store = MemoryRunStore()
    engine = RunEngine(store, (AnswerWorkflow(services, services, services),), Metrics(), 30.0)
    run_id = await engine.start("answer", request, None)
    live = [event async for event in engine.watch(run_id)]
    return live, await store.events(run_id, 0)


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


@settings(max_examples=150, deadline=None)
@given(data=st.data(), limits=settings_drawn(), failures=st.booleans(), supplied=st.booleans())
def test_every_run_ends_within_its_limits(data: st.DataObject, limits: AnswerSettings, failures: bool, supplied: bool) -> None:
    script = Script(data, failures)
    request = AnswerRequest(QUESTION, "default", limits, "a draft from elsewhere" if supplied else "")
    live, stored = asyncio.run(run(script, request))

    assert [event.sequence for event in stored] == list(range(1, len(stored) + 1))
    assert [event for event in live if event.sequence] == list(stored)
    assert [event for event in stored if isinstance(event.payload, RunFinished)] == [stored[-1]]
    finished = stored[-1].payload
    assert isinstance(finished, RunFinished)

    assert script.questions <= {QUESTION}
    assert script.searched[:1] == [QUESTION]
    assert len(script.searched) == len(set(script.searched)) <= limits.max_retrievals
    assert len(script.graded_ids) == len(set(script.graded_ids))
    assert script.refined <= limits.max_refinements
    assert not (supplied and script.generated)
    check_outcome(finished, [event.payload for event in stored], script, limits)


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
            assert not used or script.generated
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
        assert not script.generated
        assert not grades
    if finished.outcome in {Outcome.ANSWERED, Outcome.ANSWERED_AFTER_REFINEMENT}:
        last = grades[-1].grade
        assert not last.findings
        assert last.faithfulness_score >= limits.faithfulness_threshold
        assert all(claim.verdict is not Verdict.CONTRADICTED for claim in last.claims)
