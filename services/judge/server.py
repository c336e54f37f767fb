"""JudgeService over gRPC: one short method an RPC."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from errata.judge.v1 import judge_service_pb2 as pb2
from errata.judge.v1 import judge_service_pb2_grpc as pb2_grpc

from errata_kit.errors import Reason
from errata_kit.grades import FindingKind, InjectionKind, Verdict
from errata_kit.metrics import Metrics, at_zero
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from services.judge import convert
from services.judge.assessment import AnswerAssessor
from services.judge.grading.batch import PassageGrader
from services.judge.providers import open_provider
from services.judge.review.reviewer import DraftReviewer
from services.judge.settings import JudgeSettings

OPERATIONS: Final = ("grade_passage", "check_claims", "review_draft")
"""What is judged, as metrics name it."""


class JudgeServicer(pb2_grpc.JudgeServiceServicer):
    """Hands requests to the grader, the assessor and the reviewer."""

    def __init__(self, grader: PassageGrader, assessor: AnswerAssessor, reviewer: DraftReviewer) -> None:
        self._grader = grader
        self._assessor = assessor
        self._reviewer = reviewer

    async def GradePassages(  # noqa: N802
        self, request: pb2.GradePassagesRequest, context: Context
    ) -> AsyncIterator[pb2.GradePassagesResponse]:
        """Stream each grade as it finishes."""
        asked = convert.grade_passages_from(request)
        async with contextlib.aclosing(self._grader.grade(asked.question, asked.passages)) as results:
            async for result in results:
                yield convert.passage_result_to(result)

    async def GradeAnswer(self, request: pb2.GradeAnswerRequest, context: Context) -> pb2.GradeAnswerResponse:  # noqa: N802
        """Check each claim."""
        asked = convert.grade_answer_from(request)
        graded = await self._assessor.assess(asked.question, asked.answer, asked.passages, asked.known_claims)
        return convert.graded_answer_to(graded)

    async def CheckClaims(self, request: pb2.CheckClaimsRequest, context: Context) -> pb2.CheckClaimsResponse:  # noqa: N802
        """Check the claims of a segment."""
        asked = convert.check_claims_from(request)
        checked = await self._assessor.check(asked.question, asked.segment, asked.passages, asked.preceding)
        return convert.checked_segment_to(checked)

    async def ReviewDraft(self, request: pb2.ReviewDraftRequest, context: Context) -> pb2.ReviewDraftResponse:  # noqa: N802
        """Score a draft by each criterion."""
        return convert.review_to(await self._reviewer.review(convert.review_draft_from(request)))


async def build(settings: JudgeSettings) -> Service:
    """Put the service together."""
    metrics = Metrics()
    provider, ready, close = open_provider(settings, metrics)
    servicer = JudgeServicer(
        PassageGrader(provider, settings.concurrency, metrics, settings.batch_size),
        AnswerAssessor(provider, metrics),
        DraftReviewer(provider, metrics),
    )
    at_zero(metrics.judgements, OPERATIONS)
    at_zero(metrics.judge_failures, OPERATIONS, Reason)
    at_zero(metrics.passage_grades, ("relevant", "irrelevant"))
    at_zero(metrics.claims, Verdict)
    at_zero(metrics.guard_findings, FindingKind)
    at_zero(metrics.injections, InjectionKind)
    at_zero(metrics.cache_requests, ("passage_grades", "claim_verdicts"), ("hit", "miss"))
    return Service(
        name="judge",
        port=settings.port,
        metrics_port=settings.metrics_port,
        proto_name="errata.judge.v1.JudgeService",
        register=lambda server: pb2_grpc.add_JudgeServiceServicer_to_server(servicer, server),
        metrics=metrics,
        ready=ready,
        close=close,
    )
