"""The suite over a double of the model API in a process of its own, and documents to ask it about."""

import asyncio
import contextlib
import itertools
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from typing import Final

from errata_kit.llm.usage import TokenCount
from services.retriever.settings import EmbeddingProvider
from tests.harness.model_responder import material_of, respond
from tests.harness.model_rules import COUNTED, ChatRequest, Exchange, Reply, Responder, TokenCounts
from tests.harness.model_server import ModelServer

LATENCY_SECONDS: Final = 0.2
SUBJECTS: Final = ("ferry", "greenhouse", "tannery", "lighthouse", "orchard", "quarry", "bakery", "sawmill")
MATTERS: Final = ("fuel", "storms", "visitors", "repairs", "records")
# No bound of the model clients may queue a call: 64 runs have up to 320 at once.
MODEL_CALLS_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class Call:
    """A model call as the double saw it: its question, what kind of answer it wants, how long the double took, its tokens.

    The tokens are those that the answers say they used; none where they leave the counting to the server.
    """

    question: str
    kind: str
    started: float
    seconds: float
    model: str = ""
    tokens: TokenCount = field(default_factory=TokenCount)


@dataclass(frozen=True, slots=True)
class AfterLatency:
    """The harness's own answers, after a time that is the same for all; in seconds."""

    seconds: float = LATENCY_SECONDS

    def __call__(self, request: ChatRequest) -> Reply:
        """See `respond`."""
        return replace(respond(request), first_token_delay=self.seconds)


def question_about(number: int) -> str:
    """A question that the documents answer. The number makes each one of its own, so that their calls can be told apart."""
    subject, matter = SUBJECTS[number % len(SUBJECTS)], MATTERS[number % len(MATTERS)]
    return f"How does the {subject} handle {matter}? ({number})"


def suite_variables(base_url: str, embedding: EmbeddingProvider) -> dict[str, str | None]:
    """The environment of a suite whose model is the double."""
    return {
        "ERRATA_LLM_PROVIDER": "openai",
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_KEY": None,
        "QDRANT_URL": None,
        "RETRIEVER_EMBEDDING_PROVIDER": embedding.value,
        "ERRATA_LLM_MAX_CONCURRENCY": str(MODEL_CALLS_AT_ONCE),
    }


class Double:
    """The double in its own process, from this side of the pipe."""

    def __init__(self, pipe: "Connection[object, object]") -> None:
        self._pipe = pipe
        self.base_url = str(pipe.recv())

    def calls(self) -> list[Call]:
        """The calls since this was asked last."""
        self._pipe.send(True)
        return [item for item in self._received() if isinstance(item, Call)]

    def _received(self) -> list[object]:
        received = self._pipe.recv()
        return received if isinstance(received, list) else []


@contextlib.contextmanager
def running_double(answers: Responder = AfterLatency()) -> Iterator[Double]:
    """Run the double inside the block. answers: what it says, and after how long; it is sent to the double's process."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve_double, args=(there, answers), daemon=True)
    process.start()
    try:
        yield Double(here)
    finally:
        here.send(False)
        process.join(5)
        process.terminate()


def _serve_double(pipe: "Connection[object, object]", answers: Responder) -> None:
    asyncio.run(_until_told(pipe, answers))


async def _until_told(pipe: "Connection[object, object]", answers: Responder) -> None:
    over = asyncio.Event()
    async with ModelServer(default=answers) as server:

        def told() -> None:
            try:
                wanted = pipe.recv()
            except EOFError:
                wanted = False
            if not wanted:
                asyncio.get_running_loop().remove_reader(pipe.fileno())
                over.set()
                return
            pipe.send([_call(exchange) for exchange in server.calls()])
            server.journal.clear()

        pipe.send(server.base_url)
        asyncio.get_running_loop().add_reader(pipe.fileno(), told)
        await over.wait()


def _call(exchange: Exchange) -> Call:
    if not isinstance(exchange.request, ChatRequest):
        raise TypeError("only chat calls are expected")
    kind = exchange.request.schema_name or "text"
    ended = exchange.started if exchange.finished is None else exchange.finished
    counted = exchange.reply.usage
    used = TokenCounts(0, 0) if counted is None or counted is COUNTED else counted
    return Call(
        question=material_of(exchange.request).question,
        kind=kind,
        started=exchange.started,
        seconds=ended - exchange.started,
        model=exchange.request.model,
        tokens=TokenCount(used.prompt, used.cached, used.completion),
    )


def documents() -> Iterator[tuple[str, str]]:
    """Forty documents of one passage of about 700 characters each."""
    for subject, matter in itertools.product(SUBJECTS, MATTERS):
        yield (
            f"{subject}-{matter}",
            f"The {subject} handles {matter} by a written rule. Whoever is on duty reads the rule aloud before work begins. "
            f"For {matter} the {subject} keeps two people and one cupboard, which is locked overnight. "
            f"A bell rings when {matter} need attention, and the bell is tested every Monday. "
            "Nobody may leave before the cupboard has been counted by a second person. "
            "What is missing is written on the slate by the door, and ordered on the same day. "
            f"The {subject} has done it this way since its roof was mended. Guests are told about it when they arrive. "
            "In winter the count is made by lamplight, and the slate is brought inside. "
            "A new hand learns the rule in the first week, and signs the book underneath the others.",
        )
