"""What a run costs beyond its model calls, over the four services and in one process without gRPC.

Run: `.venv/bin/python bench/overhead.py [--embedding local|none] [--json]`. A double of the model API, in a process of its
own, answers each call after 200 ms. A ratio is the median over runs of how long the run took, as its caller sees it, divided
by how long its model calls had to take. In a run that is answered at once these are 600 ms: five passages graded in two calls
side by side, the answer written, its claims checked. Nothing is remembered from one run to the next (no cache). `ratio_N`
is measured with N callers, each of which asks again as soon as it has its answer; `in_process_ratio_N` is the same workflow,
engine, searcher, judge and generator, called directly in this process; at each N the two take turns.

How long the calls had to take comes from the double's journal, so that it stays right for a run that takes another path:
calls of one kind that follow each other in the journal of a run were asked side by side and count once, with the time that
the double took for the longest of them (200 ms and what its timer adds). It is not the time during which calls were open: a
judge that sends its five calls one by one would lengthen that time, and seem cheaper for it.

Passages are found as by default, by the packaged embedding model and by words; embedding the question is part of the run's
own time, on both sides. `--embedding none` leaves the model out.
"""

import argparse
import asyncio
import contextlib
import itertools
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from errata.orchestrator.v1 import orchestrator_service_pb2 as orchestrator_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.orchestrator.v1 import trace_pb2

from bench.doubled import MODEL_CALLS_AT_ONCE, Call, Double, documents, question_about, running_double, suite_variables
from bench.figures import Figure, arguments, print_figures
from bench.refusal import IngestError, ingest
from errata_cli.stack import StackError, StackPlan, starting
from errata_kit.access.principals import DEFAULT_TENANT
from errata_kit.drafts import Criterion
from errata_kit.grades import Claim
from errata_kit.logs import configure_logs
from errata_kit.metrics import Metrics
from errata_kit.passages import Passage
from errata_kit.rpc.channels import open_channel, reading
from services.generator.broadening import broaden
from services.generator.provider import Correction, Written
from services.generator.provider import Provider as GeneratorProvider
from services.generator.providers import open_provider as open_generator
from services.generator.settings import GeneratorSettings
from services.judge.assessment import AnswerAssessor
from services.judge.grading.batch import PassageGrader
from services.judge.providers import open_provider as open_judge
from services.judge.settings import JudgeSettings
from services.orchestrator.opening import opened
from services.orchestrator.runs.engine import EngineSettings, RunEngine
from services.orchestrator.runs.events import Outcome, RunFinished
from services.orchestrator.runs.run import RunOptions
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.graph import AnswerWorkflow
from services.orchestrator.workflows.answer.state import AnswerRequest
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
from services.retriever.convert import passage_of
from services.retriever.documents import SourceDocument
from services.retriever.index.edge import EdgeIndex
from services.retriever.ingest import IngestFailure, Ingestor
from services.retriever.opening import open_embedder
from services.retriever.search import Searcher
from services.retriever.settings import EmbeddingProvider, RetrieverSettings
from services.retriever.tenancy import CollectionRef

COLLECTION: Final = "overhead"
# Callers at a time, and how often each of them asks in a turn.
LEVELS: Final[Mapping[int, int]] = {1: 10, 16: 2, 64: 1}
_TURNS: Final = 3
RATIO_1_AT_MOST: Final = 1.10
_HEALTHY_SECONDS: Final = 120.0
_RUN_SECONDS: Final = 120.0


Ask = Callable[[str], Awaitable[bool]]
"""Asks a question and says whether it was answered."""


class NotAnsweredError(Exception):
    """A run ended otherwise than with an answer, so that its time is not one of the kind that is measured."""


@dataclass(frozen=True, slots=True)
class Run:
    """How long a run took, in seconds."""

    question: str
    seconds: float


def main() -> int:
    """Measure and print; 1 when the suite does not start or a run is not answered."""
    configure_logs("overhead", "warning", "json")
    parser = arguments("Measure what a run costs beyond its model calls.")
    choices = [EmbeddingProvider.LOCAL.value, EmbeddingProvider.NONE.value]
    parser.add_argument("--embedding", choices=choices, default=choices[0], help="default: %(default)s")
    options: argparse.Namespace = parser.parse_args()
    try:
        with running_double() as double, tempfile.TemporaryDirectory() as folder:
            figures = asyncio.run(measure(double, Path(folder), EmbeddingProvider(options.embedding)))
    except (StackError, IngestError, NotAnsweredError) as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0


async def measure(double: "Double", folder: Path, embedding: EmbeddingProvider) -> list[Figure]:
    """Put both sides up on the same documents and return the figures."""
    figures: list[Figure] = []
    numbers = itertools.count(1)
    async with (
        four_services(double.base_url, folder / "suite", embedding) as over_services,
        one_process(double.base_url, folder / "process", embedding) as in_process,
    ):
        sides = {"": over_services, "in_process_": in_process}
        for callers, times in LEVELS.items():
            measured = await _level(double, sides, callers, times, numbers)
            for name, (runs, calls) in measured.items():
                figures += _figures_of(f"{name}ratio_{callers}", f"{name}own_ms_{callers}", runs, calls)
    return sorted(figures, key=lambda figure: "own_ms" in figure.name)


async def _level(
    double: "Double", sides: Mapping[str, Ask], callers: int, times: int, numbers: Iterator[int]
) -> dict[str, tuple[list[Run], list[Call]]]:
    """Have this many callers ask, in turns over the two sides, so that what else the machine does falls on both."""
    found: dict[str, tuple[list[Run], list[Call]]] = {name: ([], []) for name in sides}
    for turn in range(_TURNS + 1):
        for name, ask in sides.items():

            async def caller(ask: Ask = ask, share: int = times if turn else 1) -> list[Run]:
                return [await _timed(ask, next(numbers)) for _ in range(share)]

            runs = itertools.chain.from_iterable(await asyncio.gather(*(caller() for _ in range(callers))))
            calls = double.calls()
            # The first turn warms up.
            if turn:
                found[name][0].extend(runs)
                found[name][1].extend(calls)
    return found


async def _timed(ask: Ask, number: int) -> Run:
    question = question_about(number)
    started = time.perf_counter()
    answered = await ask(question)
    seconds = time.perf_counter() - started
    if not answered:
        raise NotAnsweredError(f"The run was not answered: {question}")
    return Run(question, seconds)


def _figures_of(ratio: str, own: str, runs: Sequence[Run], calls: Iterable[Call]) -> list[Figure]:
    by_question: defaultdict[str, list[Call]] = defaultdict(list)
    for call in calls:
        by_question[call.question].append(call)
    needed = {question: needed_seconds(made) for question, made in by_question.items()}
    bound = RATIO_1_AT_MOST if ratio == "ratio_1" else None
    return [
        Figure(ratio, statistics.median(run.seconds / needed[run.question] for run in runs), at_most=bound),
        Figure(own, statistics.median(run.seconds - needed[run.question] for run in runs) * 1000),
    ]


def needed_seconds(calls: Iterable[Call]) -> float:
    """How long the model calls of one run had to take: for each row of calls of one kind, the longest."""
    rows = itertools.groupby(sorted(calls, key=lambda call: call.started), key=lambda call: call.kind)
    return sum(max(call.seconds for call in row) for _, row in rows)


@contextlib.asynccontextmanager
async def four_services(base_url: str, folder: Path, embedding: EmbeddingProvider) -> AsyncIterator[Ask]:
    """The suite as four processes; what is yielded asks the orchestrator."""
    variables = {**suite_variables(base_url, embedding), "ERRATA_CACHE_ENTRIES": "0"}
    async with starting(StackPlan.on_free_ports(folder, variables), lambda name, line: None) as stack:
        await stack.healthy(_HEALTHY_SECONDS)
        await ingest(stack, COLLECTION, [{"id": name, "text": text} for name, text in documents()])
        async with open_channel(stack.plan.target("orchestrator")) as channel:
            stub = orchestrator_grpc.OrchestratorServiceStub(channel)

            async def ask(question: str) -> bool:
                outcome = trace_pb2.OUTCOME_UNSPECIFIED
                request = orchestrator_pb2.AskRequest(question=question, collection=COLLECTION)
                async with reading(stub.Ask(request, timeout=_RUN_SECONDS)) as replies:
                    async for reply in replies:
                        if reply.event.WhichOneof("payload") == "run_finished":
                            outcome = reply.event.run_finished.outcome
                return outcome == trace_pb2.OUTCOME_ANSWERED

            yield ask


@contextlib.asynccontextmanager
async def one_process(base_url: str, folder: Path, embedding: EmbeddingProvider) -> AsyncIterator[Ask]:
    """The same workflow on the same code in this process; what is yielded starts a run and watches it."""
    metrics = Metrics()
    at_once = {
        "ERRATA_LLM_MAX_CONCURRENCY": MODEL_CALLS_AT_ONCE,
        "OPENAI_BASE_URL": base_url,
        "ERRATA_LLM_PROVIDER": "openai",
        "ERRATA_CACHE_ENTRIES": 0,
    }
    judge_settings = JudgeSettings.model_validate(at_once)
    embedder = open_embedder(RetrieverSettings.model_validate({"RETRIEVER_EMBEDDING_PROVIDER": embedding}), metrics)
    grading, judge_ready, close_judge = open_judge(judge_settings, metrics)
    writing, generator_ready, close_generator = open_generator(GeneratorSettings.model_validate(at_once), metrics)
    await asyncio.gather(embedder.warm_up(), judge_ready(), generator_ready())
    index = await EdgeIndex.open(folder)
    async for result in Ingestor(index, embedder).ingest(CollectionRef(DEFAULT_TENANT, COLLECTION), _sources()):
        if isinstance(result, IngestFailure):
            raise IngestError(f"{result.document_id} was not ingested: {result.error.message}")
    stack = contextlib.AsyncExitStack()
    keeping = OrchestratorSettings.model_validate({"ERRATA_DATA_DIR": folder / "runs", "ERRATA_DATABASE_URL": None})
    storage = await stack.enter_async_context(opened(keeping, "bench"))
    workflow = AnswerWorkflow(
        DirectRetriever(Searcher(index, embedder)),
        DirectJudge(
            PassageGrader(grading, judge_settings.concurrency, metrics, judge_settings.batch_size),
            AnswerAssessor(grading, metrics),
        ),
        DirectGenerator(writing),
        storage.checkpoints,
    )
    limits = EngineSettings("bench", timeout=_RUN_SECONDS, lease=storage.lease_seconds, outage=0.0)
    engine = RunEngine(storage.store, storage.signals, (workflow,), metrics, limits)
    stack.push_async_callback(engine.aclose)

    async def ask(question: str) -> bool:
        run_id, _ = await engine.start("answer", AnswerRequest(question, COLLECTION), RunOptions(seconds=_RUN_SECONDS))
        outcome = Outcome.FAILED
        async with contextlib.aclosing(engine.watch(DEFAULT_TENANT, run_id)) as trace:
            async for event in trace:
                if isinstance(event.payload, RunFinished):
                    outcome = event.payload.outcome
        return outcome is Outcome.ANSWERED

    try:
        yield ask
    finally:
        await stack.aclose()
        await asyncio.gather(close_judge(), close_generator(), embedder.close())
        await index.close()


async def _sources() -> AsyncIterator[SourceDocument]:
    for name, text in documents():
        yield SourceDocument(name, text.encode())


class DirectRetriever:
    """The retriever's searcher as the workflow's port."""

    def __init__(self, searcher: Searcher) -> None:
        self._searcher = searcher

    async def search(self, search: PassageSearch) -> tuple[Passage, ...]:
        """See the port."""
        ref = CollectionRef(DEFAULT_TENANT, search.collection)
        found, _ = await self._searcher.search(ref, search.query, search.mode, search.top_k, search.filter)
        return tuple(passage_of(item) for item in found)


class DirectJudge:
    """The judge's grader and assessor as the workflow's port."""

    def __init__(self, grader: PassageGrader, assessor: AnswerAssessor) -> None:
        self._grader = grader
        self._assessor = assessor

    async def grade_passages(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[PassageResult]:
        """See the port."""
        async with contextlib.aclosing(self._grader.grade(question, passages)) as results:
            async for item in results:
                yield PassageResult(item.passage_id, item.result, item.model_calls)

    async def grade_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], known: tuple[Claim, ...] = ()
    ) -> GradedAnswer:
        """See the port."""
        graded = await self._assessor.assess(question, answer, passages, known)
        return GradedAnswer(graded.grade, graded.model_calls)

    async def check_claims(self, question: str, segment: str, passages: tuple[Passage, ...], preceding: str) -> CheckedSegment:
        """See the port."""
        checked = await self._assessor.check(question, segment, passages, preceding)
        return CheckedSegment(checked.claims, checked.findings, checked.model_calls)

    async def review_draft(self, draft: DraftToReview) -> ReviewOfDraft:
        """See the port."""
        raise NotImplementedError("answer runs review no drafts")


class DirectGenerator:
    """The generator's provider as the workflow's port."""

    def __init__(self, provider: GeneratorProvider) -> None:
        self._provider = provider

    async def broaden_query(self, question: str, current: str, tried: tuple[str, ...]) -> BroadenedQuery:
        """See the port."""
        broadened = await broaden(self._provider, question, current, tried)
        return BroadenedQuery(broadened.query, not broadened.query, broadened.removed_terms, broadened.model_calls)

    async def generate_answer(self, question: str, passages: tuple[Passage, ...]) -> AsyncIterator[str | WrittenAnswer]:
        """See the port."""
        async with contextlib.aclosing(self._provider.answer(question, passages)) as pieces:
            async for piece in pieces:
                yield _for_workflow(piece)

    async def refine_answer(
        self, question: str, answer: str, passages: tuple[Passage, ...], failing: tuple[Claim, ...], suggestion: str
    ) -> AsyncIterator[str | WrittenAnswer]:
        """See the port."""
        correction = Correction(question, answer, passages, failing, suggestion)
        async with contextlib.aclosing(self._provider.refine(correction)) as pieces:
            async for piece in pieces:
                yield _for_workflow(piece)

    def write_draft(
        self, task: str, passages: tuple[Passage, ...], criteria: tuple[Criterion, ...]
    ) -> AsyncIterator[str | WrittenDraft]:
        """See the port."""
        raise NotImplementedError("answer runs write no drafts")

    def revise_draft(self, draft: DraftToRevise) -> AsyncIterator[str | WrittenDraft]:
        """See the port."""
        raise NotImplementedError("answer runs revise no drafts")


def _for_workflow(piece: str | Written) -> str | WrittenAnswer:
    return WrittenAnswer(piece.answer, piece.model_calls) if isinstance(piece, Written) else piece


if __name__ == "__main__":
    raise SystemExit(main())
