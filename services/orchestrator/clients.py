"""The other services over gRPC, as the ports of the workflows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import grpc
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_kit.access.identity import IdentitySigner
from errata_kit.drafts import Criterion
from errata_kit.errors import ErrataError, ModelTruncated, Reason, ServiceUnavailable
from errata_kit.grades import Claim, PassageGrade
from errata_kit.passages import Passage
from errata_kit.rpc import convert, convert_drafts
from errata_kit.rpc.channels import outgoing, reading
from errata_kit.rpc.status import from_detail, from_rpc_error
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

Whole = TypeVar("Whole")


async def until_serving(channel: grpc.aio.Channel, name: str) -> None:
    """Return once a service has said SERVING, or that it does not tell. Asks again as long as it takes."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    while True:
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=2)
            if reply.status == health_pb2.HealthCheckResponse.SERVING:
                return
        except grpc.aio.AioRpcError as error:
            # It is there, and tells nobody about its health.
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return
        await asyncio.sleep(0.1)


def _failure(error: grpc.aio.AioRpcError, service: str) -> ErrataError:
    """What a failed call means to the run. Whoever has asked has proved who it is: it is we who are not trusted there."""
    failure = from_rpc_error(error, service)
    if failure.why not in {Reason.UNAUTHENTICATED, Reason.PERMISSION_DENIED}:
        return failure
    message = f"The {service} does not accept the orchestrator's calls"
    return ServiceUnavailable(message, metadata={"service": service}, detail=f"{failure.why.value}: {failure.message}")


class RetrieverClient:
    """Searches."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner | None = None) -> None:
        self._stub = retriever_grpc.RetrieverServiceStub(channel)
        self._signer = signer

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        """The passages that fit the query, best first."""
        message = retriever_pb2.SearchRequest(
            collection=search.collection,
            query=search.query,
            top_k=search.top_k,
            mode=convert.mode_to(search.mode),
            filter=convert.filter_to(search.filter),
        )
        try:
            reply = await self._stub.Search(message, **outgoing(self._signer))
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "retriever") from None
        return tuple(convert.passage_from(item.passage) for item in reply.passages)


class JudgeClient:
    """Grades."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner | None = None) -> None:
        self._stub = judge_grpc.JudgeServiceStub(channel)
        self._signer = signer

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        """One result a passage. A stream that breaks leaves the passages that are missing as errors, not as grades."""
        request = judge_pb2.GradePassagesRequest(
            question=question, passages=[convert.passage_to(passage) for passage in passages]
        )
        waiting = {passage.passage_id for passage in passages}
        failure: ErrataError | None = None
        async with reading(self._stub.GradePassages(request, **outgoing(self._signer))) as replies:
            try:
                async for reply in replies:
                    if reply.passage_id in waiting:
                        waiting.discard(reply.passage_id)
                        yield _passage_result(reply)
            except grpc.aio.AioRpcError as error:
                failure = _failure(error, "judge")
        if failure is not None and len(waiting) == len(passages):
            raise failure
        for passage in passages:
            if passage.passage_id in waiting:
                missing = failure or ModelTruncated("The judge sent no grade for this passage")
                yield PassageResult(passage.passage_id, missing)

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        """Claims, verdicts and the score."""
        request = judge_pb2.GradeAnswerRequest(
            question=question,
            answer=answer,
            passages=map(convert.passage_to, passages),
            known_claims=map(convert.claim_to, known),
        )
        try:
            reply = await self._stub.GradeAnswer(request, **outgoing(self._signer))
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "judge") from None
        return GradedAnswer(convert.answer_grade_from(reply.grade), convert.model_calls_from(reply.usage))

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        """Verdicts on the claims of a segment."""
        request = judge_pb2.CheckClaimsRequest(
            question=question, segment=segment, passages=map(convert.passage_to, passages), preceding=preceding
        )
        try:
            reply = await self._stub.CheckClaims(request, **outgoing(self._signer))
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "judge") from None
        return CheckedSegment(
            tuple(map(convert.claim_from, reply.claims)),
            tuple(map(convert.finding_from, reply.findings)),
            convert.model_calls_from(reply.usage),
        )

    async def review_draft(self, draft: DraftToReview) -> ReviewOfDraft:
        """Scores, issues and suggestions."""
        request = judge_pb2.ReviewDraftRequest(
            task=draft.task,
            draft=draft.text,
            criteria=map(convert_drafts.criterion_to, draft.criteria),
            overall_threshold=draft.overall_threshold,
            passages=map(convert.passage_to, draft.passages),
        )
        try:
            reply = await self._stub.ReviewDraft(request, **outgoing(self._signer))
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "judge") from None
        return ReviewOfDraft(convert_drafts.review_from(reply.review), convert.model_calls_from(reply.usage))


class GeneratorClient:
    """Writes."""

    def __init__(self, channel: grpc.aio.Channel, signer: IdentitySigner | None = None) -> None:
        self._stub = generator_grpc.GeneratorServiceStub(channel)
        self._signer = signer

    async def broaden_query(self, question: str, current: str, tried: tuple[str, ...]) -> BroadenedQuery:
        """A query that was not tried yet."""
        request = generator_pb2.BroadenQueryRequest(question=question, current_query=current, tried_queries=tried)
        try:
            reply = await self._stub.BroadenQuery(request, **outgoing(self._signer))
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "generator") from None
        calls = convert.model_calls_from(reply.usage)
        # A model's text; see NoNul.
        query = reply.query.replace("\0", " ")
        return BroadenedQuery(query, reply.exhausted, tuple(reply.removed_terms), calls)

    async def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        """Deltas, then the whole answer."""
        request = generator_pb2.GenerateAnswerRequest(
            question=question, passages=[convert.passage_to(passage) for passage in passages]
        )
        async for piece in _written(self._stub.GenerateAnswer(request, **outgoing(self._signer)), _answer):
            yield piece

    async def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        """Deltas, then the whole corrected answer."""
        request = generator_pb2.RefineAnswerRequest(
            question=question,
            answer=answer,
            passages=[convert.passage_to(passage) for passage in passages],
            failing_claims=[convert.claim_to(claim) for claim in failing],
            refinement_suggestion=suggestion,
        )
        async for piece in _written(self._stub.RefineAnswer(request, **outgoing(self._signer)), _correction):
            yield piece

    async def write_draft(
        self, task: str, passages: tuple[Passage, ...], criteria: tuple[Criterion, ...]
    ) -> AsyncIterator[str | WrittenDraft]:
        """Deltas, then the whole draft."""
        request = generator_pb2.WriteDraftRequest(
            task=task,
            passages=map(convert.passage_to, passages),
            criteria=map(convert_drafts.criterion_to, criteria),
        )
        async for piece in _written(self._stub.WriteDraft(request, **outgoing(self._signer)), _draft):
            yield piece

    async def revise_draft(self, draft: DraftToRevise) -> AsyncIterator[str | WrittenDraft]:
        """Deltas, then the whole revised draft."""
        request = generator_pb2.ReviseDraftRequest(
            task=draft.task,
            draft=draft.text,
            passages=map(convert.passage_to, draft.passages),
            criteria=map(convert_drafts.criterion_to, draft.criteria),
            issues=map(convert_drafts.issue_to, draft.issues),
            suggestions=draft.suggestions,
            failing_claims=map(convert.claim_to, draft.failing),
            feedback=draft.feedback,
        )
        async for piece in _written(self._stub.ReviseDraft(request, **outgoing(self._signer)), _draft):
            yield piece


def _passage_result(reply: judge_pb2.GradePassagesResponse) -> PassageResult:
    graded = reply.WhichOneof("result") == "grade"
    result: PassageGrade | ErrataError = convert.grade_from(reply.grade) if graded else from_detail(reply.error)
    return PassageResult(reply.passage_id, result, convert.model_calls_from(reply.usage))


def _answer(reply: Any) -> WrittenAnswer:
    return WrittenAnswer(convert.answer_from(reply.answer), convert.model_calls_from(reply.usage))


def _correction(reply: Any) -> WrittenAnswer:
    edits, rejected = map(convert.edit_from, reply.edits), map(convert.rejected_from, reply.rejected_edits)
    return replace(_answer(reply), edits=tuple(edits), rejected=tuple(rejected))


def _draft(reply: Any) -> WrittenDraft:
    return WrittenDraft(convert_drafts.draft_from(reply.draft), convert.model_calls_from(reply.usage))


async def _written(call: Any, whole: Callable[[Any], Whole]) -> AsyncIterator[str | Whole]:
    ended = False
    async with reading(call) as replies:
        try:
            async for reply in replies:
                if reply.WhichOneof("result") == "delta":
                    yield reply.delta
                else:
                    ended = True
                    yield whole(reply)
        except grpc.aio.AioRpcError as error:
            raise _failure(error, "generator") from None
    if not ended:
        raise ModelTruncated("The generator's stream ended without the whole text")
