"""Whatever an answer says, however it comes and whatever fails: checking it while it is written changes no grade."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import zlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.errors import ErrataError, ModelOutputInvalid, ModelUnavailable, ServiceUnavailable
from errata_kit.grades import AnswerGrade, Claim, FindingKind, GuardFinding, HallucinationRisk, PassageGrade, Verdict
from errata_kit.passages import Answer, Passage, Span
from errata_kit.text.sentences import byte_span, split_sentences
from errata_kit.usage import ModelCall
from services.orchestrator.convert.trace import event_to
from services.orchestrator.runs import events
from services.orchestrator.runs.events import RunFinished
from services.orchestrator.runs.run import Lease, RunOptions
from services.orchestrator.runs.trace import Recording, RunTrace
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.answer.segments import Segmenter
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerSettings, SkippableStep
from services.orchestrator.workflows.answer.verification import StreamedVerification
from services.orchestrator.workflows.faithfulness import passes
from services.orchestrator.workflows.ports import CheckedSegment, GradedAnswer, PassageResult, PassageSearch, WrittenAnswer
from tests.harness.replays import Bench, bench, comparable, no_checkpoints
from tests.harness.verdicts import check_verdicts

SIZES = (0, 1, 3)
FAILURES = (ModelOutputInvalid, ModelUnavailable, ServiceUnavailable)


@dataclass
class Stage:
    """What is written and what goes wrong. fails: the checks, by their number, that fail; waits: how long each takes."""

    pieces: tuple[str, ...] = ()
    fails: frozenset[int] = frozenset()
    failure: type[ErrataError] = ModelOutputInvalid
    waits: tuple[int, ...] = (0,)
    refusal: bool = False
    score: float = 1.0
    grading_seconds: float = 0.0
    checks: int = 0
    failed: int = 0
    known: list[Claim] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Services:
    """Retriever, judge and generator of the example that runs. A verdict follows from the words of a sentence alone."""

    stage = Stage()

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        return (Passage("p1", "text"),)

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        await asyncio.sleep(self.stage.grading_seconds)
        for passage in passages:
            yield PassageResult(passage.passage_id, PassageGrade(self.stage.score, True, ""))

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        assert segment.strip()
        self.stage.checks += 1
        number = self.stage.checks
        for _ in range(self.stage.waits[number % len(self.stage.waits)]):
            await asyncio.sleep(0)
        if number in self.stage.fails:
            self.stage.failed += 1
            error = self.stage.failure("drawn")
            error.model_calls = (called("failed"),)
            raise error
        claims = claims_in(segment)
        return CheckedSegment(claims, findings_in(claims), (called("checked"),) if claims else ())

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        self.stage.known = list(known)
        claims = claims_in(answer)
        verdicts = {claim.text: claim.verdict for claim in claims}
        # What is handed over as known is what the judge would find itself, and stands where it is said to stand.
        assert all(verdicts.get(claim.text, claim.verdict) is claim.verdict for claim in known)
        raw = self.stage.text.encode()
        assert all(raw[claim.span.start : claim.span.end].decode() == claim.text for claim in known)
        found = findings_in(claims)
        bad = tuple(claim.claim_id for claim in claims if claim.verdict in {Verdict.UNSUPPORTED, Verdict.CONTRADICTED})
        score = 1 - len(bad) / max(1, len(claims))
        return GradedAnswer(AnswerGrade(claims, score, HallucinationRisk.LOW, bad, found), (called("graded"),))

    async def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        for piece in self.stage.pieces:
            yield piece
            await asyncio.sleep(0)
        yield WrittenAnswer(Answer(self.stage.text, refusal=self.stage.refusal), (called("written"),))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is no part of this")


SERVICES = Services()


def called(operation: str) -> ModelCall:
    return ModelCall("drawn", operation, "v", 1)


def claims_in(text: str) -> tuple[Claim, ...]:
    units = [unit for unit in split_sentences(text) if unit.kind != "heading"]
    return tuple(
        Claim(f"c{number}", unit.text, Span(*byte_span(text, unit.start, unit.end)), verdict_on(unit.text), 0.5)
        for number, unit in enumerate(units, start=1)
    )


def verdict_on(sentence: str) -> Verdict:
    return list(Verdict)[max(0, zlib.crc32(sentence.encode()) % 7 - 3)]


def findings_in(claims: tuple[Claim, ...]) -> tuple[GuardFinding, ...]:
    return tuple(
        GuardFinding(FindingKind.NUMBER, "7", claim.span, "drawn", claim.claim_id) for claim in claims if "7" in claim.text
    )


# --- the engines ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Bench]]:
    with contextlib.ExitStack() as stack:
        yield {size: stack.enter_context(_bench(size, tmp_path_factory)) for size in SIZES}


def _bench(size: int, folders: pytest.TempPathFactory) -> contextlib.AbstractContextManager[Bench]:
    return bench(folders.mktemp("runs"), lambda kept: (AnswerWorkflow(SERVICES, SERVICES, SERVICES, kept, size),))


def run(where: Bench, request: AnswerRequest, seconds: float | None = None) -> list[events.TraceEvent]:
    """The trace as it was watched live, deltas included."""

    async def watched() -> list[events.TraceEvent]:
        engine = where.driven.engine
        run_id, _ = await engine.start("answer", request, RunOptions(seconds=seconds))
        async with asyncio.timeout(20), contextlib.aclosing(engine.watch(DEFAULT_TENANT, run_id)) as watching:
            seen = [event async for event in watching]
        assert [event.sequence for event in seen if event.sequence] == list(range(1, seen[-1].sequence + 1))
        left = [task for task in asyncio.all_tasks() if "StreamedVerification" in getattr(task.get_coro(), "__qualname__", "")]
        assert not left
        return seen

    return where.runner.run(watched())


def of_kind(trace: list[events.TraceEvent], kind: Any) -> list[Any]:
    return [event.payload for event in trace if isinstance(event.payload, kind)]


def ended(trace: list[events.TraceEvent]) -> RunFinished:
    finished = trace[-1].payload
    assert isinstance(finished, RunFinished)
    return finished


# --- what is written --------------------------------------------------------------------------------------------------

SENTENCES = st.sampled_from(
    (
        "It is kept.",
        "It is kept for 7 days [1].",
        "Größe ist 保存 🙂. [1]",
        "保存されます。",
        "See etc. for more.",
        "Set `a.b. C` first. [1, 2]",
        "Is it?",
        "A title",
        "- an item. Two",
        "# a heading\n",
        "```\ncode. More\n```\n",
        "| a | b |\n",
        "Yes!",
        "[1]",
        "and so on",
        "1. ",
    )
)
TEXTS = st.lists(st.tuples(SENTENCES, st.sampled_from((" ", "\n", "\n\n", "\r\n", ""))), min_size=1, max_size=10).map(
    lambda parts: "".join(words + blank for words, blank in parts)
)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    text = draw(TEXTS)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    pieces = tuple(text[start:end] for start, end in pairwise([0, *cuts, len(text)]))
    fails = draw(st.frozensets(st.integers(1, 6), max_size=2))
    waits = tuple(draw(st.lists(st.integers(0, 12), min_size=1, max_size=5)))
    return Stage(pieces, fails, draw(st.sampled_from(FAILURES)), waits, draw(st.integers(0, 9)) == 0)


# Without shrinking: an example is three whole runs.
@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(stage=stages(), verified_only=st.booleans())
def test_the_grade_and_the_outcome_are_those_of_the_whole(benches: dict[int, Bench], stage: Stage, verified_only: bool) -> None:
    SERVICES.stage = stage
    request = AnswerRequest("What?", "c", AnswerSettings(max_refinements=0), verified_only=verified_only)
    expected: list[events.TraceEvent] = []
    for size in SIZES:
        stage.checks = stage.failed = 0
        trace = run(benches[size], request)
        check_verdicts([event_to(event) for event in trace])
        _check_deltas(trace, size, verified_only, stage)
        calls = ended(trace).model_calls
        told = {claim.segment for claim in of_kind(trace, events.ClaimChecked) if claim.segment}
        if not stage.refusal:
            # Every check, failed ones too, is paid for once.
            operations = [call.operation for call in calls]
            assert operations.count("failed") == stage.failed and operations.count("checked") == len(told)
        if size == 0:
            expected = trace
            assert not told and not stage.checks
        assert of_kind(trace, events.AnswerGraded) == of_kind(expected, events.AnswerGraded)
        assert comparable(ended(trace)) == comparable(ended(expected))
        stored = [event for event in trace if event.sequence]
        workflow = AnswerWorkflow(SERVICES, SERVICES, SERVICES, no_checkpoints(), size)
        assert comparable(benches[size].replay(workflow, request, stored[:-1])) == comparable(ended(trace))


def test_a_run_that_is_taken_up_keeps_to_what_was_skipped(benches: dict[int, Bench]) -> None:
    SERVICES.stage = Stage(score=0.1, grading_seconds=0.6)
    request = AnswerRequest("What?", "c")
    trace = run(benches[0], request, seconds=1.7)
    assert [item.number for item in of_kind(trace, events.StepSkipped)] == [2]
    # Whoever takes it up has all the time there is, and records nothing anew.
    workflow = AnswerWorkflow(SERVICES, SERVICES, SERVICES, no_checkpoints())
    assert comparable(benches[0].replay(workflow, request, trace[:-1])) == comparable(ended(trace))
    refusal = ended(trace).refusal
    assert refusal is not None and refusal.skipped_step is SkippableStep.RETRIEVAL


class _Down:
    """A database that is away, and a lease that is kept."""

    async def check(self, lease: Lease) -> None:
        return None

    async def append(self, *_: Any) -> None:
        raise ServiceUnavailable("down", metadata={"service": "database"})


async def test_a_verdict_that_can_not_be_stored_is_no_check_that_failed() -> None:
    # The event has its number: without it the trace would have a hole.
    SERVICES.stage = Stage()
    shown: list[events.TraceEvent] = []
    recording = Recording(_Down(), _Down(), shown.append, 0.0)  # type: ignore[arg-type]  # nothing is stored
    started = events.RunStarted("answer", "What?", "c", None, False)
    first = events.TraceEvent("run", 1, datetime.datetime.now(datetime.UTC), started)
    verification = StreamedVerification(RunTrace(Lease("run", "one", 1), recording, (first,)), SERVICES, "What?", (), 1, True)
    verification.take("It is kept. It is gone. ")
    verification.end()
    with pytest.raises(ServiceUnavailable):
        await verification.known_claims()
    await verification.aclose()
    assert not shown


def _check_deltas(trace: list[events.TraceEvent], size: int, verified_only: bool, stage: Stage) -> None:
    deltas = of_kind(trace, events.AnswerDelta)
    if not verified_only:
        assert "".join(delta.text for delta in deltas) == stage.text
        return
    if size == 0:
        assert not deltas
        return
    verified = _verified(size, stage)
    shown = [(delta.segment, delta.text) for delta in deltas]
    assert [item for item in verified if item in shown] == shown
    if stage.refusal:
        # Nobody waits for the rest.
        return
    assert stage.failed or shown == verified
    kinds = [type(event.payload) for event in trace]
    assert events.AnswerDelta not in kinds[kinds.index(events.AnswerGraded) :]


def _verified(size: int, stage: Stage) -> list[tuple[int, str]]:
    """The segments whose claims all pass."""
    segmenter = Segmenter(size)
    segments = [segment for piece in stage.pieces for segment in segmenter.take(piece)[1]] + segmenter.end()[1]
    found = []
    for segment in segments:
        claims = claims_in(segment.text)
        if all(passes(claim, findings_in(claims)) for claim in claims):
            found.append((segment.number, segment.text))
    return found
