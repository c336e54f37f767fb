"""Checking claims one by one, while they stream, beside the plain sequential design: time, tokens and dollars of an answer.

Run: `.venv/bin/python bench/claims.py [--runs N] [--alternating] [--json]`. A double of the model API in a process of its own
answers both at a model's pace (first token after 400 ms, then 60 tokens a second for gpt-4o-mini, which judges, and 40 for
gpt-4o, which writes), with the same kinds of answers of the same lengths: some 200 tokens of text with eight claims, some 45
tokens for the grade of a passage, some 60 for a verdict with its quote. Ours is the suite as four processes with its defaults;
the plain design is bench/plain.py. Each run has a question and five passages that nobody has seen before, so that no cache of
ours has an answer. Runs take turns; a pair of them (one question that the first draft passes, one where one of its claims is
invented) is under way at a time.

A draft has one or two sentences from each passage, and is done with one passage before it goes on to the next. What it invents
stands in the place of one of them, and cites the same passage; no word of it is in any. With
--alternating it changes the passage with each sentence, so that each segment of it rests on more passages, which have to be
sent with it: that costs ours tokens, and the plain design none.

- `latency_ratio_pass`, `latency_ratio_fail`: median time from the question to the released answer, ours over the plain one.
- `tokens_ratio_…`: the same of the tokens sent and received, at four characters a token, as the double has counted them:
  schemas count as input, and so does what the provider had in its cache.
- `cost_ratio_…`: the same of the dollars at list price, where cached input costs what the list says. The provider's cache
  follows OpenAI's rule: the beginning that a prompt shares with one of the last minutes, from 1024 tokens on, in steps of 128.
- `…_seconds`, `…_tokens`, `…_cached_tokens` and `…_dollars` are both designs' medians behind these, and `…_KIND_calls`,
  `…_KIND_seconds` and `…_KIND_tokens` what one run asks of one kind: how many calls, for how long at least one of them was
  open, how many tokens.

`calls_per_second` and what belongs to it is explained in bench/calls.py.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc
from errata.orchestrator.v1 import orchestrator_service_pb2 as orchestrator_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.orchestrator.v1 import trace_pb2

from bench import calls as structured
from bench.doubled import Call, Double, running_double, suite_variables
from bench.figures import Figure, arguments, print_figures
from bench.paced import Pace, PacedModel
from bench.plain import PlainDesign
from bench.refusal import IngestError, ingest
from bench.subjects import PASSAGES, Subject, subject
from errata_cli.stack import Stack, StackError, StackPlan, starting
from errata_kit.llm.pricing import PriceList
from errata_kit.logs import configure_logs
from errata_kit.rpc.channels import open_channel, reading
from services.retriever.settings import EmbeddingProvider

PACE: Final = Pace(0.4, {"gpt-4o-mini": 60.0, "gpt-4o": 40.0})
CASES: Final[Mapping[str, bool]] = {"pass": False, "fail": True}
"""Whether a question of a case has its first draft invent something."""
AT_MOST: Final[Mapping[str, float]] = {
    "latency_ratio_pass": 0.85,
    "latency_ratio_fail": 0.60,
    "tokens_ratio_pass": 1.0,
    "tokens_ratio_fail": 0.7,
}
_RUNS: Final = 3
_RUN_SECONDS: Final = 120.0
_HEALTHY_SECONDS: Final = 120.0
_MICROS: Final = 1_000_000
_OUTCOMES: Final[Mapping[str, trace_pb2.Outcome]] = {
    "pass": trace_pb2.OUTCOME_ANSWERED,
    "fail": trace_pb2.OUTCOME_ANSWERED_AFTER_REFINEMENT,
}

Ask = Callable[[str, str, Subject], Awaitable[None]]
"""Asks a case's question about a subject, in a collection that has its passages. Raises UnexpectedEndError."""


class UnexpectedEndError(Exception):
    """A run ended otherwise than runs of its case do, so that it measures something else."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one run took, in seconds, and its model calls."""

    seconds: float
    calls: tuple[Call, ...]


def main() -> int:
    """Measure and print; 1 when the suite does not start or a run ends otherwise than it should."""
    configure_logs("claims", "warning", "json")
    parser = arguments("Measure what checking claims one by one saves.")
    parser.add_argument("--alternating", action="store_true", help="let drafts change the passage with each sentence")
    parser.add_argument("--runs", type=int, default=_RUNS, help="of each design and case; default: %(default)s")
    options: argparse.Namespace = parser.parse_args()
    try:
        with running_double(PacedModel(PACE, options.alternating)) as double, tempfile.TemporaryDirectory() as folder:
            figures = figures_of(asyncio.run(measured(double, Path(folder), options.runs)))
        figures += asyncio.run(structured.measured())
    except (StackError, IngestError, UnexpectedEndError, grpc.aio.AioRpcError) as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0


async def measured(double: Double, folder: Path, times: int) -> dict[tuple[str, str], list[Run]]:
    """The runs of each design and case."""
    found: defaultdict[tuple[str, str], list[Run]] = defaultdict(list)
    plan = StackPlan.on_free_ports(folder, suite_variables(double.base_url, EmbeddingProvider.LOCAL))
    async with starting(plan, lambda name, line: None) as stack, plain(double.base_url) as ask_plain:
        await stack.healthy(_HEALTHY_SECONDS)
        async with four_services(stack) as ask_ours:
            designs = {"ours": ask_ours, "plain": ask_plain}
            numbers = itertools.count(1)
            # The first search waits for the embedding model.
            await _pair(stack, double, ask_ours, numbers)
            for _, (design, ask) in itertools.product(range(times), designs.items()):
                for case, run in (await _pair(stack, double, ask, numbers)).items():
                    found[design, case].append(run)
    return found


async def _pair(stack: Stack, double: Double, ask: Ask, numbers: Iterable[int]) -> dict[str, Run]:
    """One run of each case, side by side, on subjects of their own."""
    subjects = {case: subject(number, beyond=beyond) for (case, beyond), number in zip(CASES.items(), numbers, strict=False)}
    collections = {case: f"claims-{about.number}" for case, about in subjects.items()}
    for case, about in subjects.items():
        rows = [{"id": f"document-{place}", "text": text} for place, text in enumerate(about.passages, start=1)]
        await ingest(stack, collections[case], rows)
    double.calls()
    seconds = await asyncio.gather(*(_timed(ask, case, collections[case], about) for case, about in subjects.items()))
    calls = double.calls()
    return {
        case: Run(taken, tuple(call for call in calls if call.question == about.question))
        for (case, about), taken in zip(subjects.items(), seconds, strict=True)
    }


async def _timed(ask: Ask, case: str, collection: str, about: Subject) -> float:
    started = time.perf_counter()
    await ask(case, collection, about)
    return time.perf_counter() - started


@contextlib.asynccontextmanager
async def plain(base_url: str) -> AsyncIterator[Ask]:
    """The plain design in this process."""
    design = PlainDesign(base_url)
    await design.warm_up()

    async def ask(case: str, collection: str, about: Subject) -> None:
        answered = await design.answer(about.question, about.passages)
        if not answered.released or answered.regenerations != int(CASES[case]):
            raise UnexpectedEndError(f"The plain design ended with {answered}.")

    try:
        yield ask
    finally:
        await design.aclose()


@contextlib.asynccontextmanager
async def four_services(stack: Stack) -> AsyncIterator[Ask]:
    """The suite; what is yielded asks the orchestrator, and waits for the end of the run."""
    async with open_channel(stack.plan.target("orchestrator")) as channel:
        stub = orchestrator_grpc.OrchestratorServiceStub(channel)

        async def ask(case: str, collection: str, about: Subject) -> None:
            outcome, graded = trace_pb2.OUTCOME_UNSPECIFIED, 0
            request = orchestrator_pb2.AskRequest(question=about.question, collection=collection)
            async with reading(stub.Ask(request, timeout=_RUN_SECONDS)) as replies:
                async for reply in replies:
                    kind = reply.event.WhichOneof("payload")
                    graded += kind == "passage_graded"
                    if kind == "run_finished":
                        outcome = reply.event.run_finished.outcome
            if outcome != _OUTCOMES[case] or graded != PASSAGES:
                ended = trace_pb2.Outcome.Name(outcome)
                raise UnexpectedEndError(f"A run ended as {ended} with {graded} passages graded: {about.question}")

        yield ask


def figures_of(runs: Mapping[tuple[str, str], Sequence[Run]]) -> list[Figure]:
    """The ratios, then what is behind them."""
    values = {(design, case): _medians(made) for (design, case), made in runs.items()}
    ratios: list[Figure] = []
    for ratio, of in (("latency", "seconds"), ("tokens", "tokens"), ("cost", "dollars")):
        for case in CASES:
            name = f"{ratio}_ratio_{case}"
            ratios.append(Figure(name, values["ours", case][of] / values["plain", case][of], at_most=AT_MOST.get(name)))
    behind = [
        Figure(f"{design}_{case}_{name}", value) for design, case in values for name, value in values[design, case].items()
    ]
    return [*ratios, *behind]


def _medians(runs: Sequence[Run]) -> dict[str, float]:
    measures = [_measures(run) for run in runs]
    # A kind of call that some runs do without counts as nothing there.
    names = dict.fromkeys(name for of_run in measures for name in of_run)
    return {name: statistics.median(of_run.get(name, 0.0) for of_run in measures) for name in names}


def _measures(run: Run) -> dict[str, float]:
    prices = PriceList()
    by_kind: defaultdict[str, list[Call]] = defaultdict(list)
    for call in run.calls:
        by_kind[_kind(call)].append(call)
    found = {
        "seconds": run.seconds,
        "tokens": _tokens(run.calls),
        "cached_tokens": sum(call.tokens.cached_input for call in run.calls),
        "dollars": sum(prices.cost_micros(call.model, call.tokens) or 0 for call in run.calls) / _MICROS,
    }
    for kind, calls in by_kind.items():
        found |= {f"{kind}_calls": len(calls), f"{kind}_seconds": _open_seconds(calls), f"{kind}_tokens": _tokens(calls)}
    return found


def _tokens(calls: Iterable[Call]) -> int:
    return sum(call.tokens.input + call.tokens.output for call in calls)


def _kind(call: Call) -> str:
    """What a call is for, in one word for both designs."""
    wanted = {"Grade": "grading", "Verdict": "checking", "text": "writing"}
    return next((word for part, word in wanted.items() if part in call.kind), "correcting")


def _open_seconds(calls: Iterable[Call]) -> float:
    """For how long at least one of the calls was open."""
    total = until = 0.0
    for call in sorted(calls, key=lambda call: call.started):
        ended = call.started + call.seconds
        total += max(0.0, ended - max(until, call.started))
        until = max(until, ended)
    return total


if __name__ == "__main__":
    raise SystemExit(main())
