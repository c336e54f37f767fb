"""What must hold while hostile requests come in, and a suite under attack that measures it from outside."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import grpc
from errata.judge.v1 import judge_service_pb2, judge_service_pb2_grpc
from errata.orchestrator.v1 import orchestrator_service_pb2, orchestrator_service_pb2_grpc
from errata.retriever.v1 import retriever_service_pb2, retriever_service_pb2_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_cli.stack import SERVICES
from tests.harness.hostile import CANARY, Attack, Outcome, storm
from tests.harness.services import passage
from tests.harness.suite import Suite, alive

SECRET: Final = "osprey-2284-secret"
"""Stands in a document of a collection that no hostile request names."""
PRIVATE: Final = "private"
FORBIDDEN: Final = frozenset({"INTERNAL", "UNKNOWN", "DATA_LOSS"})
# Text of the inside: tracebacks, files, classes and objects of Python, and what databases and their drivers say.
INSIDE: Final = re.compile(
    rf"{re.escape(str(Path(__file__).parents[2]))}|"
    r"Traceback|File \"|\.py\b|/site-packages|/home/|/root/|/tmp/|object at 0x|<class '|_cython|cygrpc|grpc\._|"
    r"sqlalchemy|sqlite3|psycopg|asyncpg|langgraph|pydantic|qdrant|yaml\.|google\.protobuf|_upb|DecodeError|"
    r"Error\(|Exception|Unexpected \[|SELECT |INSERT INTO|UPDATE \w+ SET|errata_kit|"
    r"services\.(?:judge|retriever|generator|orchestrator)"
)
# The preface of HTTP/2, and what a port hears that speaks something else.
_GREETINGS: Final = (
    b"",
    b"\x00" * 64,
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 200,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff\xff\xff\x04\x00\x00\x00\x00\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    + b"\x00\x00\x05\x01\x04\x00\x00\x00\x01junk!",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x08\x06\x00\x00\x00\x00\x00pingpong" * 200,
)


@dataclass(slots=True)
class Tally:
    """What was seen so far. `faults` holds the first hundred things that must not be, each in a sentence."""

    statuses: Counter[str] = field(default_factory=Counter)
    families: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    leaks: int = 0
    slowest: list[tuple[float, str]] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome, and note what is wrong with it."""
        where = f"{outcome.attack.family} at {outcome.attack.method.service}{outcome.attack.method.path}"
        self.statuses[outcome.status] += 1
        self.families[outcome.attack.family] += 1
        if outcome.status in FORBIDDEN:
            self._fault(f"{where}: {outcome.status}: {outcome.said[:300]}")
        if found := INSIDE.search(outcome.said):
            self._leak(f"{where}: its status says {found[0]!r}: {outcome.said[:300]}")
        if SECRET in outcome.said or SECRET.encode() in outcome.received:
            self._leak(f"{where}: it tells the text of another collection")
        self.slowest = sorted([*self.slowest, (outcome.seconds, where)], reverse=True)[:5]

    def log_line(self, service: str, line: str) -> None:
        """Look at a line of a service's log."""
        # A name that is given as a name is one, and stands in the log as such; nothing else of a caller does.
        unnamed = line.replace(f'"principal": "{CANARY}"', "")
        if CANARY in unnamed or SECRET in unnamed:
            self._leak(f"the log of the {service} holds text of a caller: {line[:300]}")
        elif "Traceback" in line or '"exception"' in line:
            self._fault(f"the log of the {service}: {line[:1500]}")

    def _leak(self, sentence: str) -> None:
        self.leaks += 1
        self._fault(sentence)

    def _fault(self, sentence: str) -> None:
        if len(self.faults) < 100:
            self.faults.append(sentence)


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a service holds: resident memory in MB, the most there was, open files, and calls it works on by its own account."""

    resident_mb: float
    peak_mb: float
    files: int
    in_flight: float


@dataclass(slots=True)
class Besieged:
    """A suite under attack. `holds` is the longest time in seconds that each service's health check took."""

    suite: Suite
    tally: Tally = field(default_factory=Tally)
    holds: dict[str, float] = field(default_factory=dict)

    def seed(self) -> None:
        """Put the secret document where it belongs."""
        document = retriever_service_pb2.Document(document_id="secret.md", text=f"The word of the day is {SECRET}.")
        with self.suite.channel("retriever") as channel:
            stub: Any = retriever_service_pb2_grpc.RetrieverServiceStub(channel)
            request = retriever_service_pb2.IngestDocumentsRequest(collection=PRIVATE, document=document)
            assert next(iter(stub.IngestDocuments(iter([request]), timeout=20))).WhichOneof("result") == "ingested"

    def attack(self, attacks: Sequence[Attack], at_once: int, seconds: float) -> None:
        """Make the calls, so many at once, and tally what comes of them. Raises TimeoutError when it takes longer."""
        with self._probing():
            self.suite.background.run(self._storm(attacks, at_once), seconds)
        self.read_log()

    def read_log(self) -> None:
        """Look through the lines since the last time, and let go of them."""
        log = self.suite.log
        seen = len(log)
        for service, line in log[:seen]:
            self.tally.log_line(service, line)
        del log[:seen]

    def crashed(self) -> list[str]:
        """The services that no longer run, or no longer serve."""
        gone = [name for name in SERVICES if not alive(self.suite.stack.pid(name))]
        return gone + [name for name in SERVICES if name not in gone and self.suite.health(name) != "SERVING"]

    def footprints(self) -> dict[str, Footprint]:
        """What each service holds right now."""
        return {name: self._footprint(name) for name in SERVICES}

    def ordinary_seconds(self) -> float:
        """How long an ordinary question, search and check take together. They must succeed."""
        started = time.monotonic()
        with (
            self.suite.channel("orchestrator") as one,
            self.suite.channel("retriever") as two,
            self.suite.channel("judge") as three,
        ):
            ask: Any = orchestrator_service_pb2_grpc.OrchestratorServiceStub(one)
            search: Any = retriever_service_pb2_grpc.RetrieverServiceStub(two)
            check: Any = judge_service_pb2_grpc.JudgeServiceStub(three)
            asked = orchestrator_service_pb2.AskRequest(question="What is the word of the day?", collection=PRIVATE)
            assert [event.event.WhichOneof("payload") for event in ask.Ask(asked, timeout=30)][-1] == "run_finished"
            found = search.Search(retriever_service_pb2.SearchRequest(collection=PRIVATE, query="word of the day"), timeout=30)
            assert SECRET in found.passages[0].passage.text
            claim = judge_service_pb2.GradeAnswerRequest(question="q", answer="It is blue. [1]", passages=[passage("p0")])
            assert check.GradeAnswer(claim, timeout=30).grade.claims
        return time.monotonic() - started

    async def _storm(self, attacks: Sequence[Attack], at_once: int) -> None:
        targets = {name: self.suite.target(name) for name in SERVICES}
        count = 0
        async with contextlib.aclosing(storm(targets, attacks, at_once)) as outcomes:
            async for outcome in outcomes:
                self.tally.add(outcome)
                count += 1
                if count % 500 == 0:
                    self.read_log()

    @contextlib.contextmanager
    def _probing(self) -> Iterator[None]:
        # In threads of their own: the attacker's loop has stops, too.
        stop = threading.Event()
        probes = [threading.Thread(target=self._probe, args=(name, stop), daemon=True) for name in SERVICES]
        for probe in probes:
            probe.start()
        try:
            yield
        finally:
            stop.set()
            for probe in probes:
                probe.join(40)

    def _probe(self, name: str, stop: threading.Event) -> None:
        with self.suite.channel(name) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            while not stop.wait(0.05):
                started = time.monotonic()
                with contextlib.suppress(grpc.RpcError):
                    stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
                self.holds[name] = max(self.holds.get(name, 0.0), time.monotonic() - started)

    def _footprint(self, name: str) -> Footprint:
        process = Path(f"/proc/{self.suite.stack.pid(name)}")
        status = (process / "status").read_text()
        resident, peak = (float(re.findall(rf"{line}:\s+(\d+)", status)[0]) / 1024 for line in ("VmRSS", "VmHWM"))
        with urllib.request.urlopen(f"http://127.0.0.1:{self.suite.plan.metrics_ports[name]}/metrics", timeout=10) as page:
            text = page.read().decode()
        in_flight = sum(float(value) for value in re.findall(r"^\w*in_flight\w*(?:\{[^}]*\})? ([\d.e+]+)$", text, re.MULTILINE))
        return Footprint(resident, peak, len(list((process / "fd").iterdir())), in_flight)


def drop_connections(target: str, count: int, seed: int) -> None:
    """Open so many connections, fifty at a time, say something that is no gRPC or nothing, and go away."""
    dice = random.Random(seed)
    host, _, port = target.rpartition(":")
    for first in range(0, count, 50):
        opened = []
        for _ in range(min(50, count - first)):
            connection = socket.create_connection((host, int(port)), timeout=5)
            connection.settimeout(5)
            with contextlib.suppress(OSError):
                connection.sendall(dice.choice(_GREETINGS))
            opened.append(connection)
        for connection in opened:
            connection.close()
