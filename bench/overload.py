"""What ten times more callers than there is room for do to the runs that are let in.

Run: `.venv/bin/python bench/overload.py [--max-runs N] [--seconds S] [--json]`. The suite runs as four processes over a
double of the model API that answers after 200 ms; the orchestrator takes N runs at once (ORCHESTRATOR_MAX_RUNS). First one
caller asks alone (unloaded); then N callers show what the box can do, in runs a second; then ten times as many questions a
second arrive for S seconds, whatever becomes of those before; then one caller asks alone again.

- `p99_ratio`: 99th percentile of how long an admitted run took under that load, as its caller sees it, over the same of the
  caller who was alone.
- `rejected_p99_ms`: 99th percentile of the time in which a refused caller has its RESOURCE_EXHAUSTED with RetryInfo.
- `peak_rss_mb`: the orchestrator's largest resident memory, and `rss_growth_mb` how much of it came with the load.
- `recovered`: 1 when after the load every run is answered, at most 1.5 times as slow as before, no run and no call is left in
  flight, and every service says SERVING.
"""

import argparse
import asyncio
import contextlib
import itertools
import re
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
import uvloop
from errata.orchestrator.v1 import orchestrator_service_pb2 as orchestrator_pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as orchestrator_grpc
from errata.orchestrator.v1 import trace_pb2

from bench.doubled import documents, question_about, running_double, suite_variables
from bench.figures import Figure, arguments, print_figures
from bench.refusal import IngestError, ingest
from errata_cli.stack import SERVICES, Stack, StackError, StackPlan, starting
from errata_kit.errors import Reason
from errata_kit.logs import configure_logs
from errata_kit.rpc.channels import open_channel, reading
from errata_kit.rpc.status import from_rpc_error
from services.retriever.settings import EmbeddingProvider

COLLECTION: Final = "overload"
# Two for each core of a machine on which all services, the double and the callers run: so docs/operations.md says.
MAX_RUNS: Final = 4
TIMES_TOO_MUCH: Final = 10
_ALONE: Final = 60
_HEALTHY_SECONDS: Final = 120.0
_RUN_SECONDS: Final = 60.0
_SETTLE_SECONDS: Final = 10.0
_WARM_UP: Final = 8


@dataclass(slots=True)
class Ended:
    """Seconds of the answered runs and of the refusals, and what else calls ended with."""

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    other: list[str] = field(default_factory=list)


class NotMeasurableError(Exception):
    """A run without load was not answered, or nothing was refused under load."""


def main() -> int:
    """Measure and print; 1 when the suite does not start or does not answer."""
    configure_logs("overload", "warning", "json")
    parser = arguments("Measure what overload does to admitted runs.")
    parser.add_argument("--max-runs", type=int, default=MAX_RUNS, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long the load lasts; default: %(default)s")
    options: argparse.Namespace = parser.parse_args()
    try:
        with running_double() as double, tempfile.TemporaryDirectory() as folder:
            variables = suite_variables(double.base_url, EmbeddingProvider.LOCAL)
            plan = StackPlan.on_free_ports(
                Path(folder), {**variables, "ORCHESTRATOR_MAX_RUNS": str(options.max_runs), "ERRATA_LOG_LEVEL": "warning"}
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(measure(plan, options.max_runs, options.seconds))
    except (StackError, IngestError, NotMeasurableError) as error:
        print(error, file=sys.stderr)
        return 1
    print_figures(figures, options.json)
    return 0


async def measure(plan: StackPlan, max_runs: int, seconds: float) -> list[Figure]:
    """Put the suite up, and return the figures."""
    async with starting(plan, lambda name, line: None) as stack:
        await stack.healthy(_HEALTHY_SECONDS)
        await ingest(stack, COLLECTION, [{"id": name, "text": text} for name, text in documents()])
        async with open_channel(plan.target("orchestrator")) as channel:
            load = Load(orchestrator_grpc.OrchestratorServiceStub(channel))
            await load.closed(1, _WARM_UP)
            before = answered(await load.closed(1, _ALONE))
            quiet_rss = memory_mb(stack.pid("orchestrator"), "VmRSS")
            began = time.perf_counter()
            capacity = len(answered(await load.closed(max_runs, 5))) / (time.perf_counter() - began)
            under = await load.open(TIMES_TOO_MUCH * capacity, seconds)
            peak = memory_mb(stack.pid("orchestrator"), "VmHWM")
            after = await load.closed(1, _ALONE // 2)
            recovered = await has_recovered(stack, before, after)
    if not under.answered or not under.refused:
        raise NotMeasurableError(f"Under load {len(under.answered)} runs were answered and {len(under.refused)} refused")
    print_others(under)
    alone = percentile(before, 99)
    return [
        Figure("p99_ratio", percentile(under.answered, 99) / alone, at_most=2.0),
        Figure("rejected_p99_ms", percentile(under.refused, 99) * 1000, at_most=10.0),
        Figure("peak_rss_mb", peak),
        Figure("rss_growth_mb", peak - quiet_rss),
        Figure("recovered", float(recovered), at_least=1.0),
        Figure("median_ratio", percentile(under.answered, 50) / percentile(before, 50)),
        Figure("alone_p99_ms", alone * 1000),
        Figure("offered_per_second", TIMES_TOO_MUCH * capacity),
        Figure("answered_per_second", len(under.answered) / seconds),
        Figure("refused", float(len(under.refused))),
        Figure("other_ends", float(len(under.other)), at_most=0.0),
    ]


class Load:
    """Asks."""

    def __init__(self, stub: orchestrator_grpc.OrchestratorServiceStub) -> None:
        self._stub = stub
        self._numbers: Iterator[int] = itertools.count(1)

    async def closed(self, callers: int, times: int) -> Ended:
        """So many callers, each of which asks again as soon as it has its answer."""
        ended = Ended()

        async def caller() -> None:
            for _ in range(times):
                await self._ask(ended)

        await asyncio.gather(*(caller() for _ in range(callers)))
        return ended

    async def open(self, per_second: float, seconds: float) -> Ended:
        """So many questions a second, whatever becomes of those before."""
        ended = Ended()
        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - time.perf_counter()))
                group.create_task(self._ask(ended))
        return ended

    async def _ask(self, ended: Ended) -> None:
        request = orchestrator_pb2.AskRequest(question=question_about(next(self._numbers)), collection=COLLECTION)
        outcome = trace_pb2.OUTCOME_UNSPECIFIED
        began = time.perf_counter()
        try:
            async with reading(self._stub.Ask(request, timeout=_RUN_SECONDS)) as replies:
                async for reply in replies:
                    if reply.event.WhichOneof("payload") == "run_finished":
                        outcome = reply.event.run_finished.outcome
        except grpc.aio.AioRpcError as error:
            known: Any = from_rpc_error(error, "orchestrator")
            if known.why is Reason.RATE_LIMITED and known.retry_after is not None:
                ended.refused.append(time.perf_counter() - began)
            else:
                ended.other.append(f"{error.code().name} {known.why.value}")
            return
        if outcome == trace_pb2.OUTCOME_ANSWERED:
            ended.answered.append(time.perf_counter() - began)
        else:
            ended.other.append(trace_pb2.Outcome.Name(outcome))


async def has_recovered(stack: Stack, before: Sequence[float], after: Ended) -> bool:
    """Whether all is as it was; what is not goes to standard error."""
    faults = []
    if after.refused or after.other or not after.answered:
        faults.append(f"{len(after.refused)} refused, {after.other[:3]} after the load")
    elif percentile(after.answered, 50) > 1.5 * percentile(before, 50):
        faults.append(f"a run takes {percentile(after.answered, 50):.2f} s, {percentile(before, 50):.2f} s before")
    limit = time.monotonic() + _SETTLE_SECONDS
    while (left := in_flight(stack)) and time.monotonic() < limit:  # noqa: ASYNC110 - gauges send no event
        await asyncio.sleep(0.2)
    if left:
        faults.append(f"still in flight: {left}")
    with contextlib.suppress(StackError):
        await stack.healthy(5.0)
        for fault in faults:
            print(fault, file=sys.stderr)
        return not faults
    print("a service is not healthy", file=sys.stderr)
    return False


def in_flight(stack: Stack) -> dict[str, float]:
    """Runs and calls that the services' gauges say are under way."""
    found = {}
    for name in SERVICES:
        with urllib.request.urlopen(f"http://127.0.0.1:{stack.plan.metrics_ports[name]}/metrics", timeout=5) as page:
            text = page.read().decode()
        for gauge, value in re.findall(r"^(errata_(?:calls|runs)_in_flight(?:{[^}]*})?) (\S+)$", text, re.MULTILINE):
            if float(value):
                found[f"{name} {gauge}"] = float(value)
    return found


def answered(ended: Ended) -> list[float]:
    """The seconds of the runs, all of which must have been answered."""
    if ended.other or ended.refused or not ended.answered:
        raise NotMeasurableError(f"Without overload: {len(ended.refused)} refused, {ended.other[:3]}")
    return ended.answered


def memory_mb(pid: int, field_name: str) -> float:
    """A line of /proc/PID/status in MiB: VmRSS is the resident memory now, VmHWM the most that it was."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field_name}:\s+(\d+) kB", status, re.MULTILINE)[1]) / 1024  # type: ignore[index]


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many percent of the values do not pass (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, -(-int(share * len(ordered)) // 100) - 1)]


def print_others(ended: Ended) -> None:
    """What calls under load ended with that is neither an answer nor a refusal."""
    for what in sorted(set(ended.other)):
        print(f"{ended.other.count(what)} calls under load ended with {what}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
