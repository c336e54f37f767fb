"""How often the offline suite answers what its documents answer, and refuses what they don't.

Run: `.venv/bin/python bench/refusal.py [--data FILE] [--json]`. The four services start as `errata up` starts them, with the
packaged embedding model and without a language model; every passage of corpus.jsonl beside FILE goes in as one document;
then each question that FILE calls ANSWERABLE or UNANSWERABLE is asked by itself, with the product's default limits.

`refused_unanswerable` and `refused_answerable` are the shares of runs that released no answer, among the runs that came to an
end of their own. A run that failed, timed out or was cancelled is no refusal: `failed` counts it and no share does.
Embedding the corpus takes most of the time, minutes on two cores.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as orchestrator_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from errata.retriever.v1 import retriever_service_pb2_grpc as retriever_grpc

from bench.figures import MTRAG, Figure, Progress, arguments, print_figures, read_rows, require
from errata_cli.stack import Stack, StackError, StackPlan, starting
from errata_kit.rpc.channels import open_channel, reading

COLLECTION: Final = "mtrag"
# Whatever the surroundings say: nothing but this machine's own processor is asked.
OFFLINE: Final[Mapping[str, str | None]] = {
    "ERRATA_LLM_PROVIDER": "offline",
    "RETRIEVER_EMBEDDING_PROVIDER": "local",
    "QDRANT_URL": None,
    "OPENAI_API_KEY": None,
    "OPENAI_BASE_URL": None,
}
ANSWERED: Final = frozenset({"ANSWERED", "ANSWERED_AFTER_REFINEMENT"})
REFUSED: Final = frozenset({"REFUSED_NO_EVIDENCE", "REFUSED_UNFAITHFUL"})
_AT_A_TIME: Final = 4
_HEALTHY_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and whether the corpus answers it."""

    text: str
    answerable: bool


@dataclass(frozen=True, slots=True)
class Ended:
    """A question's run: the outcome's name, and the reason when it failed."""

    question: Question
    outcome: str
    reason: str = ""


class IngestError(Exception):
    """A document was not taken, so that the figures would be those of another corpus."""


def main() -> int:
    """Measure and print; 1 when the suite does not start or does not take the corpus."""
    parser = arguments("Measure how often the offline suite refuses.", MTRAG / "answerability.jsonl")
    options = parser.parse_args()
    corpus = options.data.parent / "corpus.jsonl"
    require((options.data, corpus))
    try:
        figures = asyncio.run(measure(read_rows(corpus), questions(read_rows(options.data))))
    except (StackError, IngestError) as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0


def questions(rows: Sequence[Mapping[str, Any]]) -> list[Question]:
    """The questions that either can or can't be answered; those in between are left out."""
    kinds = {"ANSWERABLE": True, "UNANSWERABLE": False}
    return [Question(row["question"], kinds[row["answerability"]]) for row in rows if row["answerability"] in kinds]


async def measure(corpus: Sequence[Mapping[str, str]], asked: Sequence[Question]) -> list[Figure]:
    """Run the suite in a folder that is gone afterwards, and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        plan = StackPlan.on_free_ports(Path(folder), OFFLINE)
        async with starting(plan, lambda name, line: None) as stack:
            await stack.healthy(_HEALTHY_SECONDS)
            started = time.perf_counter()
            await ingest(stack, COLLECTION, corpus)
            ingested = time.perf_counter()
            runs = await ask_all(stack, asked)
            ended = time.perf_counter()
    seconds = (Figure("ingest_seconds", ingested - started), Figure("seconds", ended - started))
    return [*figures_of(runs), *seconds]


async def ingest(stack: Stack, collection: str, corpus: Sequence[Mapping[str, str]]) -> None:
    """Put every passage in as a document of its own. Raises IngestError when one is not taken."""
    progress = Progress("documents ingested", len(corpus))

    async def requests() -> AsyncIterator[retriever_pb2.IngestDocumentsRequest]:
        for row in corpus:
            document = retriever_pb2.Document(document_id=row["id"], text=row["text"])
            yield retriever_pb2.IngestDocumentsRequest(collection=collection, document=document)

    async with open_channel(stack.plan.target("retriever")) as channel:
        stub = retriever_grpc.RetrieverServiceStub(channel)
        async with reading(stub.IngestDocuments(requests())) as replies:
            async for reply in replies:
                if reply.WhichOneof("result") == "error":
                    raise IngestError(f"{reply.document_id} was not ingested: {reply.error.message}")
                progress.advance()


async def ask_all(stack: Stack, asked: Sequence[Question]) -> list[Ended]:
    """Ask every question, a few at a time, and return the runs in the order of the questions."""
    progress = Progress("questions asked", len(asked))
    room = asyncio.Semaphore(_AT_A_TIME)
    async with open_channel(stack.plan.target("orchestrator")) as channel:
        stub = orchestrator_grpc.OrchestratorServiceStub(channel)

        async def one(question: Question) -> Ended:
            async with room:
                ended = await ask(stub, question)
            progress.advance()
            return ended

        return await asyncio.gather(*(one(question) for question in asked))


async def ask(stub: orchestrator_grpc.OrchestratorServiceStub, question: Question) -> Ended:
    """Ask one question. What ends without a terminal event is FAILED."""
    finished: trace_pb2.RunFinished | None = None
    request = orchestrator_pb2.AskRequest(question=question.text, collection=COLLECTION)
    async with reading(stub.Ask(request)) as replies:
        try:
            async for reply in replies:
                if reply.event.WhichOneof("payload") == "run_finished":
                    finished = reply.event.run_finished
        except grpc.aio.AioRpcError as error:
            # Behind the terminal event the status repeats what the event said.
            if finished is None:
                return Ended(question, "FAILED", error.code().name)
    if finished is None:
        return Ended(question, "FAILED", "no terminal event")
    outcome = trace_pb2.Outcome.Name(finished.outcome).removeprefix("OUTCOME_")
    return Ended(question, outcome, finished.error.message)


def figures_of(runs: Sequence[Ended]) -> list[Figure]:
    """The shares, and the counts by outcome."""
    figures = [
        Figure("refused_unanswerable", _refused_share(runs, answerable=False), at_least=0.60),
        Figure("refused_answerable", _refused_share(runs, answerable=True), at_most=0.25),
        Figure("failed", sum(run.outcome not in ANSWERED | REFUSED for run in runs), at_most=0),
    ]
    for answerable, kind in ((False, "unanswerable"), (True, "answerable")):
        counts = Counter(run.outcome for run in runs if run.question.answerable is answerable)
        figures.append(Figure(kind, counts.total()))
        figures += [Figure(f"{kind}_{name.lower()}", counts[name]) for name in sorted({*counts, *ANSWERED, *REFUSED})]
    for reason, count in Counter(run.reason for run in runs if run.reason).items():
        print(f"{count} runs failed: {reason}", file=sys.stderr)
    return figures


def _refused_share(runs: Sequence[Ended], *, answerable: bool) -> float:
    ended = [run for run in runs if run.question.answerable is answerable and run.outcome in ANSWERED | REFUSED]
    return sum(run.outcome in REFUSED for run in ended) / len(ended) if ended else float("nan")


if __name__ == "__main__":
    raise SystemExit(main())
