"""Replicas of the orchestrator as real processes that start in a moment.

Importing the orchestrator takes seconds. So one process, the nursery, does it once and forks a child for each replica. No
object of grpc exists there before a fork: gRPC's threads do not survive one.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NoReturn, Self

from services.orchestrator.runs.engine import RunEngine
from services.orchestrator.runs.store.store import RunStore
from services.orchestrator.runs.store.writer import GroupWriter
from tests.harness.suite import environment

_END_SECONDS: Final = 30.0
_REPLICA_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to happen inside a replica.

    kill_at: it kills itself (SIGKILL) at the event with this sequence number of any run, once that is committed, or with
    `before` right before it is handed to the store. stop_at: it stops itself (SIGSTOP) in the middle of the transaction that
    stores the event with this number. takes_up: whether it takes up runs of others.
    """

    kill_at: int = 0
    stop_at: int = 0
    before: bool = False
    takes_up: bool = True


@dataclass(slots=True)
class Replica:
    """A started replica."""

    nursery: Nursery
    pid: int
    log: Path
    port: int = 0
    exit_code: int | None = None

    @property
    def target(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def signal(self, number: int) -> float:
        """Send a signal; returns the time, in seconds since 1970."""
        assert self.exit_code is None, "it has ended, and its process id may be somebody else's"
        at = time.time()
        os.kill(self.pid, number)
        return at

    async def kill(self) -> float:
        """SIGKILL, and wait until the process is gone. Returns the time of the signal."""
        at = self.signal(signal.SIGKILL)
        await self.ended()
        return at

    def gone(self) -> bool:
        """Whether it has ended."""
        if self.exit_code is None:
            self.exit_code = self.nursery.ask({"reap": self.pid})
        return self.exit_code is not None

    async def ended(self, seconds: float = _REPLICA_SECONDS) -> int:
        """Wait for its end; its exit code, negative for a signal. TimeoutError when it does not end."""
        async with asyncio.timeout(seconds):
            while not self.gone():  # noqa: ASYNC110 - only the nursery is told
                await asyncio.sleep(_POLL_SECONDS)
        assert self.exit_code is not None
        return self.exit_code

    def entries(self, name: str = "") -> list[dict[str, Any]]:
        """The lines of its log as JSON objects, all of them or those of one event."""
        # The last line may be half written.
        whole = self.log.read_text().rpartition("\n")[0].splitlines()
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if name in ("", line.get("event"))]

    async def listening(self) -> Self:
        """Wait until it accepts calls."""
        limit = time.monotonic() + _REPLICA_SECONDS
        while not (found := self.entries("listening")):
            if time.monotonic() > limit or self.gone():
                raise RuntimeError(f"the replica does not listen: {self.log.read_text()[-3000:]}")
            await asyncio.sleep(_POLL_SECONDS)
        self.port = int(found[0]["port"])
        return self


class Nursery:
    """The process that forks replicas. Use `nursery()`. It serves any number of event loops, one after another."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._replicas: list[Replica] = []

    async def start(
        self, variables: Mapping[str, str], plan: Plan | None = None, program: str = "services.orchestrator.__main__"
    ) -> Replica:
        """Start a replica with these variables in its environment, on free ports, and wait until it listens.

        program: the module of another service, whose main() the child runs.
        """
        log = self._folder / f"replica-{len(self._replicas) + 1}.log"
        log.touch()
        order = {
            "variables": {"ORCHESTRATOR_PORT": "0", "ORCHESTRATOR_METRICS_PORT": "0", **variables},
            "program": program,
            "log": str(log),
            "plan": asdict(plan or Plan()),
        }
        replica = Replica(self, self.ask({"start": order}), log)
        self._replicas.append(replica)
        return await replica.listening()

    def ask(self, order: Mapping[str, Any]) -> Any:
        """Hand an order over, and return what the nursery says. It takes a few milliseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the nursery has ended")
        return json.loads(line)


@contextlib.contextmanager
def nursery(folder: Path) -> Iterator[Nursery]:
    """Replicas can be started inside the block, with their logs in the folder; all of them end with it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.harness.replicas"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment({"GRPC_ENABLE_FORK_SUPPORT": "0"}),
    )
    try:
        made = Nursery(process, folder)
        assert made.ask({"hello": True}) == "hello"
        yield made
    finally:
        # At the end of its input the nursery kills what is left, and ends.
        process.communicate(timeout=_END_SECONDS)


# --- inside the nursery -----------------------------------------------------------------------------------------------


def _main() -> None:
    _import_everything()
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        answer: Any = "hello"
        if "start" in order:
            answer = _fork(order["start"])
            children.add(answer)
        elif "reap" in order:
            answer = _reaped(order["reap"], children)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reaped(pid: int, children: set[int]) -> int | None:
    if pid not in children:
        return None
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found:
        return None
    children.discard(pid)
    return os.waitstatus_to_exitcode(status)


def _import_everything() -> None:
    # The drivers and migrations are imported late by those who use them; here they are to be paid once.
    import aiosqlite  # noqa: F401
    import alembic.command
    import alembic.ddl.postgresql
    import alembic.ddl.sqlite  # noqa: F401
    import psycopg_pool  # noqa: F401
    import sqlalchemy.dialects.postgresql.psycopg
    import sqlalchemy.dialects.sqlite.aiosqlite  # noqa: F401

    import services.orchestrator.__main__  # noqa: F401


def _fork(order: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _replica(order)
    finally:
        os._exit(code)


def _replica(order: Mapping[str, Any]) -> int:
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.environ.update(order["variables"], ERRATA_EXIT_WITH_PARENT=str(os.getppid()))
    sys.argv = [order["program"]]
    _prepare(Plan(**order["plan"]))
    try:
        importlib.import_module(order["program"]).main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _prepare(plan: Plan) -> None:
    """Put what is planned around the real store and engine."""
    if not plan.takes_up:
        RunEngine._take_over = _for_ever  # type: ignore[method-assign]
    if plan.stop_at:
        _stop_inside(plan.stop_at)
    if plan.kill_at:
        _kill_around(plan)


def _stop_inside(sequence: int) -> None:
    store = GroupWriter._store

    async def stopping_store(self: GroupWriter, connection: Any, accepted: Any) -> None:
        await store(self, connection, accepted)
        if any(event.sequence == sequence for item in accepted for event in getattr(item, "events", ())):
            sys.stderr.write(json.dumps({"event": "stopping", "at": time.time()}) + "\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSTOP)

    GroupWriter._store = stopping_store  # type: ignore[method-assign]


def _kill_around(plan: Plan) -> None:
    append, create, decide = RunStore.append, RunStore.create, RunStore.decide

    async def killing_append(self: RunStore, lease: Any, events: Any, calls: Any, changes: Any) -> None:
        reached = bool(events) and events[-1].sequence == plan.kill_at
        if reached and plan.before:
            _die()
        await append(self, lease, events, calls, changes)
        if reached:
            _die()

    async def killing_create(self: RunStore, *arguments: Any) -> Any:
        made = await create(self, *arguments)
        if plan.kill_at == 1:
            _die()
        return made

    async def killing_decide(self: RunStore, *arguments: Any) -> Any:
        claimed = await decide(self, *arguments)
        if claimed.events[-1].sequence == plan.kill_at:
            _die()
        return claimed

    patched: dict[str, Callable[..., Any]] = {"append": killing_append, "create": killing_create, "decide": killing_decide}
    for name, method in patched.items():
        setattr(RunStore, name, method)


async def _for_ever(self: Any) -> None:
    await asyncio.Event().wait()


def _die() -> NoReturn:
    sys.stderr.write(json.dumps({"event": "killed", "at": time.time()}) + "\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")


if __name__ == "__main__":
    _main()
