"""Starts the real services on free loopback ports of the test process, and scripted ones to put below the orchestrator.

Each helper is an async context manager that yields a `Served`: a stub on a channel of its own, without retries, so that a
test sees the first status that the service sends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc
from google.rpc import error_details_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_status import rpc_status

from errata_kit.errors import ErrataError
from errata_kit.metrics import Metrics
from errata_kit.rpc import server as rpc_server
from errata_kit.rpc.limits import MESSAGE_BYTES
from errata_kit.rpc.status import to_detail
from errata_kit.settings import ServiceSettings
from services.generator import server as generator_server
from services.generator.settings import GeneratorSettings
from services.judge import server as judge_server
from services.judge.settings import JudgeSettings
from services.orchestrator import server as orchestrator_server
from services.orchestrator.settings import OrchestratorSettings
from services.retriever import server as retriever_server
from services.retriever.settings import RetrieverSettings
from tests.harness.model_server import ModelServer

CALL_SECONDS = 20.0
"""Longest call of a test, so that none hangs."""
_FREE_PORTS: dict[str, Any] = {"port": 0, "metrics_port": 0}
_OPTIONS = [("grpc.max_receive_message_length", MESSAGE_BYTES), ("grpc.max_send_message_length", MESSAGE_BYTES)]


@dataclass(frozen=True, slots=True)
class Served:
    """A service under test. `target` is its address, `stub` its client."""

    target: str
    stub: Any
    channel: grpc.aio.Channel
    running: rpc_server.RunningServer
    service: rpc_server.Service


# --- the real services ------------------------------------------------------------------------------------------------


def judge(model: ModelServer | None = None, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The judge, with the openai provider when there is a model server, else offline."""
    chosen = JudgeSettings(**_provider(model, settings))
    return _built(lambda: judge_server.build(chosen), chosen, judge_grpc.JudgeServiceStub)


def generator(model: ModelServer | None = None, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The generator, with the openai provider when there is a model server, else offline."""
    chosen = GeneratorSettings(**_provider(model, settings))
    return _built(lambda: generator_server.build(chosen), chosen, generator_grpc.GeneratorServiceStub)


def retriever(folder: Path, embedding: str = "none", **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The retriever on the embedded engine in a folder."""
    chosen = RetrieverSettings(
        **{**_FREE_PORTS, "data_dir": folder, "embedding_provider": embedding, "qdrant_url": "", **settings}
    )
    return _built(lambda: retriever_server.build(chosen), chosen, retriever_grpc.RetrieverServiceStub)


def orchestrator(retriever: str, judge: str, generator: str, **settings: Any) -> contextlib.AbstractAsyncContextManager[Served]:
    """The orchestrator over three addresses. It is ready once all of them serve, unless `wait` is False."""
    wait = bool(settings.pop("wait", True))
    targets = {"retriever_target": retriever, "judge_target": judge, "generator_target": generator}
    chosen = OrchestratorSettings(**{**_FREE_PORTS, **targets, **settings})
    return _built(lambda: orchestrator_server.build(chosen), chosen, orchestrator_grpc.OrchestratorServiceStub, wait=wait)


@contextlib.asynccontextmanager
async def serving(
    service: rpc_server.Service, settings: ServiceSettings, stub: Callable[[grpc.aio.Channel], Any], *, wait: bool = True
) -> AsyncIterator[Served]:
    """Any service inside the block; with `wait`, once it says SERVING."""
    async with rpc_server.running(service, settings) as started:
        target = f"127.0.0.1:{started.port}"
        async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
            if wait:
                await until_serving(channel, service.proto_name)
            yield Served(target, stub(channel), channel, started, service)


def plain_settings(**settings: Any) -> ServiceSettings:
    """What all services have in common, with its defaults."""
    return ServiceSettings(**settings)


async def health_of(channel: grpc.aio.Channel, name: str = "") -> int:
    """The health status that a server tells of a service."""
    stub: Any = health_pb2_grpc.HealthStub(channel)
    reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
    return int(reply.status)


async def until_serving(channel: grpc.aio.Channel, name: str = "") -> None:
    """Wait until a service says SERVING.

    Raises:
        TimeoutError: when it does not within 30 seconds.
    """
    async with asyncio.timeout(30):
        while await health_of(channel, name) != health_pb2.HealthCheckResponse.SERVING:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _built(
    build: Callable[[], Awaitable[rpc_server.Service]], settings: ServiceSettings, stub: Any, *, wait: bool = True
) -> AsyncIterator[Served]:
    async with serving(await build(), settings, stub, wait=wait) as served:
        yield served


def _provider(model: ModelServer | None, settings: dict[str, Any]) -> dict[str, Any]:
    if model is None:
        return {**_FREE_PORTS, "chosen_provider": "offline", **settings}
    reach = {"chosen_provider": "openai", "base_url": model.base_url, "max_attempts": 1, "timeout_seconds": 5.0}
    return {**_FREE_PORTS, **reach, **settings}


# --- what a call came to ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call with its details unpacked. `violations` maps the paths of BadRequest to what must hold."""

    code: grpc.StatusCode
    message: str
    reason: str
    domain: str
    metadata: dict[str, str]
    violations: dict[str, str]
    retry_after: float | None
    resource: tuple[str, str] | None
    trailers: dict[str, str]
    received: tuple[Any, ...]


async def failure_of(call: Any) -> Failure:
    """Read a call to its end, which must be a failure. `received` holds the messages that came before."""
    received: list[Any] = []
    try:
        if hasattr(call, "__aiter__"):
            async for message in call:
                received.append(message)
        else:
            received.append(await call)
    except grpc.aio.AioRpcError as error:
        return read_failure(error, received)
    raise AssertionError(f"the call succeeded with {received!r}"[:2000])


def read_failure(error: grpc.aio.AioRpcError, received: Sequence[Any] = ()) -> Failure:
    """Unpack the details of a failed call."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # an AioRpcError has all that is read of a Call
    info = error_details_pb2.ErrorInfo()
    bad = error_details_pb2.BadRequest()
    retry: error_details_pb2.RetryInfo | None = None
    resource: error_details_pb2.ResourceInfo | None = None
    for packed in status.details if status is not None else ():
        if packed.Is(info.DESCRIPTOR):
            packed.Unpack(info)
        elif packed.Is(bad.DESCRIPTOR):
            packed.Unpack(bad)
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            packed.Unpack(retry)
        elif packed.Is(error_details_pb2.ResourceInfo.DESCRIPTOR):
            resource = error_details_pb2.ResourceInfo()
            packed.Unpack(resource)
    return Failure(
        code=error.code(),
        message=error.details() or "",
        reason=info.reason,
        domain=info.domain,
        metadata=dict(info.metadata),
        violations={item.field: item.description for item in bad.field_violations},
        retry_after=None if retry is None else retry.retry_delay.ToNanoseconds() / 1e9,
        resource=None if resource is None else (resource.resource_type, resource.resource_name),
        trailers={key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)},
        received=tuple(received),
    )


async def collected(call: Any) -> list[Any]:
    """Every message of a stream that ends well."""
    return [message async for message in call]


def passage(passage_id: str, text: str = "", **fields: Any) -> passage_pb2.Passage:
    """A passage as a message."""
    return passage_pb2.Passage(passage_id=passage_id, text=text or f"The text of {passage_id}.", **fields)


# --- scripted services below the orchestrator -------------------------------------------------------------------------


Graded = float | ErrataError
Step = Callable[[], Awaitable[None]]


async def go_on() -> None:
    """A step that waits for nothing."""


@dataclass
class FakeRetriever(retriever_grpc.RetrieverServiceServicer):
    """Finds, at the n-th search, the passages that `found` names n-th; the last entry holds for all later searches."""

    found: Sequence[Sequence[str]] = (("p1", "p2"),)
    before: Step = go_on
    searches: list[retriever_pb2.SearchRequest] = field(default_factory=list)
    cancelled: int = 0

    async def Search(self, request: retriever_pb2.SearchRequest, context: Any) -> retriever_pb2.SearchResponse:  # noqa: N802
        self.searches.append(request)
        try:
            await self.before()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        ids = self.found[min(len(self.searches), len(self.found)) - 1]
        scored = [retriever_pb2.ScoredPassage(passage=passage(item), score=1 / (1 + place)) for place, item in enumerate(ids)]
        return retriever_pb2.SearchResponse(passages=scored, mode="SEARCH_MODE_SPARSE")


@dataclass
class FakeJudge(judge_grpc.JudgeServiceServicer):
    """Gives each passage the score, or the error, that `scores` has for it (1.0 where it has none); `answers` are its grades
    of answers in order, the last one for ever.
    """

    scores: dict[str, Graded] = field(default_factory=dict)
    answers: Sequence[grading_pb2.AnswerGrade | ErrataError] = ()
    before: Step = go_on
    before_passage: Callable[[str], Awaitable[None]] | None = None
    passage_requests: list[judge_pb2.GradePassagesRequest] = field(default_factory=list)
    answer_requests: list[judge_pb2.GradeAnswerRequest] = field(default_factory=list)
    cancelled: int = 0

    async def GradePassages(  # noqa: N802
        self, request: judge_pb2.GradePassagesRequest, context: Any
    ) -> AsyncIterator[judge_pb2.GradePassagesResponse]:
        self.passage_requests.append(request)
        try:
            await self.before()
            for item in request.passages:
                if self.before_passage is not None:
                    await self.before_passage(item.passage_id)
                yield self._graded(item.passage_id)
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def GradeAnswer(self, request: judge_pb2.GradeAnswerRequest, context: Any) -> judge_pb2.GradeAnswerResponse:  # noqa: N802
        self.answer_requests.append(request)
        grade = self.answers[min(len(self.answer_requests), len(self.answers)) - 1] if self.answers else faithful()
        if isinstance(grade, ErrataError):
            raise grade
        return judge_pb2.GradeAnswerResponse(grade=grade)

    def _graded(self, passage_id: str) -> judge_pb2.GradePassagesResponse:
        score = self.scores.get(passage_id, 1.0)
        if isinstance(score, ErrataError):
            return judge_pb2.GradePassagesResponse(passage_id=passage_id, error=to_detail(score))
        grade = grading_pb2.PassageGrade(score=score, relevant=score >= 0.5, reasoning="scripted")
        return judge_pb2.GradePassagesResponse(passage_id=passage_id, grade=grade)


@dataclass
class FakeGenerator(generator_grpc.GeneratorServiceServicer):
    """Writes `answer` in its words; `refined` are its corrections in order; `queries` are what it broadens to, in order, and
    then it is exhausted.
    """

    answer: str = "The text of p1. [1]"
    refined: Sequence[str] = ("The corrected text. [1]",)
    queries: Sequence[str] = ("broader one", "broader two")
    refuses: bool = False
    before: Step = go_on
    between: Step = go_on
    broaden_requests: list[generator_pb2.BroadenQueryRequest] = field(default_factory=list)
    answer_requests: list[generator_pb2.GenerateAnswerRequest] = field(default_factory=list)
    refine_requests: list[generator_pb2.RefineAnswerRequest] = field(default_factory=list)
    cancelled: int = 0

    async def BroadenQuery(  # noqa: N802
        self, request: generator_pb2.BroadenQueryRequest, context: Any
    ) -> generator_pb2.BroadenQueryResponse:
        self.broaden_requests.append(request)
        if len(self.broaden_requests) > len(self.queries):
            return generator_pb2.BroadenQueryResponse(exhausted=True)
        return generator_pb2.BroadenQueryResponse(query=self.queries[len(self.broaden_requests) - 1], removed_terms=["1.18"])

    async def GenerateAnswer(  # noqa: N802
        self, request: generator_pb2.GenerateAnswerRequest, context: Any
    ) -> AsyncIterator[generator_pb2.GenerateAnswerResponse]:
        self.answer_requests.append(request)
        ids = [item.passage_id for item in request.passages]
        async for piece in self._pieces(self.answer):
            yield generator_pb2.GenerateAnswerResponse(delta=piece)
        yield generator_pb2.GenerateAnswerResponse(answer=_cited(self.answer, ids[:1], self.refuses))

    async def RefineAnswer(  # noqa: N802
        self, request: generator_pb2.RefineAnswerRequest, context: Any
    ) -> AsyncIterator[generator_pb2.RefineAnswerResponse]:
        self.refine_requests.append(request)
        text = self.refined[min(len(self.refine_requests), len(self.refined)) - 1]
        async for piece in self._pieces(text):
            yield generator_pb2.RefineAnswerResponse(delta=piece)
        yield generator_pb2.RefineAnswerResponse(answer=_cited(text, [item.passage_id for item in request.passages][:1]))

    async def _pieces(self, text: str) -> AsyncIterator[str]:
        try:
            await self.before()
            for word in text.split(" "):
                yield f"{word} "
                await self.between()
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise


@dataclass
class Below:
    """The three scripted services that an orchestrator calls."""

    retriever: FakeRetriever = field(default_factory=FakeRetriever)
    judge: FakeJudge = field(default_factory=FakeJudge)
    generator: FakeGenerator = field(default_factory=FakeGenerator)


@contextlib.asynccontextmanager
async def scripted(below: Below, **settings: Any) -> AsyncIterator[Served]:
    """A real orchestrator over scripted services, everything on the wire. `settings` may give a target of its own."""
    async with contextlib.AsyncExitStack() as stack:
        targets: dict[str, str] = {}
        for name, register, servicer in (
            ("retriever", retriever_grpc.add_RetrieverServiceServicer_to_server, below.retriever),
            ("judge", judge_grpc.add_JudgeServiceServicer_to_server, below.judge),
            ("generator", generator_grpc.add_GeneratorServiceServicer_to_server, below.generator),
        ):
            served = await stack.enter_async_context(_fake(name, register, servicer))
            targets[name] = settings.pop(name, served)
        yield await stack.enter_async_context(orchestrator(**targets, **settings))


@contextlib.asynccontextmanager
async def _fake(name: str, register: Any, servicer: Any) -> AsyncIterator[str]:
    service = rpc_server.Service(
        name=name,
        port=0,
        metrics_port=0,
        proto_name=f"errata.{name}.v1.{name.capitalize()}Service",
        register=lambda server: register(servicer, server),
        metrics=Metrics(),
    )
    async with rpc_server.running(service, plain_settings()) as started:
        yield f"127.0.0.1:{started.port}"


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


def _cited(text: str, passage_ids: Sequence[str], refusal: bool = False) -> passage_pb2.Answer:
    citations = [
        passage_pb2.Citation(number=number, passage_id=item, span=passage_pb2.Span(end=max(1, len(text) - 4)))
        for number, item in enumerate(passage_ids, start=1)
    ]
    return passage_pb2.Answer(text=text, citations=[] if refusal else citations, model="scripted", refusal=refusal)
