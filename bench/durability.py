"""What durable runs cost: the orchestrator's CPU a run, beside the bare LangGraph graph with the same checkpointer.

Run: `.venv/bin/python bench/durability.py [--runs N] [--json]`. Runs answer at once: five passages found and graded, an
answer written and checked. The services below answer instantly, in a process of their own; 32 callers ask again as soon as
they have an answer. CPU is user and system time of the orchestrator's process (or of the bare graph's), read from /proc, over
the measured runs alone, after a warm-up.

The bare graph has the nodes, edges and states of the answer workflow with their values made beforehand: LangGraph, its
checkpointer and nothing else. No gRPC, no trace, no run store, no lease. `cpu_ratio_X` is the orchestrator's CPU a run
divided by that of the bare graph, measured in turns.

PostgreSQL is started for the bench from Debian's package; without it its figures are left out. Bytes are what a run adds to
the database: tables and indexes on PostgreSQL after VACUUM, files on SQLite; pruned means without checkpoints.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import orchestrator_service_pb2_grpc as pb2_grpc
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from psycopg import AsyncConnection

from bench.figures import Figure, arguments, print_figures
from errata_kit.grades import AnswerGrade, Claim, Evidence, HallucinationRisk, PassageGrade, Verdict
from errata_kit.logs import configure_logs
from errata_kit.passages import Answer, Citation, Passage, Span
from services.orchestrator.clients import until_serving
from services.orchestrator.opening import bring_up_to_date, url_of
from services.orchestrator.runs.checkpoints import classes_in, open_checkpoints
from services.orchestrator.runs.store.database import is_sqlite, libpq_url
from services.orchestrator.settings import OrchestratorSettings
from services.orchestrator.workflows.answer.state import AnswerRequest, AnswerState, AnswerUpdate, GradedPassage
from tests.harness.postgres import postgres_server
from tests.harness.scripted import FakeGenerator, FakeJudge, FakeRetriever
from tests.harness.services import Below, fakes

CALLERS: Final = 32
_ROUNDS: Final = 3
_WARM_UP: Final = 64
_PASSAGE: Final = "The retention setting says for how long finished runs are kept before they are deleted. " * 9
_IDS: Final = ("p1", "p2", "p3", "p4", "p5")


@dataclass(frozen=True, slots=True)
class Measured:
    """One round."""

    cpu_ms: float
    runs_per_second: float


def main() -> int:
    """Measure and print."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=128, help="runs a round")
    chosen = parser.parse_args()
    figures: list[Figure] = []
    with _below() as targets:
        for name, settings in _databases():
            figures += asyncio.run(_measure(name, settings, targets, chosen.runs))
    print_figures(figures, as_json=chosen.json)
    return 0


async def _measure(name: str, settings: OrchestratorSettings, targets: dict[str, str], runs: int) -> list[Figure]:
    await bring_up_to_date(settings)
    suite: list[Measured] = []
    bare: list[Measured] = []
    with _orchestrator(settings, targets) as (process, target):
        async with grpc.aio.insecure_channel(target) as channel:
            stub = pb2_grpc.OrchestratorServiceStub(channel)
            await asyncio.wait_for(until_serving(channel, "errata.orchestrator.v1.OrchestratorService"), 60)
            await _ask(stub, _WARM_UP)
            await _forget(settings, "")
            before = await _bytes(settings)
            for _ in range(_ROUNDS):
                suite.append(await _suite_round(stub, process, runs))
                bare.append(await asyncio.to_thread(_bare_round, settings, runs))
            # The bare graph's checkpoints have their own thread ids, and go first.
            await _forget(settings, "bare-")
            stored = (await _bytes(settings) - before) / (_ROUNDS * runs)
    await _forget(settings, "")
    pruned = (await _bytes(settings) - before) / (_ROUNDS * runs)
    ours, theirs = statistics.median(item.cpu_ms for item in suite), statistics.median(item.cpu_ms for item in bare)
    speed = statistics.median(item.runs_per_second for item in suite)
    return [
        Figure(f"cpu_ratio_{name}", ours / theirs, at_most=2.0),
        Figure(f"cpu_ms_per_run_{name}", ours),
        Figure(f"bare_cpu_ms_per_run_{name}", theirs),
        Figure(f"runs_per_second_{name}", speed),
        Figure(f"bare_runs_per_second_{name}", statistics.median(item.runs_per_second for item in bare)),
        Figure(f"bytes_per_run_{name}", stored),
        Figure(f"bytes_per_run_pruned_{name}", max(0.0, pruned)),
    ]


# --- the suite --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _orchestrator(settings: OrchestratorSettings, targets: dict[str, str]) -> Iterator[tuple[int, str]]:
    port = _free_port()
    variables = {
        **os.environ,
        "ORCHESTRATOR_PORT": str(port),
        "ORCHESTRATOR_METRICS_PORT": "0",
        "ERRATA_LOG_LEVEL": "warning",
        "ERRATA_DATA_DIR": str(settings.data_dir),
        **{f"ORCHESTRATOR_{name.upper()}_TARGET": target for name, target in targets.items()},
    }
    variables.pop("ERRATA_DATABASE_URL", None)
    if settings.database_url is not None:
        variables["ERRATA_DATABASE_URL"] = settings.database_url.get_secret_value()
    process = subprocess.Popen([sys.executable, "-m", "services.orchestrator"], env=variables)
    try:
        yield process.pid, f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


async def _suite_round(stub: Any, process: int, runs: int) -> Measured:
    cpu, began = _cpu_seconds(process), time.perf_counter()
    await _ask(stub, runs)
    return Measured((_cpu_seconds(process) - cpu) * 1000 / runs, runs / (time.perf_counter() - began))


async def _ask(stub: Any, runs: int) -> None:
    left = iter(range(runs))

    async def caller() -> None:
        for _ in left:
            last = None
            async for reply in stub.Ask(pb2.AskRequest(question="How long are runs kept?"), timeout=120):
                last = reply.event
            if last is None or last.WhichOneof("payload") != "run_finished":
                raise RuntimeError("a run did not finish")

    async with asyncio.TaskGroup() as callers:
        for _ in range(min(CALLERS, runs)):
            callers.create_task(caller())


# --- the bare graph ---------------------------------------------------------------------------------------------------


def _bare_round(settings: OrchestratorSettings, runs: int) -> Measured:
    """In a process of its own, so that its CPU is its own."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    address = None if settings.database_url is None else settings.database_url.get_secret_value()
    process = multiprocessing.get_context("spawn").Process(target=_bare, args=(theirs, address, settings.data_dir, runs))
    process.start()
    measured: Measured = ours.recv()
    process.join(60)
    return measured


def _bare(pipe: Connection, address: str | None, data_dir: Path, runs: int) -> None:
    settings = _settings(address, data_dir)
    pipe.send(asyncio.run(_bare_runs(settings, runs)))


async def _bare_runs(settings: OrchestratorSettings, runs: int) -> Measured:
    async with open_checkpoints(url_of(settings), classes_in(AnswerState)) as checkpoints:
        graph = _graph().compile(checkpointer=checkpoints.saver)
        start = AnswerState(AnswerRequest("How long are runs kept?", "default"), "How long are runs kept?")

        async def several(count: int) -> None:
            left = iter(range(count))

            async def caller() -> None:
                for _ in left:
                    thread = f"bare-{os.urandom(8).hex()}"
                    await graph.ainvoke(start, RunnableConfig(configurable={"thread_id": thread}))

            async with asyncio.TaskGroup() as callers:
                for _ in range(min(CALLERS, count)):
                    callers.create_task(caller())

        await several(_WARM_UP)
        cpu, began = time.process_time(), time.perf_counter()
        await several(runs)
        return Measured((time.process_time() - cpu) * 1000 / runs, runs / (time.perf_counter() - began))


def _graph() -> Any:
    passages = tuple(Passage(passage_id, _PASSAGE) for passage_id in _IDS)
    graded = tuple(GradedPassage(passage, PassageGrade(1.0, True, "scripted"), 1) for passage in passages)
    answer = Answer("The text of p1. [1]", (Citation(1, "p1", Span(0, 15)),), "scripted")
    evidence = (Evidence("p1", "The retention setting", Span(0, 21)),)
    claim = Claim("c1", "The text of p1.", Span(0, 15), Verdict.SUPPORTED, 1.0, evidence)
    grade = AnswerGrade((claim,), 1.0, HallucinationRisk.LOW)

    async def retrieve(state: AnswerState) -> AnswerUpdate:
        return {"queries": (*state.queries, state.query), "pending": passages}

    async def grade_passages(state: AnswerState) -> AnswerUpdate:
        return {"pending": (), "graded": graded}

    async def generate(state: AnswerState) -> AnswerUpdate:
        return {"answer": answer}

    async def grade_answer(state: AnswerState) -> AnswerUpdate:
        return {"grade": grade}

    async def finish(state: AnswerState) -> AnswerUpdate:
        return {"pending": ()}

    graph = StateGraph(AnswerState)
    nodes = (retrieve, grade_passages, generate, grade_answer, finish)
    for node in nodes:
        graph.add_node(node.__name__, node)
    names = [START, *(node.__name__ for node in nodes), END]
    for first, second in itertools.pairwise(names):
        graph.add_edge(first, second)
    return graph


# --- what it stands on ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _below() -> Iterator[dict[str, str]]:
    """Retriever, judge and generator that answer at once, in one process of their own."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        process.join(10)


def _serve(pipe: Connection) -> None:
    class Passages(FakeRetriever):
        async def Search(self, request: Any, context: Any) -> Any:  # noqa: N802
            reply = await super().Search(request, context)
            for item in reply.passages:
                item.passage.text = _PASSAGE
            return reply

    class Writes(FakeGenerator):
        async def _pieces(self, text: str) -> AsyncIterator[str]:
            # As the generator does with what a model writes within 20 ms.
            yield text

    configure_logs("bench", "warning", "text")

    async def serve() -> None:
        async with fakes(Below(Passages(found=(_IDS,)), FakeJudge(), Writes())) as targets:
            pipe.send(targets)
            await asyncio.to_thread(pipe.recv)

    asyncio.run(serve())


def _databases() -> Iterator[tuple[str, OrchestratorSettings]]:
    with tempfile.TemporaryDirectory(prefix="errata-bench-") as folder:
        yield "sqlite", _settings(None, Path(folder))
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(postgres_server())
        except pytest.skip.Exception as missing:
            sys.stderr.write(f"The figures of PostgreSQL are left out: {missing}\n")
            return
        yield "postgres", _settings(stack.enter_context(server.database()), Path())


def _settings(address: str | None, data_dir: Path) -> OrchestratorSettings:
    return OrchestratorSettings.model_validate({"ERRATA_DATABASE_URL": address, "ERRATA_DATA_DIR": data_dir})


async def _bytes(settings: OrchestratorSettings) -> float:
    url = url_of(settings)
    if is_sqlite(url):
        return float(sum(_sqlite_bytes(path) for path in settings.data_dir.glob("*.sqlite3")))
    async with await AsyncConnection.connect(libpq_url(url), autocommit=True) as connection_pg:
        await connection_pg.execute("VACUUM FULL")
        row = await (await connection_pg.execute("SELECT pg_database_size(current_database())")).fetchone()
    return float(row[0]) if row else 0.0


def _sqlite_bytes(path: Path) -> int:
    # Pages in use: a file does not shrink when rows are deleted.
    with contextlib.closing(sqlite3.connect(path, timeout=30)) as connection:
        pragmas = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
    return int((pages - free) * size)


async def _forget(settings: OrchestratorSettings, prefix: str) -> None:
    async with _checkpoints(settings) as checkpoints:
        threads = {
            saved.config["configurable"]["thread_id"]
            async for saved in checkpoints.saver.alist(None)
            if saved.config["configurable"]["thread_id"].startswith(prefix)
        }
        await checkpoints.forget(threads)


@contextlib.asynccontextmanager
async def _checkpoints(settings: OrchestratorSettings) -> AsyncIterator[Any]:
    async with open_checkpoints(url_of(settings), classes_in(AnswerState)) as checkpoints:
        yield checkpoints


def _cpu_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    raise SystemExit(main())
