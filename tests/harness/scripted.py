"""Scripted services to put below the orchestrator: they keep what they were asked, and say what a test has written down.

A test that counts calls sees every attempt. What a step of a test is to do first (wait, fail once) goes into the `before…`
hooks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc
from errata.usage.v1 import usage_pb2

from errata_kit.errors import ErrataError
from errata_kit.rpc.status import to_detail

Graded = float | ErrataError
Reviewed = float | Mapping[str, float] | ErrataError
T = TypeVar("T")
Step = Callable[[], Awaitable[None]]


async def go_on() -> None:
    """A step that waits for nothing."""


def passage(passage_id: str, text: str = "", **fields: Any) -> passage_pb2.Passage:
    """A passage as a message."""
    return passage_pb2.Passage(passage_id=passage_id, text=text or f"The text of {passage_id}.", **fields)


def model_call(operation: str, **fields: Any) -> usage_pb2.ModelCall:
    """A successful call with a known price."""
    known: dict[str, Any] = {
        "model": "scripted-1",
        "prompt_version": "0123456789ab",
        "input_tokens": 100,
        "cached_input_tokens": 40,
        "output_tokens": 10,
        "cost_micros": 25,
        "attempts": 1,
    }
    return usage_pb2.ModelCall(operation=operation, **{**known, **fields})


@dataclass
class Fake:
    """What the scripted services have in common. `cancelled` counts calls that were given up by the caller.

    With `paid`, each reply brings one model call, named after the step.
    """

    cancelled: int = 0
    paid: bool = False
    turns: Counter[str] = field(default_factory=Counter)

    def turn(self, step: str, script: Sequence[T]) -> T:
        """The next entry of a step's script, the last one for ever. Call it once the step's hook has let the call pass."""
        self.turns[step] += 1
        return script[min(self.turns[step], len(script)) - 1]

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count a cancelled call."""
        try:
            yield
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    def usage(self, operation: str) -> usage_pb2.Usage:
        """What a reply says that it has cost."""
        return usage_pb2.Usage(model_calls=[model_call(operation)] if self.paid else [])


@dataclass
class FakeRetriever(Fake, retriever_grpc.RetrieverServiceServicer):
    """Finds, at the n-th search, the passages that `found` names n-th; the last entry holds for all later searches."""

    found: Sequence[Sequence[str]] = (("p1", "p2"),)
    before: Step = go_on
    searches: list[retriever_pb2.SearchRequest] = field(default_factory=list)

    async def Search(self, request: retriever_pb2.SearchRequest, context: Any) -> retriever_pb2.SearchResponse:  # noqa: N802
        self.searches.append(request)
        with self.counting():
            await self.before()
        ids = self.turn("search", self.found)
        scored = [retriever_pb2.ScoredPassage(passage=passage(item), score=1 / (1 + place)) for place, item in enumerate(ids)]
        return retriever_pb2.SearchResponse(passages=scored, mode="SEARCH_MODE_SPARSE")


@dataclass
class FakeJudge(Fake, judge_grpc.JudgeServiceServicer):
    """Gives each passage the score, or the error, that `scores` has for it (1.0 where it has none).

    `segments` are its verdicts on a segment; without it there are no claims in any.
    `answers` are its grades of answers in order, the last one for ever; `reviews` its scores of drafts in order, the last one
    for ever: one number for all criteria, or a number for each named one and 1.0 for the others.
    """

    scores: dict[str, Graded] = field(default_factory=dict)
    answers: Sequence[grading_pb2.AnswerGrade | ErrataError] = ()
    reviews: Sequence[Reviewed] = (1.0,)
    before: Step = go_on
    before_answer: Step = go_on
    before_review: Step = go_on
    before_passage: Callable[[str], Awaitable[None]] | None = None
    passage_requests: list[judge_pb2.GradePassagesRequest] = field(default_factory=list)
    answer_requests: list[judge_pb2.GradeAnswerRequest] = field(default_factory=list)
    review_requests: list[judge_pb2.ReviewDraftRequest] = field(default_factory=list)
    segments: Callable[[str], judge_pb2.CheckClaimsResponse] | None = None
    before_segment: Step = go_on
    segment_requests: list[judge_pb2.CheckClaimsRequest] = field(default_factory=list)

    async def CheckClaims(self, request: judge_pb2.CheckClaimsRequest, context: Any) -> judge_pb2.CheckClaimsResponse:  # noqa: N802
        self.segment_requests.append(request)
        with self.counting():
            await self.before_segment()
        reply = judge_pb2.CheckClaimsResponse() if self.segments is None else self.segments(request.segment)
        reply.usage.CopyFrom(self.usage("check_claims"))
        return reply

    async def GradePassages(  # noqa: N802
        self, request: judge_pb2.GradePassagesRequest, context: Any
    ) -> AsyncIterator[judge_pb2.GradePassagesResponse]:
        self.passage_requests.append(request)
        with self.counting():
            await self.before()
            for item in request.passages:
                if self.before_passage is not None:
                    await self.before_passage(item.passage_id)
                yield self._graded(item.passage_id)

    async def GradeAnswer(self, request: judge_pb2.GradeAnswerRequest, context: Any) -> judge_pb2.GradeAnswerResponse:  # noqa: N802
        self.answer_requests.append(request)
        with self.counting():
            await self.before_answer()
        grade = self.turn("answer", self.answers or [faithful()])
        if isinstance(grade, ErrataError):
            raise grade
        return judge_pb2.GradeAnswerResponse(grade=grade, usage=self.usage("grade_answer"))

    async def ReviewDraft(self, request: judge_pb2.ReviewDraftRequest, context: Any) -> judge_pb2.ReviewDraftResponse:  # noqa: N802
        self.review_requests.append(request)
        with self.counting():
            await self.before_review()
        scores = self.turn("review", self.reviews)
        if isinstance(scores, ErrataError):
            raise scores
        return judge_pb2.ReviewDraftResponse(review=review_of(request, scores), usage=self.usage("review_draft"))

    def _graded(self, passage_id: str) -> judge_pb2.GradePassagesResponse:
        score = self.scores.get(passage_id, 1.0)
        usage = self.usage("grade_passage")
        if isinstance(score, ErrataError):
            return judge_pb2.GradePassagesResponse(passage_id=passage_id, error=to_detail(score), usage=usage)
        grade = grading_pb2.PassageGrade(score=score, relevant=score >= 0.5, reasoning="scripted")
        return judge_pb2.GradePassagesResponse(passage_id=passage_id, grade=grade, usage=usage)


@dataclass
class FakeGenerator(Fake, generator_grpc.GeneratorServiceServicer):
    """Writes `answer` in its words; `refined` are its corrections in order, with `edits`, or as one edit of the whole text;
    `queries` are what it broadens to, in order, and
    then it is exhausted. `draft` is the first draft, `revisions` are those that follow, the last one for ever.
    """

    answer: str = "The text of p1. [1]"
    refined: Sequence[str] = ("The corrected text. [1]",)
    queries: Sequence[str] = ("broader one", "broader two")
    draft: str = "The first draft. [1]"
    revisions: Sequence[str] = ("The second draft. [1]", "The third draft. [1]", "The fourth draft. [1]")
    refuses: bool = False
    edits: Sequence[grading_pb2.AnswerEdit] | None = None
    before: Step = go_on
    between: Step = go_on
    before_broadening: Step = go_on
    before_revision: Step = go_on
    broaden_requests: list[generator_pb2.BroadenQueryRequest] = field(default_factory=list)
    answer_requests: list[generator_pb2.GenerateAnswerRequest] = field(default_factory=list)
    refine_requests: list[generator_pb2.RefineAnswerRequest] = field(default_factory=list)
    write_requests: list[generator_pb2.WriteDraftRequest] = field(default_factory=list)
    revise_requests: list[generator_pb2.ReviseDraftRequest] = field(default_factory=list)

    async def BroadenQuery(  # noqa: N802
        self, request: generator_pb2.BroadenQueryRequest, context: Any
    ) -> generator_pb2.BroadenQueryResponse:
        self.broaden_requests.append(request)
        await self.before_broadening()
        usage = self.usage("broaden_query")
        query = self.turn("broaden", [*self.queries, ""])
        if not query:
            return generator_pb2.BroadenQueryResponse(exhausted=True, usage=usage)
        return generator_pb2.BroadenQueryResponse(query=query, removed_terms=["1.18"], usage=usage)

    async def GenerateAnswer(  # noqa: N802
        self, request: generator_pb2.GenerateAnswerRequest, context: Any
    ) -> AsyncIterator[generator_pb2.GenerateAnswerResponse]:
        self.answer_requests.append(request)
        ids = [item.passage_id for item in request.passages]
        async for piece in self._pieces(self.answer):
            yield generator_pb2.GenerateAnswerResponse(delta=piece)
        answer = _answer(self.answer, ids[:1], self.refuses)
        yield generator_pb2.GenerateAnswerResponse(answer=answer, usage=self.usage("generate_answer"))

    async def RefineAnswer(  # noqa: N802
        self, request: generator_pb2.RefineAnswerRequest, context: Any
    ) -> AsyncIterator[generator_pb2.RefineAnswerResponse]:
        self.refine_requests.append(request)
        text = self.turn("refine", self.refined)
        async for piece in self._pieces(text):
            yield generator_pb2.RefineAnswerResponse(delta=piece)
        answer = _answer(text, [item.passage_id for item in request.passages][:1])
        span = passage_pb2.Span(end=len(request.answer.encode()))
        edits = [grading_pb2.AnswerEdit(span=span, before=request.answer, after=text)] if self.edits is None else self.edits
        yield generator_pb2.RefineAnswerResponse(answer=answer, usage=self.usage("refine_answer"), edits=edits)

    async def WriteDraft(  # noqa: N802
        self, request: generator_pb2.WriteDraftRequest, context: Any
    ) -> AsyncIterator[generator_pb2.WriteDraftResponse]:
        self.write_requests.append(request)
        async for piece in self._pieces(self.draft):
            yield generator_pb2.WriteDraftResponse(delta=piece)
        draft = _draft(self.draft, [item.passage_id for item in request.passages][:1])
        yield generator_pb2.WriteDraftResponse(draft=draft, usage=self.usage("write_draft"))

    async def ReviseDraft(  # noqa: N802
        self, request: generator_pb2.ReviseDraftRequest, context: Any
    ) -> AsyncIterator[generator_pb2.ReviseDraftResponse]:
        self.revise_requests.append(request)
        with self.counting():
            await self.before_revision()
        text = self.turn("revise", self.revisions)
        async for piece in self._pieces(text):
            yield generator_pb2.ReviseDraftResponse(delta=piece)
        draft = _draft(text, [item.passage_id for item in request.passages][:1])
        yield generator_pb2.ReviseDraftResponse(draft=draft, usage=self.usage("revise_draft"))

    async def _pieces(self, text: str) -> AsyncIterator[str]:
        with self.counting():
            await self.before()
            for word in text.split(" "):
                yield f"{word} "
                await self.between()


@dataclass
class Below:
    """The three scripted services that an orchestrator calls."""

    retriever: FakeRetriever = field(default_factory=FakeRetriever)
    judge: FakeJudge = field(default_factory=FakeJudge)
    generator: FakeGenerator = field(default_factory=FakeGenerator)


def faithful(text: str = "The text of p1.", passage_id: str = "p1") -> grading_pb2.AnswerGrade:
    """A grade that releases an answer."""
    evidence = [grading_pb2.Evidence(passage_id=passage_id, quote=text, span=passage_pb2.Span(start=0, end=len(text)))]
    claim = grading_pb2.Claim(
        claim_id="c1",
        text=text,
        span=passage_pb2.Span(end=len(text)),
        verdict="VERDICT_SUPPORTED",
        support=1,
        evidence=evidence,
    )
    return grading_pb2.AnswerGrade(
        claims=[claim], faithfulness_score=1, hallucination_risk="HALLUCINATION_RISK_LOW", model="scripted"
    )


def unfaithful(text: str = "The text of p1.", score: float = 0.2) -> grading_pb2.AnswerGrade:
    """A grade with one supported and one unsupported claim, which holds an answer back."""
    grade = faithful(text)
    grade.claims.add(claim_id="c2", text="made up", span=passage_pb2.Span(start=4, end=11), verdict="VERDICT_UNSUPPORTED")
    grade.faithfulness_score = score
    grade.hallucination_risk = grading_pb2.HALLUCINATION_RISK_HIGH
    grade.problematic_claim_ids.append("c2")
    grade.refinement_suggestion = "Remove what was made up."
    return grade


def review_of(request: judge_pb2.ReviewDraftRequest, scores: float | Mapping[str, float]) -> grading_pb2.DraftReview:
    """The review that gives these scores. Criteria below their thresholds come with an issue and a suggestion."""
    given = {item.name: scores.get(item.name, 1.0) if isinstance(scores, Mapping) else scores for item in request.criteria}
    review = grading_pb2.DraftReview(
        overall_score=round(sum(given.values()) / len(given), 4), overall_threshold=request.overall_threshold, model="scripted"
    )
    for item in request.criteria:
        score = given[item.name]
        review.scores.add(criterion=item.name, score=score, threshold=item.threshold, explanation="scripted", model_score=score)
        if score < item.threshold:
            review.issues.add(criterion=item.name, severity="ISSUE_SEVERITY_MAJOR", description=f"{item.name} is missing")
            review.suggestions.append(f"more {item.name}")
    return review


def _citations(text: str, passage_ids: Sequence[str]) -> list[passage_pb2.Citation]:
    span = passage_pb2.Span(end=max(1, len(text) - 4))
    return [passage_pb2.Citation(number=place, passage_id=item, span=span) for place, item in enumerate(passage_ids, start=1)]


def _answer(text: str, passage_ids: Sequence[str], refusal: bool = False) -> passage_pb2.Answer:
    citations = [] if refusal else _citations(text, passage_ids)
    return passage_pb2.Answer(text=text, citations=citations, model="scripted", refusal=refusal)


def _draft(text: str, passage_ids: Sequence[str]) -> passage_pb2.Draft:
    return passage_pb2.Draft(text=text, citations=_citations(text, passage_ids), model="scripted")
