"""How many structured model calls judge and generator serve a second of processor time.

Run: `.venv/bin/python bench/calls.py [--json]`. Each service is a process of its own, as `errata up` starts it; so is a double
of the model API that answers at once. Calls arrive over gRPC, some at a time, each with texts of its own, so that no cache has
the answer. A figure is the model calls that the double has seen, divided by the processor seconds (user and system, all
threads) that the service has used for them: unpacking and checking the request, the prompt, the HTTP request, reading the
answer, what the service computes from it, and the reply.

- `grade_passages_…`: three passages of 700 characters in a request, graded in one model call.
- `grade_answer_…`: an answer of three sentences against five such passages.
- `broaden_query_…`: a question and one query that was tried.
- `refine_answer_…`: one failing claim in an answer of eight sentences, with five passages.
- `judge_calls_per_second` and `generator_calls_per_second` take their two kinds one for one, and `calls_per_second` is the
  smaller of these.
"""

import asyncio
import itertools
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from errata.corpus.v1 import passage_pb2
from errata.generator.v1 import generator_service_pb2 as generator_pb2
from errata.generator.v1 import generator_service_pb2_grpc as generator_grpc
from errata.grading.v1 import grading_pb2
from errata.judge.v1 import judge_service_pb2 as judge_pb2
from errata.judge.v1 import judge_service_pb2_grpc as judge_grpc

from bench.doubled import SUBJECTS, Double, documents, running_double, suite_variables
from bench.figures import Figure, arguments, print_figures
from bench.paced import PacedModel
from errata_cli.stack import Stack, StackError, StackPlan, starting
from errata_kit.logs import configure_logs
from errata_kit.rpc.channels import open_channel, reading
from services.retriever.settings import EmbeddingProvider

CALLS_PER_SECOND_AT_LEAST: Final = 100.0
_AT_A_TIME: Final = 16
_CALLS: Final = 400
_WARM_UP: Final = 48
_CALL_SECONDS: Final = 30.0
_HEALTHY_SECONDS: Final = 120.0
_TICKS_A_SECOND: Final = 100.0
_INVENTED: Final = "Celebrated composers supposedly financed early experiments."

Rpc = Callable[[int], Awaitable[None]]
"""Makes the call with this number, whose texts no other call has."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Model calls, and the processor seconds of the service behind them."""

    calls: int
    seconds: float


def main() -> int:
    """Measure and print; 1 when the suite does not start."""
    configure_logs("calls", "warning", "json")
    options = arguments("Measure how many structured calls judge and generator serve a second.").parse_args()
    try:
        figures = asyncio.run(measured())
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0


async def measured() -> list[Figure]:
    """Put the suite up over a double that answers at once, and return the figures."""
    with running_double(PacedModel()) as double, tempfile.TemporaryDirectory() as folder:
        plan = StackPlan.on_free_ports(Path(folder), suite_variables(double.base_url, EmbeddingProvider.NONE))
        async with starting(plan, lambda name, line: None) as stack:
            await stack.healthy(_HEALTHY_SECONDS)
            async with open_channel(plan.target("judge")) as judge, open_channel(plan.target("generator")) as generator:
                judging = judge_rpcs(judge_grpc.JudgeServiceStub(judge))
                writing = generator_rpcs(generator_grpc.GeneratorServiceStub(generator))
                spent = {
                    "judge": {name: await _spent(stack, double, "judge", rpc) for name, rpc in judging.items()},
                    "generator": {name: await _spent(stack, double, "generator", rpc) for name, rpc in writing.items()},
                }
    return figures_of(spent)


def figures_of(spent: dict[str, dict[str, Spent]]) -> list[Figure]:
    """The figures of each service, and the smaller one."""
    of_services = [
        # One for one: a second goes to each kind by what it costs.
        Figure(f"{service}_calls_per_second", len(kinds) / sum(kind.seconds / kind.calls for kind in kinds.values()))
        for service, kinds in spent.items()
    ]
    of_kinds = [
        Figure(f"{name}_per_second", kind.calls / kind.seconds) for kinds in spent.values() for name, kind in kinds.items()
    ]
    smaller = min(figure.value for figure in of_services)
    return [Figure("calls_per_second", smaller, at_least=CALLS_PER_SECOND_AT_LEAST), *of_services, *of_kinds]


async def _spent(stack: Stack, double: Double, service: str, rpc: Rpc) -> Spent:
    await _called(rpc, range(_WARM_UP))
    double.calls()
    before = processor_seconds(stack.pid(service))
    await _called(rpc, range(_WARM_UP, _WARM_UP + _CALLS))
    seconds = processor_seconds(stack.pid(service)) - before
    return Spent(len(double.calls()), seconds)


async def _called(rpc: Rpc, numbers: Sequence[int]) -> None:
    waiting = iter(numbers)

    async def caller() -> None:
        for number in waiting:
            await rpc(number)

    async with asyncio.TaskGroup() as callers:
        for _ in range(_AT_A_TIME):
            callers.create_task(caller())


def processor_seconds(pid: int) -> float:
    """User and system time of a process and all its threads so far, in steps of 10 ms (proc_pid_stat(5))."""
    # The name in parentheses may hold anything.
    values = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS_A_SECOND


def judge_rpcs(stub: Any) -> dict[str, Rpc]:
    """The judge's calls with one model call each, by name."""

    async def grade_passages(number: int) -> None:
        request = judge_pb2.GradePassagesRequest(question=_question(number), passages=_passages(number, 3))
        async with reading(stub.GradePassages(request, timeout=_CALL_SECONDS)) as replies:
            async for reply in replies:
                if reply.WhichOneof("result") == "error":
                    raise RuntimeError(reply.error.message)

    async def grade_answer(number: int) -> None:
        passages = _passages(number, 5)
        answer = _answer(passages, 3)
        request = judge_pb2.GradeAnswerRequest(question=_question(number), answer=answer, passages=passages)
        await stub.GradeAnswer(request, timeout=_CALL_SECONDS)

    return {"grade_passages": grade_passages, "grade_answer": grade_answer}


def generator_rpcs(stub: Any) -> dict[str, Rpc]:
    """The generator's calls with one structured model call each, by name."""

    async def broaden_query(number: int) -> None:
        question = _question(number)
        request = generator_pb2.BroadenQueryRequest(question=question, tried_queries=[f"{question} today"])
        await stub.BroadenQuery(request, timeout=_CALL_SECONDS)

    async def refine_answer(number: int) -> None:
        passages = _passages(number, 5)
        answer = f"{_answer(passages, 7)} {_INVENTED}"
        # The texts are ASCII: a character is a byte.
        span = passage_pb2.Span(start=len(answer) - len(_INVENTED), end=len(answer))
        claim = grading_pb2.Claim(
            claim_id="c8",
            text=_INVENTED,
            span=span,
            verdict=grading_pb2.VERDICT_UNSUPPORTED,
            explanation="No passage says who paid for it.",
        )
        request = generator_pb2.RefineAnswerRequest(
            question=_question(number), answer=answer, passages=passages, failing_claims=[claim]
        )
        async with reading(stub.RefineAnswer(request, timeout=_CALL_SECONDS)) as replies:
            async for _ in replies:
                pass

    return {"broaden_query": broaden_query, "refine_answer": refine_answer}


def _question(number: int) -> str:
    subject = SUBJECTS[number % len(SUBJECTS)]
    return f"How does the {subject} of village {number} handle what it has written down?"


def _passages(number: int, count: int) -> list[passage_pb2.Passage]:
    subject = SUBJECTS[number % len(SUBJECTS)]
    texts = (f"Village {number}. {text}" for name, text in documents() if name.startswith(subject))
    return [
        passage_pb2.Passage(passage_id=f"p{number}-{place}", text=text)
        for place, text in enumerate(itertools.islice(texts, count), start=1)
    ]


def _answer(passages: Sequence[passage_pb2.Passage], sentences: int) -> str:
    return " ".join(itertools.islice(_cited(passages), sentences))


def _cited(passages: Sequence[passage_pb2.Passage]) -> Iterator[str]:
    for position in itertools.count(1):
        for number, passage in enumerate(passages, start=1):
            yield f"{passage.text.split('. ')[position].rstrip('.')}. [{number}]"


if __name__ == "__main__":
    raise SystemExit(main())
