"""The judge: is a passage relevant, is an answer faithful, is a draft good?"""

from collections.abc import AsyncGenerator, Iterable

import grpc
from errata.corpus.v1 import passage_pb2
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as pb2
from errata.judge.v1 import judge_service_pb2_grpc as pb2_grpc

from errata_client.calls import Caller


class Judge:
    """JudgeService. timeout is in seconds, None for CALL_SECONDS. Every method raises ErrataError; `why` is the reason."""

    def __init__(self, caller: Caller, channel: grpc.aio.Channel) -> None:
        self._caller = caller
        self._stub = pb2_grpc.JudgeServiceStub(channel)

    def grade_passages(
        self, question: str, passages: Iterable[passage_pb2.Passage], *, timeout: float | None = None
    ) -> AsyncGenerator[pb2.GradePassagesResponse, None]:
        """A grade or an error a passage, in the order in which they are done."""
        request = pb2.GradePassagesRequest(question=question, passages=passages)
        return self._caller.stream(self._stub.GradePassages, request, timeout)

    async def grade_answer(
        self,
        question: str,
        answer: str,
        passages: Iterable[passage_pb2.Passage],
        *,
        known_claims: Iterable[grading_pb2.Claim] = (),
        timeout: float | None = None,
    ) -> pb2.GradeAnswerResponse:
        """Whether the passages support each claim of the answer. known_claims: those that were checked against them before."""
        request = pb2.GradeAnswerRequest(question=question, answer=answer, passages=passages, known_claims=known_claims)
        reply: pb2.GradeAnswerResponse = await self._caller.unary(self._stub.GradeAnswer, request, timeout)
        return reply

    async def check_claims(
        self,
        question: str,
        segment: str,
        passages: Iterable[passage_pb2.Passage],
        *,
        preceding: str = "",
        timeout: float | None = None,
    ) -> pb2.CheckClaimsResponse:
        """Whether the passages support each claim of some sentences of an answer, which need not be complete. preceding: what
        the answer says before them.
        """
        request = pb2.CheckClaimsRequest(question=question, segment=segment, passages=passages, preceding=preceding)
        reply: pb2.CheckClaimsResponse = await self._caller.unary(self._stub.CheckClaims, request, timeout)
        return reply

    async def review_draft(
        self,
        task: str,
        draft: str,
        *,
        criteria: Iterable[grading_pb2.Criterion] = (),
        passages: Iterable[passage_pb2.Passage] = (),
        overall_threshold: float | None = None,
        timeout: float | None = None,
    ) -> pb2.ReviewDraftResponse:
        """A score for each criterion, and what follows from them. overall_threshold: 0–1, None for 0.85."""
        request = pb2.ReviewDraftRequest(
            task=task, draft=draft, criteria=criteria, passages=passages, overall_threshold=overall_threshold
        )
        reply: pb2.ReviewDraftResponse = await self._caller.unary(self._stub.ReviewDraft, request, timeout)
        return reply
