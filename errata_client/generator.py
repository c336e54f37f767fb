"""The generator: queries, answers, drafts and their corrections."""

from collections.abc import AsyncGenerator, Iterable

import grpc
from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as pb2
from errata.generator.v1 import generator_service_pb2_grpc as pb2_grpc
from errata.grading.v1 import grading_pb2

from errata_client.calls import Caller


class Generator:
    """GeneratorService. timeout is in seconds, None for CALL_SECONDS. Every method raises ErrataError; `why` is the reason.

    Streams are any number of deltas and then exactly one whole text, whose words count: the deltas are a preview.
    """

    def __init__(self, caller: Caller, channel: grpc.aio.Channel) -> None:
        self._caller = caller
        self._stub = pb2_grpc.GeneratorServiceStub(channel)

    async def broaden_query(
        self, question: str, *, current_query: str = "", tried_queries: Iterable[str] = (), timeout: float | None = None
    ) -> pb2.BroadenQueryResponse:
        """The query to try next, or that nothing new is left."""
        request = pb2.BroadenQueryRequest(question=question, current_query=current_query, tried_queries=tried_queries)
        reply: pb2.BroadenQueryResponse = await self._caller.unary(self._stub.BroadenQuery, request, timeout)
        return reply

    def generate_answer(
        self, question: str, passages: Iterable[passage_pb2.Passage], *, timeout: float | None = None
    ) -> AsyncGenerator[pb2.GenerateAnswerResponse, None]:
        """An answer that rests on the passages, best first, and cites them."""
        request = pb2.GenerateAnswerRequest(question=question, passages=passages)
        return self._caller.stream(self._stub.GenerateAnswer, request, timeout)

    def refine_answer(
        self, request: pb2.RefineAnswerRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[pb2.RefineAnswerResponse, None]:
        """The answer with the sentences of its failing claims corrected or removed, and nothing else changed.

        The last message has the edits, which lead from the answer before to this one, and those of a model that were rejected.
        """
        return self._caller.stream(self._stub.RefineAnswer, request, timeout)

    def write_draft(
        self,
        task: str,
        *,
        passages: Iterable[passage_pb2.Passage] = (),
        criteria: Iterable[grading_pb2.Criterion] = (),
        timeout: float | None = None,
    ) -> AsyncGenerator[pb2.WriteDraftResponse, None]:
        """A draft for a task. With passages it rests on them alone."""
        request = pb2.WriteDraftRequest(task=task, passages=passages, criteria=criteria)
        return self._caller.stream(self._stub.WriteDraft, request, timeout)

    def revise_draft(
        self, request: pb2.ReviseDraftRequest, *, timeout: float | None = None
    ) -> AsyncGenerator[pb2.ReviseDraftResponse, None]:
        """The draft with what was found wanting changed."""
        return self._caller.stream(self._stub.ReviseDraft, request, timeout)
