"""The four services as child processes of this one: start, watch their logs, wait for health, end them."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from errata_kit.calls import stop_task

HOST: Final = "127.0.0.1"
SERVICES: Final = ("orchestrator", "retriever", "judge", "generator")
_STOP_SECONDS: Final = 30.0
_OF_THE_CALLER: Final = (
    "ERRATA_TLS_CERT_FILE",
    "ERRATA_TLS_KEY_FILE",
    "ERRATA_TLS_CA_FILE",
    "ERRATA_API_KEY",
    "ERRATA_API_KEY_FILE",
)

LogSink = Callable[[str, str], None]
"""Takes a service's name and one line of its log."""


def identity_files(folder: Path) -> dict[str, str]:
    """The variables of an identity key of this suite and of what trusts it; made on first use, readable for the owner only."""
    key_file, trust_file = folder / "identity.pem", folder / "trust.pem"
    if not trust_file.exists():
        # Only who uses authentication needs to wait for these.
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        pem = serialization.Encoding.PEM
        secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        folder.mkdir(parents=True, exist_ok=True)
        key_file.touch(mode=0o600)
        key_file.write_bytes(secret)
        trust_file.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    return {"ERRATA_IDENTITY_KEY_FILE": str(key_file), "ERRATA_IDENTITY_TRUST_FILE": str(trust_file)}


class StackError(Exception):
    """The suite can't start or has ended; the message is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class StackPlan:
    """Where the services listen and keep their data. variables: further environment, None removes one."""

    data_dir: Path
    ports: Mapping[str, int]
    metrics_ports: Mapping[str, int]
    variables: Mapping[str, str | None]

    @classmethod
    def in_a_row(cls, data_dir: Path, first_port: int, first_metrics_port: int) -> "StackPlan":
        """Ports in a row, in the order of SERVICES."""
        ports = {name: first_port + number for number, name in enumerate(SERVICES)}
        metrics = {name: first_metrics_port + number for number, name in enumerate(SERVICES)}
        return cls(data_dir, ports, metrics, {})

    @classmethod
    def on_free_ports(cls, data_dir: Path, variables: Mapping[str, str | None]) -> "StackPlan":
        """Ports that are free right now."""
        with contextlib.ExitStack() as stack:
            found = []
            for _ in range(2 * len(SERVICES)):
                probe = stack.enter_context(socket.socket())
                probe.bind((HOST, 0))
                found.append(int(probe.getsockname()[1]))
        ports = dict(zip(SERVICES, found[: len(SERVICES)], strict=True))
        return cls(data_dir, ports, dict(zip(SERVICES, found[len(SERVICES) :], strict=True)), variables)

    def target(self, name: str) -> str:
        """host:port of a service."""
        return f"{HOST}:{self.ports[name]}"

    def environment(self) -> dict[str, str]:
        """The children's environment."""
        values: dict[str, str | None] = {
            **os.environ,
            # What the command line itself needs for calls to another place. These four speak plainly, on loopback.
            **dict.fromkeys(_OF_THE_CALLER),
            "GRPC_VERBOSITY": os.environ.get("GRPC_VERBOSITY", "ERROR"),
            "ERRATA_HOST": HOST,
            "ERRATA_DATA_DIR": str(self.data_dir.resolve()),
            "ERRATA_EXIT_WITH_PARENT": str(os.getpid()),
            "ERRATA_LOG_FORMAT": "json",
            **{f"{name.upper()}_PORT": str(port) for name, port in self.ports.items()},
            **{f"{name.upper()}_METRICS_PORT": str(port) for name, port in self.metrics_ports.items()},
            **{f"ORCHESTRATOR_{name.upper()}_TARGET": self.target(name) for name in SERVICES if name != "orchestrator"},
            "PYTHONUNBUFFERED": "1",
            **self.variables,
        }
        if values.get("ERRATA_AUTH") not in {None, "", "none"} and not values.get("ERRATA_IDENTITY_KEY_FILE"):
            # With authentication the other services take the orchestrator's calls only when it signs them.
            values |= identity_files(self.data_dir.resolve() / "identity")
        return {name: value for name, value in values.items() if value is not None}

    def check_ports(self) -> None:
        """Raise StackError for a port that is taken."""
        for ports, what, option in ((self.ports, "gRPC", "--port"), (self.metrics_ports, "metrics", "--metrics-port")):
            for name, port in ports.items():
                with socket.socket() as probe:
                    # As the servers do: a port in TIME_WAIT is free.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    try:
                        probe.bind((HOST, port))
                    except OSError:
                        message = f"Port {port} is taken; the {name} needs it for {what}. Choose others with {option}."
                        raise StackError(message) from None


class Stack:
    """The running children. Use starting()."""

    def __init__(self, plan: StackPlan, sink: LogSink) -> None:
        self.plan = plan
        self._sink = sink
        self._children: dict[str, asyncio.subprocess.Process] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._complaints: dict[str, str] = {}

    def pid(self, name: str) -> int:
        """The process id of a service."""
        return self._children[name].pid

    async def start(self, name: str) -> None:
        """Start one service, or start it again."""
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            f"services.{name}",
            env=self.plan.environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # Ctrl-C in a terminal goes to the whole group; the children are to be ended in order, by us.
            start_new_session=True,
        )
        self._children[name] = child
        self._readers.append(asyncio.create_task(self._read(name, child)))

    async def healthy(self, timeout: float) -> None:  # noqa: ASYNC109 - the caller's words
        """Return when all four say SERVING. Raises StackError when one ends before, or when it takes too long."""
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self._until_serving(name) for name in SERVICES))
        except TimeoutError:
            raise StackError(f"The suite was not healthy within {timeout:.0f} s.") from None

    async def ended(self) -> str:
        """Wait until a child ends by itself, and return a sentence about it."""
        waits = {asyncio.create_task(child.wait()): name for name, child in self._children.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return await self._obituary(waits[next(iter(done))])
        finally:
            for task in waits:
                await stop_task(task)

    async def stop(self) -> None:
        """End every child: SIGTERM, and SIGKILL for one that does not go."""
        living = [child for child in self._children.values() if child.returncode is None]
        for child in living:
            child.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await asyncio.gather(*(child.wait() for child in living))
        except TimeoutError:
            for child in living:
                if child.returncode is None:
                    child.kill()
            await asyncio.gather(*(child.wait() for child in living))
        await asyncio.gather(*self._readers)

    async def _read(self, name: str, child: asyncio.subprocess.Process) -> None:
        if child.stdout is None:
            raise RuntimeError("the child was started without a pipe")
        async for raw in _lines(child.stdout):
            complaint = _complaint(raw)
            if complaint:
                self._complaints[name] = complaint
            self._sink(name, raw)

    async def _until_serving(self, name: str) -> None:
        child = self._children[name]
        async with grpc.aio.insecure_channel(self.plan.target(name)) as channel:
            stub: Any = health_pb2_grpc.HealthStub(channel)
            while child.returncode is None:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=1)
                    if reply.status == health_pb2.HealthCheckResponse.SERVING:
                        return
                await asyncio.sleep(0.05)
        raise StackError(await self._obituary(name))

    async def _obituary(self, name: str) -> str:
        # The reason may still be in the pipe.
        await asyncio.sleep(0.2)
        code = self._children[name].returncode
        return self._complaints.get(name) or f"The {name} ended with exit code {code}; its log says why."


@contextlib.asynccontextmanager
async def starting(plan: StackPlan, sink: LogSink) -> AsyncIterator[Stack]:
    """Start the four services inside the block, and end them on the way out."""
    plan.check_ports()
    try:
        plan.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StackError(f"The data folder {plan.data_dir} can't be made: {error.strerror}.") from None
    stack = Stack(plan, sink)
    try:
        for name in SERVICES:
            await stack.start(name)
        yield stack
    finally:
        await stack.stop()


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    while True:
        try:
            raw = await stream.readline()
        except ValueError:
            # A line over 64 KiB: the rest of it comes with the next read.
            continue
        if not raw:
            return
        yield raw.decode(errors="replace").rstrip("\n")


def _complaint(line: str) -> str:
    """Why a service did not start, when this line says so."""
    if line.startswith("errata: "):
        return line.removeprefix("errata: ")
    with contextlib.suppress(ValueError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.get("event") == "start_failed":
            return f"{entry.get('error')}."
    return ""
