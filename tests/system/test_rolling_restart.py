"""Every replica of every service is restarted in turn while runs are asked for. Nobody notices."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from errata.orchestrator.v1 import orchestrator_service_pb2 as pb2
from errata.orchestrator.v1 import trace_pb2
from errata.retriever.v1 import retriever_service_pb2 as retriever_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_client import ErrataClient, Targets
from errata_kit.errors import ErrataError
from tests.harness import durability
from tests.harness.postgres import PostgresServer
from tests.harness.replicas import Nursery, Replica

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("runs-postgres"), pytest.mark.timeout(180)]

SERVICES = ("retriever", "judge", "generator", "orchestrator")
CALLERS = 4
GRACE_SECONDS = 6.0
TEXT = "A backup of a volume is kept for 30 days. Whoever needs it for longer copies it to a second place."


@dataclass
class Suite:
    """Two replicas of each service, and the ports that they keep through a restart."""

    nursery: Nursery
    variables: Mapping[str, str]
    ports: Mapping[str, tuple[int, int]]
    folder: Path
    replicas: dict[tuple[str, int], Replica] = field(default_factory=dict)

    def target(self, name: str) -> str:
        """Both replicas of a service, to take turns."""
        return "ipv4:" + ",".join(f"127.0.0.1:{port}" for port in self.ports[name])

    async def start(self, name: str, number: int) -> None:
        """Start a replica, and wait until it serves."""
        targets = {f"ORCHESTRATOR_{other.upper()}_TARGET": self.target(other) for other in SERVICES[:3]}
        own = {
            f"{name.upper()}_PORT": str(self.ports[name][number]),
            f"{name.upper()}_METRICS_PORT": "0",
            # The embedded index belongs to one process, so each has its own; orchestrators share the database.
            "ERRATA_DATA_DIR": str(self.folder / f"{name}-{number}"),
        }
        program = f"services.{name}.__main__"
        self.replicas[name, number] = await self.nursery.start({**self.variables, **targets, **own}, program=program)
        await serving(self.replicas[name, number])

    async def restart(self, name: str, number: int) -> int:
        """End a replica as Kubernetes would, and start it anew. Returns its exit code."""
        replica = self.replicas[name, number]
        replica.signal(signal.SIGTERM)
        code = await replica.ended(GRACE_SECONDS + 10)
        await self.start(name, number)
        return code


async def serving(replica: Replica) -> None:
    """Return once a replica says SERVING."""
    async with asyncio.timeout(30), grpc.aio.insecure_channel(replica.target) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        while True:
            with contextlib.suppress(grpc.aio.AioRpcError):
                if (await stub.Check(health_pb2.HealthCheckRequest())).status == health_pb2.HealthCheckResponse.SERVING:
                    return
            await asyncio.sleep(0.05)


@pytest.fixture
def database(postgres: PostgresServer, tmp_path: Path) -> Any:
    """A fresh database of runs."""
    with durability.migrated(tmp_path, postgres) as variables:
        yield variables


@contextlib.asynccontextmanager
async def started(nursery: Nursery, database: Mapping[str, str], folder: Path) -> AsyncIterator[Suite]:
    """The suite inside the block."""
    with contextlib.ExitStack() as probes:
        found = []
        for _ in range(2 * len(SERVICES)):
            probe = probes.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
    ports = {name: (found[2 * place], found[2 * place + 1]) for place, name in enumerate(SERVICES)}
    variables = {
        **database,
        "ERRATA_DRAIN_PAUSE_SECONDS": "0.3",
        "ERRATA_DRAIN_GRACE_SECONDS": str(GRACE_SECONDS),
        "ORCHESTRATOR_LEASE_SECONDS": "3",
        "RETRIEVER_EMBEDDING_PROVIDER": "none",
        "JUDGE_CONCURRENCY": "2",
    }
    suite = Suite(nursery, variables, ports, folder)
    try:
        await asyncio.gather(*(suite.start(name, number) for name in SERVICES for number in range(2)))
        yield suite
    finally:
        for replica in suite.replicas.values():
            if not replica.gone():
                await replica.kill()


async def ingest(suite: Suite) -> None:
    for port in suite.ports["retriever"]:
        async with ErrataClient(Targets(retriever=f"127.0.0.1:{port}")) as errata:
            async for result in errata.retriever.ingest_documents([retriever_pb2.Document(document_id="backups", text=TEXT)]):
                assert not result.HasField("error"), result


@dataclass
class Seen:
    """What callers got: outcomes, the ids of their runs, and failures that nothing covered."""

    outcomes: Counter[str] = field(default_factory=Counter)
    run_ids: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def at_least(self, number: int) -> bool:
        """Whether so many runs have ended."""
        return self.outcomes.total() >= number


async def caller(suite: Suite, seen: Seen, numbers: Any, over: asyncio.Event) -> None:
    """Ask one question after another, with the client's own retries and no others."""
    async with ErrataClient(suite.target("orchestrator")) as errata:
        while not over.is_set():
            events = errata.ask(f"How long is the backup of a volume kept in case {next(numbers)}?", timeout=60)
            sequences: list[int] = []
            try:
                async for event in events:
                    if event.sequence:
                        sequences.append(event.sequence)
                    if event.WhichOneof("payload") == "run_finished":
                        seen.outcomes[trace_pb2.Outcome.Name(event.run_finished.outcome)] += 1
                        seen.run_ids.append(event.run_id)
            except ErrataError as error:
                seen.failures.append(f"{error.why.value} {error.message} {error.metadata}")
            if sequences != list(range(1, len(sequences) + 1)):
                seen.failures.append(f"events {sequences}")


async def test_a_rolling_restart_of_everything_under_load_is_not_noticed(
    nursery: Nursery, database: Mapping[str, str], tmp_path: Path
) -> None:
    seen, over = Seen(), asyncio.Event()
    numbers = itertools.count(1)
    async with started(nursery, database, tmp_path) as suite:
        await ingest(suite)
        callers = [asyncio.create_task(caller(suite, seen, numbers, over)) for _ in range(CALLERS)]
        await asyncio.sleep(1)
        codes = {}
        for name in SERVICES:
            for number in range(2):
                wanted = seen.outcomes.total() + 1
                codes[name, number] = await suite.restart(name, number)
                await durability.until(partial(seen.at_least, wanted), "a run after the restart")
        over.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*callers)
        async with ErrataClient(suite.target("orchestrator")) as errata:
            stored = {run.run_id: run async for run in errata.list_runs()}
    assert set(codes.values()) == {0}
    assert seen.failures == []
    assert set(seen.outcomes) == {"OUTCOME_ANSWERED"}, seen.outcomes
    assert len(seen.run_ids) >= 2 * len(codes)
    # No run is lost, and none is there that nobody asked for.
    assert set(seen.run_ids) == set(stored) and len(seen.run_ids) == len(stored)
    assert {run.state for run in stored.values()} == {pb2.RUN_STATE_FINISHED}
