"""The suite as real processes: four services on free ports, and the `errata` command beside them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_cli.stack import SERVICES, Stack, StackPlan, starting

Result = TypeVar("Result")

# Whatever the surroundings say, a test reaches no model and no index but its own.
OFFLINE: Final[dict[str, str | None]] = {
    "ERRATA_LLM_PROVIDER": "offline",
    "RETRIEVER_EMBEDDING_PROVIDER": "local",
    "RETRIEVER_EMBEDDING_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "QDRANT_URL": None,
    "OPENAI_API_KEY": None,
    "OPENAI_BASE_URL": None,
    "ERRATA_ORCHESTRATOR_TARGET": None,
    "ERRATA_RETRIEVER_TARGET": None,
}
BIN: Final = Path(sys.executable).parent
_START_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """Standard error without the white space around it."""
        return self.err.strip()


class Background:
    """An event loop in a thread of its own, so that tests without one can hold asyncio's processes and servers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, Result], timeout: float = 90.0) -> Result:
        """Run a coroutine over there and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)


class Suite:
    """Four running services. `log` holds (service, line) in the order of arrival."""

    def __init__(self, background: Background, stack: Stack, log: list[tuple[str, str]]) -> None:
        self.background = background
        self.stack = stack
        self.plan = stack.plan
        self.log = log

    def target(self, name: str) -> str:
        """host:port of a service."""
        return self.plan.target(name)

    @contextlib.contextmanager
    def channel(self, name: str) -> Iterator[grpc.Channel]:
        """A plain channel without retries, so that a test sees what the service says."""
        with grpc.insecure_channel(self.target(name), options=[("grpc.enable_retries", 0)]) as channel:
            yield channel

    def health(self, name: str) -> str:
        """SERVING, NOT_SERVING, or the name of the status of the failed check."""
        with self.channel(name) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            try:
                reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError as error:
                # grpc's own type of the error is private; a failed call has code().
                return str(error.code().name)
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

    def metrics(self, name: str) -> str:
        """The service's metrics page."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.plan.metrics_ports[name]}/metrics", timeout=5) as page:
            return str(page.read().decode())

    def signal(self, name: str, number: int) -> int:
        """Send a signal to one service, and return its process id."""
        pid = self.stack.pid(name)
        os.kill(pid, number)
        return pid

    def exit_code(self, name: str, timeout: float = 15.0) -> int:
        """Wait until a service has ended."""
        return self.background.run(self._ended(name), timeout)

    async def _ended(self, name: str) -> int:
        return await self.stack._children[name].wait()

    def start_again(self, name: str) -> None:
        """Start a service that has ended, and wait until it serves."""
        self.background.run(self.stack.start(name))
        self.background.run(self.stack.healthy(_START_SECONDS))

    def entries(self, name: str | None = None) -> list[dict[str, Any]]:
        """The log's lines as JSON objects; a line that is none fails the test."""
        lines = [line for service, line in self.log if name in (None, service)]
        return [json.loads(line) for line in lines]

    def errata(self, *arguments: str, stdin: str = "", cwd: Path | None = None, timeout: float = 60.0) -> Finished:
        """Run the command line against this suite, with pipes on all sides."""
        variables = {
            "ERRATA_ORCHESTRATOR_TARGET": self.target("orchestrator"),
            "ERRATA_RETRIEVER_TARGET": self.target("retriever"),
        }
        return errata(*arguments, stdin=stdin, cwd=cwd, timeout=timeout, variables=variables)


def environment(variables: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment, offline, with further variables; None removes one."""
    merged = {**os.environ, **OFFLINE, **variables}
    return {name: value for name, value in merged.items() if value is not None}


def errata(
    *arguments: str,
    stdin: str = "",
    cwd: Path | None = None,
    timeout: float = 60.0,
    variables: Mapping[str, str | None] | None = None,
) -> Finished:
    """Run `errata` and wait for its end."""
    done = subprocess.run(
        [sys.executable, "-m", "errata_cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env=environment(variables or {}),
        check=False,
    )
    return Finished(done.returncode, done.stdout, done.stderr)


@contextlib.contextmanager
def running_suite(background: Background, data_dir: Path, variables: Mapping[str, str | None] | None = None) -> Iterator[Suite]:
    """Start the suite inside the block, healthy, and end it on the way out."""
    log: list[tuple[str, str]] = []
    plan = StackPlan.on_free_ports(data_dir, {**OFFLINE, **(variables or {})})
    # The block is entered and left from outside the loop, one step at a time.
    block = starting(plan, lambda name, line: log.append((name, line)))
    stack = background.run(block.__aenter__())
    try:
        background.run(stack.healthy(_START_SECONDS))
        yield Suite(background, stack, log)
    finally:
        background.run(block.__aexit__(None, None, None))


def eventually(condition: Callable[[], Any], seconds: float, what: str) -> None:
    """Return once the condition holds; fail after this long."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children_of(pid: int) -> dict[str, int]:
    """The services that a process has started: name to process id."""
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {}
    for child in map(int, listed):
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        name = next((word.removeprefix("services.") for word in words if word.startswith("services.")), "")
        if name in SERVICES:
            found[name] = child
    return found


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts as files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def free_row(length: int = 4) -> int:
    """The first of some ports in a row that are free right now."""
    for _ in range(200):
        first = random.randrange(20_000, 32_000)
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError):
            for port in range(first, first + length):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise RuntimeError("no free ports in a row")


def end(process: subprocess.Popen[str]) -> None:
    """End a process that a test started, whatever state it is in."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
