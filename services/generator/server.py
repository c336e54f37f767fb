"""GeneratorService over gRPC: one short method an RPC."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from errata.generator.v1 import generator_service_pb2 as pb2
from errata.generator.v1 import generator_service_pb2_grpc as pb2_grpc

from errata_kit.metrics import Metrics
from errata_kit.rpc.context import Context
from errata_kit.rpc.server import Service
from services.generator import convert
from services.generator.broadening import broaden
from services.generator.joining import End, joined
from services.generator.provider import Provider, Written, refusal
from services.generator.providers import open_provider
from services.generator.settings import GeneratorSettings


class GeneratorServicer(pb2_grpc.GeneratorServiceServicer):
    """Hands requests to the provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def BroadenQuery(self, request: pb2.BroadenQueryRequest, context: Context) -> pb2.BroadenQueryResponse:  # noqa: N802
        """Another query."""
        asked = convert.broaden_from(request)
        current = asked.current_query or asked.question
        return convert.broadened_to(await broaden(self._provider, asked.question, current, asked.tried_queries))

    async def GenerateAnswer(  # noqa: N802
        self, request: pb2.GenerateAnswerRequest, context: Context
    ) -> AsyncIterator[pb2.GenerateAnswerResponse]:
        """Stream an answer. Without passages nobody is asked."""
        asked = convert.generate_from(request)
        if not asked.passages:
            yield convert.generated_to(Written(refusal("")))
            return
        async with _joined(self._provider.answer(asked.question, asked.passages)) as pieces:
            async for piece in pieces:
                yield convert.generated_to(piece)

    async def RefineAnswer(  # noqa: N802
        self, request: pb2.RefineAnswerRequest, context: Context
    ) -> AsyncIterator[pb2.RefineAnswerResponse]:
        """Stream a corrected answer."""
        async with _joined(self._provider.refine(convert.refine_from(request))) as pieces:
            async for piece in pieces:
                yield convert.refined_to(piece)

    async def WriteDraft(  # noqa: N802
        self, request: pb2.WriteDraftRequest, context: Context
    ) -> AsyncIterator[pb2.WriteDraftResponse]:
        """Stream a draft."""
        async with _joined(self._provider.write(convert.write_from(request))) as pieces:
            async for piece in pieces:
                yield convert.written_to(piece)

    async def ReviseDraft(  # noqa: N802
        self, request: pb2.ReviseDraftRequest, context: Context
    ) -> AsyncIterator[pb2.ReviseDraftResponse]:
        """Stream a revised draft."""
        async with _joined(self._provider.revise(convert.revise_from(request))) as pieces:
            async for piece in pieces:
                yield convert.revised_to(piece)


@contextlib.asynccontextmanager
async def _joined(pieces: AsyncGenerator[str | End, None]) -> AsyncIterator[AsyncGenerator[str | End, None]]:
    async with contextlib.aclosing(pieces), contextlib.aclosing(joined(pieces)) as joint:
        yield joint


async def build(settings: GeneratorSettings) -> Service:
    """Put the service together."""
    metrics = Metrics()
    provider, ready, close = open_provider(settings, metrics)
    servicer = GeneratorServicer(provider)
    return Service(
        name="generator",
        port=settings.port,
        metrics_port=settings.metrics_port,
        proto_name="errata.generator.v1.GeneratorService",
        register=lambda server: pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server),
        metrics=metrics,
        ready=ready,
        close=close,
    )
